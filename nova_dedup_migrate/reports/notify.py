# SPDX-License-Identifier: Apache-2.0
"""Reports as versioned notifications.

Event type ``dedup_migrate.migration.end``, once a migration, on the
topics and with the driver of [oslo_messaging_notifications].  The
priority is INFO for a migration that completed or was cancelled and
ERROR for one that failed.  The payload has the form of Nova's versioned
notifications, with our prefix::

    {"nova_dedup_migrate_object.name": "MigrationReportPayload",
     "nova_dedup_migrate_object.namespace": "nova_dedup_migrate",
     "nova_dedup_migrate_object.version": "1.0",
     "nova_dedup_migrate_object.data": the report as in reports.report}

The major version is that of the report and grows if a field changes its
meaning or goes away; the minor one grows with each field that is added.

* 1.0 - the first.
"""

from __future__ import annotations

from typing import Any

from oslo_config import cfg
from oslo_context import context as oslo_context
import oslo_messaging

from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report as reports

EVENT_END = 'dedup_migrate.migration.end'
PAYLOAD = 'MigrationReportPayload'
NAMESPACE = 'nova_dedup_migrate'
_PREFIX = 'nova_dedup_migrate_object.'
_MINOR = 0


class _Serializer(oslo_messaging.NoOpSerializer):
    """Sends contexts as mappings, without what would let one log in."""

    def serialize_context(self, ctxt: oslo_context.RequestContext
                          ) -> dict[str, Any]:
        return {name: value for name, value in ctxt.to_dict().items()
                if name not in ('auth_token', 'service_token')}


class ReportNotifier:
    """Sends reports.

    :param conf: oslo_config.cfg.ConfigOpts with transport_url
    :param host: of this nova-compute
    """

    def __init__(self, conf: cfg.ConfigOpts, host: str) -> None:
        self._notifier = oslo_messaging.Notifier(
            oslo_messaging.get_notification_transport(conf),
            publisher_id='dedup_migrate:' + host,
            serializer=_Serializer(),
            # A bus that is down is tried once more, not for ever.
            retry=1)

    def end(self, report: reports.Report,
            context: oslo_context.RequestContext | None = None) -> None:
        """Send the report of a migration that is over.

        :param context: of the request to migrate, default a new one
        :raises: whatever the driver of oslo.messaging does
        """
        send = (self._notifier.error if report.outcome == 'failed'
                else self._notifier.info)
        own = oslo_context.get_current()
        try:
            send(context or oslo_context.RequestContext(overwrite=False),
                 EVENT_END, payload(report))
        finally:
            # oslo.messaging makes a copy of the context, and this the one
            # the thread logs with.
            if own is not None:
                own.update_store()


def payload(report: reports.Report) -> dict[str, Any]:
    """Return the versioned payload of a report."""
    return {_PREFIX + name: value for name, value in (
        ('name', PAYLOAD), ('namespace', NAMESPACE),
        ('version', '%d.%d' % (reports.VERSION, _MINOR)),
        ('data', codec.plain(report)))}
