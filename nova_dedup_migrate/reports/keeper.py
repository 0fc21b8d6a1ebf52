# SPDX-License-Identifier: Apache-2.0
"""The reports of nova-compute: written, sent, read for link rates."""

import dataclasses
import datetime
import functools
import threading

from oslo_log import log as logging

from nova_dedup_migrate.reports import build
from nova_dedup_migrate.reports import notify
from nova_dedup_migrate.reports import rounds
from nova_dedup_migrate.reports import store

LOG = logging.getLogger(__name__)

#: Number of reports that are read for the rates of links.
_RECENT = 50
#: Older rates of links are not used.
_LINK_AGE = datetime.timedelta(days=7)

_INTERRUPTED = ('nova-compute stopped during the migration; see "openstack '
                'server migration list" for the outcome')


class ReportKeeper:
    """Writes and sends the reports of the migrations from this host.

    :param conf: oslo_config.cfg.ConfigOpts with dedup_migrate and host
    """

    def __init__(self, conf):
        self._conf = conf
        self._lock = threading.Lock()
        self._links = None

    @functools.cached_property
    def _store(self):
        return store.ReportStore(self._conf.dedup_migrate.reports_path,
                                 self._conf.dedup_migrate.reports_kept)

    @functools.cached_property
    def _notifier(self):
        return notify.ReportNotifier(self._conf, self._conf.host)

    def keep(self, record):
        """Write the report of a migration, and send it if it has ended.

        :param record: tasks.record.MigrationRecord
        :raises ReportError: it cannot be written; it is sent nevertheless
        """
        self._keep(build.of_record(record))

    def close_unfinished(self):
        """Mark the reports that an earlier process left open as failed.

        Call it when no migration is running.

        :raises ReportError: the directory cannot be used
        """
        found, damaged = self._store.list()
        for error in damaged:
            LOG.warning('A migration report is skipped: %s', error)
        for report in found:
            if report.outcome == 'running':
                self._keep(dataclasses.replace(
                    report, outcome='failed', error=_INTERRUPTED,
                    finished_at=_now()))

    def link_rate(self, destination):
        """Return bytes/s of the last migration there, None if not known.

        :param destination: host, as in nova.conf
        """
        with self._lock:
            if self._links is None:
                self._links = {}
                # the newest one last
                for report in reversed(self._store.list(_RECENT)[0]):
                    self._learn(report)
            when, rate = self._links.get(destination, (None, None))
        if rate is None or _now() - when > _LINK_AGE:
            return None
        return rate

    def _keep(self, report):
        try:
            self._store.write(report)
        finally:
            if report.outcome != 'running':
                with self._lock:
                    if self._links is not None:
                        self._learn(report)
                self._send(report)

    def _learn(self, report):
        rate = rounds.link_rate(report.rounds)
        if report.outcome == 'completed' and rate and report.finished_at:
            self._links[report.destination] = (report.finished_at, rate)

    def _send(self, report):
        try:
            self._notifier.end(report)
        except Exception as error:
            # The drivers of oslo.messaging raise errors of many kinds,
            # and a lost notification must not fail a migration.
            LOG.warning('The notification with the report of migration '
                        '%(migration)s was not sent: %(error)s; the report '
                        'is in reports_path',
                        {'migration': report.migration_uuid,
                         'error': error})


def _now():
    return datetime.datetime.now(datetime.timezone.utc)
