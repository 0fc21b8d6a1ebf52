# SPDX-License-Identifier: Apache-2.0
"""Waiting for a migration, by its events and by looking at it."""

import abc
import dataclasses
import time

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import progress
from testkit import guest

#: Longest wait for an event before the status is looked at again.
_POLL_S = 0.25
#: States in which QEMU waits for a decision of ours.
_HELD = ('pre-switchover', 'postcopy-paused')


class PolledMigration(guest.Migration):
    """The waiting part of Migration.

    :param source: the Guest that leaves
    """

    def __init__(self, source):
        self._source = source
        self._eta = progress.Eta()

    def _with_eta(self, now):
        """Add to a Progress what only several of them tell."""
        if not now.rounds:
            # QEMU has not counted yet what there is to send
            return now
        eta = self._eta.update(time.monotonic(), now.remaining_bytes)
        return dataclasses.replace(now, eta_s=eta)

    @abc.abstractmethod
    def _settle(self, now, deadline):
        """See to it that exactly one of the two guests is in charge.

        :param now: final Progress
        :param deadline: monotonic time
        """

    @abc.abstractmethod
    def _failed(self, now):
        """Make the MigrationFailed of a final Progress."""

    def watch(self, interval=0.5):
        while True:
            mark = self._source.events.mark()
            now = self.progress()
            if now.finished:
                self._settle(now, time.monotonic() + 60)
            yield now
            if now.finished or now.status in _HELD:
                return
            self._sleep(mark, interval)

    def wait(self, timeout):
        return self.wait_status(('completed',), timeout)

    def wait_status(self, statuses, timeout):
        deadline = time.monotonic() + timeout
        while True:
            mark = self._source.events.mark()
            now = self.progress()
            if now.finished:
                self._settle(now, deadline)
            if now.status in statuses:
                return now
            if now.finished or now.status == 'postcopy-paused':
                raise self._failed(now)
            left = deadline - time.monotonic()
            if left <= 0:
                raise errors.WaitTimeout(
                    what='migration status %s (it is %s)' % (
                        ' or '.join(statuses), now.status),
                    seconds=timeout)
            self._sleep(mark, min(_POLL_S, left))

    @staticmethod
    def _wait_interrupted(guests, marks, timeout):
        """Wait until both sides know that the link is broken.

        :param marks: in the guests' events, from before it broke
        """
        for one, mark in zip(guests, marks, strict=True):
            one.events.wait(
                'MIGRATION', mark, timeout,
                lambda data: data.get('status') == 'postcopy-paused')

    def _sleep(self, mark, seconds):
        """Wait for a change of status, at most some seconds."""
        deadline = time.monotonic() + seconds
        try:
            self._source.events.wait('MIGRATION', mark, seconds)
        except errors.WaitTimeout:
            # also raised at once if the source is gone
            time.sleep(max(0.0, deadline - time.monotonic()))
