# SPDX-License-Identifier: Apache-2.0
"""Looking on while Nova migrates, and stepping in."""

import contextlib
import threading
import time

from oslo_log import log as logging

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.planner import downtime_limit
from nova_dedup_migrate.planner import replan
from nova_dedup_migrate.tasks import arm
from nova_dedup_migrate.tasks import pause

LOG = logging.getLogger(__name__)

#: Statuses in which the end is a moment away.
_ENDING = ('pre-switchover', 'device')
#: Seconds between two looks when the last figures are about to appear:
#: libvirt ends the source's QEMU soon after it has completed.
_ENDING_INTERVAL_S = 0.03
#: Looks that may fail one after the other before we look away.
_PATIENCE = 5


class Watch:
    """Reads the source's progress and disarms where that is better.

    :param record: MigrationRecord that gets each Progress
    :param guest: hypervisor.base.Guest with progress()
    :param interval: seconds between two looks
    :param refresh: refresh.Refresh, None if the guest is not to be asked
    """

    def __init__(self, record, guest, interval=0.5, refresh=None):
        self._record = record
        self._guest = guest
        self._interval = interval
        self._refresh = refresh
        self._over = threading.Event()
        self._failures = 0

    @contextlib.contextmanager
    def during(self, facts, plan):
        """Watch in a thread of its own as long as the block runs."""
        with self._listening(), self._looking(facts, plan):
            yield

    @contextlib.contextmanager
    def _listening(self):
        """Take note of the pause, from the guest's events."""
        try:
            log = self._guest.events
            mark = log.mark()
        except Exception as error:
            self._record.warn('listening to events', error)
            yield
            return
        try:
            yield
        finally:
            self._record.pause = pause.of_events(log.since(mark))

    @contextlib.contextmanager
    def _looking(self, facts, plan):
        thread = threading.Thread(
            target=self.run, args=(facts, plan), daemon=True,
            name='dedup-watch-%s' % self._record.instance_uuid)
        try:
            thread.start()
        except RuntimeError as error:
            self._record.warn('starting the watch', error)
            yield
            return
        try:
            yield
        finally:
            self._over.set()
            # A look may hang with QEMU; Nova is not to wait for that.
            thread.join(self._interval + 1.0)

    def run(self, facts, plan):
        """Look on until the migration or the guest is over."""
        observers = self._observers(facts, plan)
        while not self._over.is_set():
            wait = self._interval
            try:
                now = self._guest.progress()
                self._record.see(now)
                if now.rounds:
                    for observer in observers:
                        observer(now)
                if self._refresh is not None:
                    self._refresh.look(facts, plan, now)
                wait = self._pause(now)
                self._failures = 0
            except (errors.QmpDisconnected, errors.GuestNotRunning):
                # It has left; so has everything there was to see.
                return
            except Exception as error:
                self._failures += 1
                if self._failures >= _PATIENCE:
                    self._record.warn('watching', error)
                    return
            self._over.wait(wait)

    def _pause(self, now):
        """Return seconds until the next look."""
        if now.status in _ENDING:
            return _ENDING_INTERVAL_S
        rate = now.mbps * 1e6 / 8
        if now.status == 'active' and rate > 0:
            left = now.remaining_bytes / rate
            return min(self._interval, max(left / 4, _ENDING_INTERVAL_S))
        return self._interval

    def _observers(self, facts, plan):
        if facts is None or plan is None:
            return ()
        found = []
        limit = downtime_limit.of_plan(facts.options, plan)
        if limit is not None:
            found.append(_LimitSetter(self._record, self._guest, limit))
        if plan.strategy != 'stock':
            found.append(_Adapter(self._record, self._guest, facts, plan))
        return found


class _Adapter:
    """Asks the planner again at each look."""

    def __init__(self, record, guest, facts, plan):
        self._record = record
        self._guest = guest
        self._facts = facts
        self._plan = plan
        self._started = time.monotonic()
        self._disarmed = False

    def __call__(self, now):
        source = now.dedup.source if now.dedup is not None else None
        if source is not None and source.reason:
            self._record.explain(source.reason)
        if self._disarmed or source is None:
            return
        decision = replan.replan(
            self._plan, self._facts,
            replan.observe(now, time.monotonic() - self._started))
        if decision.action == 'disarm':
            LOG.info('Live migration %(migration)s goes on as an ordinary '
                     'one: %(reason)s',
                     {'migration': self._record.migration_uuid,
                      'reason': decision.reason})
            self._record.explain(decision.reason)
            arm.disarm(self._guest)
            self._disarmed = True


class _LimitSetter:
    """Sets the downtime limit when rounds lead no further."""

    def __init__(self, record, guest, limit):
        self._record = record
        self._guest = guest
        self._started = time.monotonic()
        self._raised = False
        self._limit = limit

    def __call__(self, now):
        if now.status != 'active':
            return
        limit = self._limit.look(now.rounds, now.expected_downtime_ms,
                                 time.monotonic() - self._started)
        if limit is None:
            return
        # If Nova's steps lower it, it is raised again and again.
        LOG.log(logging.DEBUG if self._raised else logging.INFO,
                'Live migration %(migration)s: rounds no longer leave less '
                'to send (round %(rounds)d). The downtime limit is now '
                '%(limit)d ms',
                {'migration': self._record.migration_uuid,
                 'rounds': now.rounds, 'limit': limit})
        self._raised = True
        self._guest.allow_downtime(limit)
