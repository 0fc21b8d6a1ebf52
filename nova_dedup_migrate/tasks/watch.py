# SPDX-License-Identifier: Apache-2.0
"""Watching QEMU while Nova migrates, and stepping in."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import threading
import time
import typing

from oslo_log import log as logging

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import progress as hypervisor_progress
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.planner import replan
from nova_dedup_migrate.planner import settle
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tasks import downtime
from nova_dedup_migrate.tasks import refresh as refreshing

LOG = logging.getLogger(__name__)

_Progress = hypervisor_progress.Progress

#: Statuses in which the end is a moment away.
_ENDING = ('pre-switchover', 'device')
#: Seconds between two looks when the last figures are about to appear:
#: libvirt ends the source's QEMU soon after it has completed.
_ENDING_INTERVAL_S = 0.03
#: Failed looks in a row after which the watch ends.
_MAX_FAILURES = 5


class Watch:
    """Reads the source's progress, and disarms if that is better.

    :param operation: Operation that gets each Progress
    :param guest: hypervisor.base.Guest with progress()
    :param interval: seconds between two looks
    :param refresh: refresh.Refresh, None if the page cache is not listed
    """

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest, interval: float = 0.5,
                 refresh: refreshing.Refresh | None = None) -> None:
        self._operation = operation
        self._guest = guest
        self._interval = interval
        self._refresh = refresh
        self._over = threading.Event()
        self._failures = 0

    @contextlib.contextmanager
    def during(self) -> Iterator[None]:
        """Watch in a thread of its own as long as the block runs."""
        with self._listening(), self._looking():
            yield

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Take the downtime from the guest's events."""
        try:
            log = self._guest.events
            mark = log.mark()
        except Exception as error:
            self._operation.warn('listening to events', error)
            yield
            return
        try:
            yield
        finally:
            self._operation.downtime = downtime.of_events(log.since(mark))

    @contextlib.contextmanager
    def _looking(self) -> Iterator[None]:
        thread = threading.Thread(
            target=self.run, daemon=True,
            name='dedup-watch-%s' % self._operation.instance_uuid)
        try:
            thread.start()
        except RuntimeError as error:
            self._operation.warn('starting the watch', error)
            yield
            return
        try:
            yield
        finally:
            self._over.set()
            # A look may hang with QEMU; Nova is not to wait for that.
            thread.join(self._interval + 1.0)

    def run(self) -> None:
        """Look until the migration or the guest is over."""
        observers = self._observers()
        while not self._over.is_set():
            wait = self._interval
            try:
                now = self._guest.progress()
                self._operation.see(now)
                if now.rounds:
                    for observer in observers:
                        observer(now)
                if self._refresh is not None:
                    self._refresh.look(now)
                wait = self._wait(now)
                self._failures = 0
            except (errors.QmpDisconnected, errors.GuestNotRunning):
                # It has left; so has everything there was to see.
                return
            except Exception as error:
                self._failures += 1
                if self._failures >= _MAX_FAILURES:
                    self._operation.warn('watching', error)
                    return
            self._over.wait(wait)

    def _wait(self, now: _Progress) -> float:
        """Return seconds until the next look."""
        if now.status in _ENDING:
            return _ENDING_INTERVAL_S
        rate = now.mbps * 1e6 / 8
        if now.status == 'active' and rate > 0:
            left = now.remaining_bytes / rate
            return min(self._interval, max(left / 4, _ENDING_INTERVAL_S))
        return self._interval

    def _observers(self) -> tuple[Callable[[_Progress], None], ...]:
        if self._operation.facts is None or self._operation.plan is None:
            return ()
        return (_Replanner(self._operation, self._guest),
                _DowntimeLimit(self._operation, self._guest))


class _Replanner:
    """Lets the planner decide again at each look; keeps its estimate."""

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest) -> None:
        self._operation = operation
        self._guest = guest
        self._started = time.monotonic()
        self._disarmed = False

    def __call__(self, now: _Progress) -> None:
        decision = replan.replan(
            self._operation.plan, self._operation.facts,
            replan.observe(now, time.monotonic() - self._started))
        self._operation.show(report.Progress(
            share=_share(now), seconds_left=decision.left, at=time.time()))
        source = now.dedup.source if now.dedup is not None else None
        if source is None or self._operation.plan.strategy == (
                planner_plan.STOCK):
            return
        if source.reason:
            self._operation.explain(source.reason)
        if decision.action == 'disarm' and not self._disarmed:
            LOG.info('Live migration %(migration)s continues as an ordinary '
                     'one: %(reason)s',
                     {'migration': self._operation.migration_uuid,
                      'reason': decision.reason})
            self._operation.explain(decision.reason)
            self._guest.disarm_dedup()
            self._disarmed = True
            self._operation.undone(operations.UNDO_ARM)


class _DowntimeLimit:
    """Raises the downtime limit when rounds no longer leave less."""

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest) -> None:
        self._operation = operation
        self._guest = guest
        self._started = time.monotonic()
        self._raised = False
        options = operation.facts.options
        self._limit = settle.Settling(options.downtime_ms,
                                      options.downtime_steps)

    def __call__(self, now: _Progress) -> None:
        if now.status != 'active':
            return
        limit = self._limit.look(now.rounds, now.expected_downtime_ms,
                                 time.monotonic() - self._started)
        if limit is None:
            return
        # Nova's steps may lower it; then it is raised again and again.
        LOG.log(logging.DEBUG if self._raised else logging.INFO,
                'Live migration %(migration)s: after %(rounds)d rounds the '
                'guest still writes to as much memory as before. The '
                'downtime limit is raised to %(limit)d ms.',
                {'migration': self._operation.migration_uuid,
                 'rounds': now.rounds, 'limit': limit})
        self._raised = True
        self._guest.allow_downtime(limit)


def _share(now: _Progress) -> float:
    if not now.total_bytes:
        return 0.0
    done = 1.0 - now.remaining_bytes / now.total_bytes
    return typing.cast(float, min(max(done, 0.0), 1.0))
