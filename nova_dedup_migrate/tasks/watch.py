# SPDX-License-Identifier: Apache-2.0
"""Watching QEMU while Nova migrates, and stepping in."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import math
import threading
import time

from oslo_log import log as logging

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.hypervisor import progress as hypervisor_progress
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import downtime_limit
from nova_dedup_migrate.planner import pacing
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.planner import replan
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tasks import downtime
from nova_dedup_migrate.tasks import fill_disks
from nova_dedup_migrate.tasks import refresh as refreshing

LOG = logging.getLogger(__name__)

_Progress = hypervisor_progress.Progress
_Observer = Callable[[_Progress, replan.Observation], None]

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
    :param rate: sets the rate of each round, None if it is Nova's
    :param disks: fill_disks.DiskLook, None if disks are not built
    """

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest, interval: float = 0.5,
                 refresh: refreshing.Refresh | None = None,
                 rate: pacing.AdaptiveRate | None = None,
                 disks: fill_disks.DiskLook | None = None) -> None:
        self._operation = operation
        self._guest = guest
        self._interval = interval
        self._refresh = refresh
        self._rate = rate
        self._disks = disks
        self._over = threading.Event()
        self._log: events.EventLog | None = None
        self._failures = 0
        self._started = time.monotonic()
        #: share of the progress before it looks
        self._before = 0.0

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
            self._log = log
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
        self._started = time.monotonic()
        shown = self._operation.durable.progress
        self._before = shown.share if shown is not None else 0.0
        while not self._over.is_set():
            wait, mark = self._interval, self._mark()
            try:
                now = self._guest.progress()
                self._operation.see(now)
                seen = replan.observe(now, time.monotonic() - self._started,
                                      self._operation.data_remaining)
                self._show(now, seen)
                if now.rounds:
                    for observer in observers:
                        observer(now, seen)
                if self._refresh is not None:
                    self._refresh.look(now)
                if self._disks is not None:
                    self._disks.look()
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
            self._rest(wait, mark)

    def _rest(self, wait: float, mark: int) -> None:
        """Wait so many seconds, or until QEMU's migration has a new event.

        It says that the last figures are there, and they are for a moment
        only.  Other events do not count: a guest can cause many.

        :param mark: _mark() before the last look
        """
        deadline = time.monotonic() + wait
        while not self._over.wait(min(wait, _ENDING_INTERVAL_S)):
            if time.monotonic() >= deadline or self._log is not None and any(
                    event.name == 'MIGRATION'
                    for event in self._log.since(mark)):
                return

    def _mark(self) -> int:
        return self._log.mark() if self._log is not None else 0

    def _show(self, now: _Progress, seen: replan.Observation) -> None:
        """Keep the progress and the time left in the operation."""
        share, left = replan.progress(self._operation.plan,
                                      self._operation.facts, seen)
        self._operation.show(report.Progress(
            share=self._before + (1 - self._before) * share,
            seconds_left=left if math.isfinite(left) else None,
            at=time.time(), **self._bytes(now, seen)))

    def _bytes(self, now: _Progress, seen: replan.Observation
               ) -> dict[str, int]:
        """Return the fields of report.Progress that are bytes."""
        made = {}
        if now.rounds:
            made.update(memory_total=now.total_bytes,
                        memory_remaining=now.remaining_bytes)
        facts = self._operation.facts
        copied = sum(disk.to_copy for disk in facts.disks) if facts else 0
        if copied:
            left = (seen.disk_remaining
                    if self._operation.data_remaining is not None
                    else copied)
            made.update(disk_total=int(copied),
                        disk_remaining=int(min(copied, left)))
        return made

    def _wait(self, now: _Progress) -> float:
        """Return seconds until the next look."""
        if now.status in _ENDING:
            return _ENDING_INTERVAL_S
        rate = now.mbps * 1e6 / 8
        if now.status == 'active' and rate > 0:
            left = now.remaining_bytes / rate
            return min(self._interval, max(left / 4, _ENDING_INTERVAL_S))
        return self._interval

    def _observers(self) -> list[_Observer]:
        facts, plan = self._operation.facts, self._operation.plan
        found: list[_Observer] = []
        if self._rate is not None:
            found.append(_Pacer(self._operation, self._guest, self._rate))
        if facts is None or plan is None:
            return found
        if plan.strategy != planner_plan.STOCK:
            found.append(_Replanner(self._operation, self._guest))
        limit = downtime_limit.of_plan(facts.options, plan)
        if limit is not None:
            found.append(_LimitSetter(self._operation, self._guest, limit))
        return found


class _Replanner:
    """Lets the planner decide again at each look."""

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest) -> None:
        self._operation = operation
        self._guest = guest
        self._disarmed = False

    def __call__(self, now: _Progress, seen: replan.Observation) -> None:
        source = now.dedup.source if now.dedup is not None else None
        if source is not None and source.reason:
            self._operation.explain(source.reason)
        if self._disarmed or source is None:
            return
        decision = replan.replan(self._operation.plan,
                                 self._operation.facts, seen)
        if decision.action == replan.DISARM:
            LOG.info('Live migration %(migration)s continues as an ordinary '
                     'one: %(reason)s',
                     {'migration': self._operation.migration_uuid,
                      'reason': decision.reason})
            self._operation.explain(decision.reason)
            self._guest.disarm_dedup()
            self._disarmed = True
            self._operation.undone(operations.UNDO_ARM)


class _Pacer:
    """Sets the rate of each round."""

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest, rate: pacing.AdaptiveRate) -> None:
        self._operation = operation
        self._guest = guest
        self._rate = rate
        self._begun = False

    def __call__(self, now: _Progress, seen: replan.Observation) -> None:
        if now.status != 'active':
            return
        if not self._begun:
            self._set(now.rounds, self._rate.minimum)
            self._begun = True
        step = self._rate.update(now.rounds,
                                 now.dirty_pages_per_s * now.page_size)
        if step is not None:
            self._set(now.rounds, step.rate)

    def _set(self, rounds: int, rate: int) -> None:
        LOG.debug('Live migration %(migration)s sends round %(round)d with '
                  '%(rate)d Mbit/s',
                  {'migration': self._operation.migration_uuid,
                   'round': rounds, 'rate': rate // 125_000})
        self._guest.limit_bandwidth(rate)


class _LimitSetter:
    """Sets the downtime limit when rounds no longer leave less."""

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest,
                 limit: downtime_limit.DowntimeLimit) -> None:
        self._operation = operation
        self._guest = guest
        self._raised = False
        self._limit = limit

    def __call__(self, now: _Progress, seen: replan.Observation) -> None:
        if now.status != 'active':
            return
        limit = self._limit.look(now.rounds, now.expected_downtime_ms,
                                 seen.time)
        if limit is None:
            return
        # Nova's steps may lower it; then it is raised again and again.
        LOG.log(logging.DEBUG if self._raised else logging.INFO,
                'Live migration %(migration)s: after %(rounds)d rounds the '
                'guest still writes to as much memory as before. The '
                'downtime limit is set to %(limit)d ms.',
                {'migration': self._operation.migration_uuid,
                 'rounds': now.rounds, 'limit': limit})
        self._raised = True
        self._guest.allow_downtime(limit)
