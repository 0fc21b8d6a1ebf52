# SPDX-License-Identifier: Apache-2.0
"""Reports as notifications.

Event type ``dedup_migrate.migration.end``, once a migration, on the
topics and with the driver of [oslo_messaging_notifications].  The payload
is the report as in reports.report; the priority is INFO for a migration
that completed or was cancelled and ERROR for one that failed.
"""

import oslo_messaging

from nova_dedup_migrate.reports import codec

EVENT_END = 'dedup_migrate.migration.end'


class ReportNotifier:
    """Sends reports.

    :param conf: oslo_config.cfg.ConfigOpts with transport_url
    :param host: of this nova-compute
    """

    def __init__(self, conf, host):
        self._notifier = oslo_messaging.Notifier(
            oslo_messaging.get_notification_transport(conf),
            publisher_id='dedup_migrate:' + host,
            # A bus that is down is tried once more, not for ever.
            retry=1)

    def end(self, report):
        """Send the report of a migration that is over.

        :raises: whatever the driver of oslo.messaging does
        """
        send = (self._notifier.error if report.outcome == 'failed'
                else self._notifier.info)
        send({}, EVENT_END, codec.plain(report))
