# SPDX-License-Identifier: Apache-2.0
"""Sends the reports of this host to the controller.

The directory of operations is the outbox: nova-compute writes there and
knows nothing of the controller, so a controller that is away delays
nothing.  A report is sent whenever its file has changed, those of running
migrations first and the others from the oldest on, and again until an
engine has stored it.  The revision of a report is the time at which its
file was written.

Nothing is kept of what was sent.  After a start of the agent all reports
are sent once more; an engine that has one knows its revision and stores
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
import json
import threading
from typing import Protocol

from oslo_log import log as logging

from nova_dedup_migrate import errors as base_errors
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report as reports
from nova_dedup_migrate.rpc import engine_api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects

LOG = logging.getLogger(__name__)

#: Seconds between two looks at the directory.
INTERVAL = 2.0
#: Seconds between two reports of the host.  One more follows each migration
#: that has ended, as the host has other guests then.
HOST_INTERVAL = 30.0
#: Seconds to the next attempt if no engine answers; doubled up to the last.
_PAUSES = (5.0, 60.0)


class Store(Protocol):
    """operations.store.OperationStore."""

    def changes(self) -> dict[str, int]:
        """Return {UUID: time of its last change in ns}."""

    def read(self, name: str) -> reports.Report:
        """Return the Report of a migration."""


class Outbox:
    """:param store: where the reports are
    :param api: engine_api.EngineAPI
    :param host: name of this host
    :param describe: callable(reports that wait) that returns the
        objects.DedupHostReport of now
    """

    def __init__(self, store: Store, api: engine_api.EngineAPI, host: str,
                 describe: Callable[[int], objects.DedupHostReport]
                 ) -> None:
        self._store = store
        self._api = api
        self._host = host
        self._describe = describe
        #: What engines have, by migration.
        self._sent: dict[str, int] = {}
        self._running: set[str] = set()
        self._stopping = False
        self._down = False
        #: Set to end the pause of a thread.
        self._changed, self._host_changed = (threading.Event(),
                                             threading.Event())
        self._threads = [
            threading.Thread(target=self._run, daemon=True, name=name,
                             args=(work, interval, wake))
            for name, work, interval, wake in (
                ('dedup-outbox', self.send, INTERVAL, self._changed),
                ('dedup-host', self.send_host, HOST_INTERVAL,
                 self._host_changed))]

    @property
    def waiting(self) -> int:
        """How many reports no engine has got yet."""
        try:
            return len(self._due())
        except base_errors.DedupMigrateError:
            return 0

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Send nothing more; what is being sent is left behind."""
        self._stopping = True
        self._changed.set()
        self._host_changed.set()

    def _run(self, work: Callable[[], None], interval: float,
             wake: threading.Event) -> None:
        # The first report of the host follows the start of the agent.
        pause = INTERVAL
        while True:
            wake.wait(pause)
            wake.clear()
            if self._stopping:
                return
            try:
                work()
            except errors.EngineUnavailable as error:
                if not self._down:
                    LOG.warning('%s. Reports stay on this host and are sent '
                                'as soon as one answers.', error)
                self._down = True
                pause = min(_PAUSES[1], max(_PAUSES[0], 2 * pause))
            except Exception:
                LOG.exception('Sending reports to the controller failed; it '
                              'is tried again in %g s', _PAUSES[1])
                pause = _PAUSES[1]
            else:
                if self._down:
                    LOG.info('The engine of the controller answers again')
                self._down = False
                pause = interval

    def _due(self) -> list[tuple[str, int]]:
        found = self._store.changes()
        for name in set(self._sent) - set(found):
            # It was the oldest one, and was removed.
            del self._sent[name]
            self._running.discard(name)
        due = [(name, at) for name, at in found.items()
               if self._sent.get(name, -1) < at]
        return sorted(due, key=lambda one: (one[0] not in self._running,
                                            one[1]))

    def send(self) -> None:
        """Send what has changed.

        :raises EngineUnavailable: no engine has taken it
        """
        for name, at in self._due():
            if self._stopping:
                return
            try:
                report = self._store.read(name)
            except base_errors.DedupMigrateError as error:
                LOG.debug('A report is not sent: %s', error)
                self._sent[name] = at
                continue
            if report.outcome == 'running':
                self._running.add(name)
            elif name in self._running:
                self._running.discard(name)
                self._host_changed.set()
            try:
                self._api.put_report(objects.DedupReport(
                    host=self._host, migration_uuid=name, revision=at,
                    report=json.dumps(codec.plain(report),
                                      allow_nan=False)))
            except (errors.EngineRefused, ValueError) as error:
                LOG.warning('The report of migration %(migration)s is not '
                            'sent again: %(error)s',
                            {'migration': name, 'error': error})
            self._sent[name] = at

    def send_host(self) -> None:
        """Send what is known of this host.

        :raises EngineUnavailable: no engine has taken it
        """
        self._api.put_host(self._describe(self.waiting))
