# SPDX-License-Identifier: Apache-2.0
"""Building the disks of a block migration before they are mirrored.

::

    for each disk, one after the other
      watch     the source's QEMU records writes; a sample of the disk
      decide    does it pay? (planner.disks)
      build     the destination's agent fills the file Nova has made there
      arm       the mirror that libvirt starts later copies the rest

A disk that is not built is released, and mirrored in the ordinary way.  If
something fails later it remains watched and not armed: then the mirror
copies everything, which is right whatever is in the file by then.

A destination's agent that was restarted continues where its journal ends.
One that cannot be reached may write to the file after the mirror has begun,
and QEMU's locks would not prevent that.  So the migration is cancelled then.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import time
import typing

from oslo_log import log as logging

from nova_dedup_migrate import errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import disks as planner_disks
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.tasks import base

LOG = logging.getLogger(__name__)

#: Seconds between two looks at a disk that is built.
INTERVAL = 1.0
#: Seconds in which a destination's agent that was killed has to be back,
#: and times that this may happen to one disk.
RESTART = 30.0
RESTARTS = 3


class DiskNotBuilt(errors.DedupMigrateError):
    """A disk is mirrored in full."""

    template = '{reason}'


class NotStopped(errors.DedupMigrateError):
    """The destination may still write to a disk: it must not be mirrored."""

    template = ('the agent of host {host} did not confirm that it has '
                'stopped writing to disk {target}: {reason}. The live '
                'migration is cancelled. Check nova-dedup-migrate-agent on '
                'that host.')


class MigrationAborted(errors.DedupMigrateError):
    """The migration is to be aborted; Nova's own steps do that."""

    template = 'the live migration is aborted'


class DiskPort(typing.Protocol):
    """What the task needs from those who know Nova and the agents.

    Disks are named by their target, such as vda.  All methods may raise.
    """

    def targets(self) -> Sequence[str]:
        """Return the disks that the destination has a file for."""

    def watch(self, target: str) -> watch_objects.DedupWatchReply:
        """Have the source record writes to a disk."""

    def facts(self, target: str, watch: watch_objects.DedupWatchReply
              ) -> planner_disks.DiskFacts:
        """Return what a decision is made of."""

    def build(self, target: str, watch: watch_objects.DedupWatchReply,
              seconds: float) -> None:
        """Have the destination begin to build a disk."""

    def state(self, target: str, wait: float
              ) -> disk_objects.DedupFillingReply:
        """Return how far it is, or wait for so many seconds."""

    def arm(self, target: str) -> watch_objects.DedupWatchReply:
        """Have the next mirror leave out what is proven."""

    def release(self, target: str) -> bool:
        """Have the source forget a disk; False: it may be written to."""

    def abort(self) -> None:
        """Have the destination stop building, and forget the disks."""

    def used(self) -> dict[str, tuple[int | None, str]]:
        """Return target -> (bytes its mirror began with, reason).

        Only of disks whose mirror has begun.
        """

    def forget(self) -> None:
        """Have the source forget the disks of this migration."""


class FillDisks(base.Task):
    """Have the destination build the disks; see above.

    The undo log has that QEMU watches disks.

    :param port: DiskPort, None if disks are not to be built
    :param seconds: for all disks
    :param min_gain: share of the time that has to be saved
    :param always: build whatever is predicted
    :param clock: seconds
    :param sleep: waits for seconds
    """

    def __init__(self, operation: operations.Operation,
                 port: DiskPort | None, seconds: float = 3600.0,
                 min_gain: float = 0.05, always: bool = False,
                 clock: Callable[[], float] = time.monotonic,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(operation)
        self._port = port
        self._seconds = seconds
        self._min_gain = min_gain
        self._always = always
        self._clock = clock
        self._sleep = sleep

    @base.harmless('preparing the disks')
    def execute(self) -> None:
        if self._port is None:
            return
        targets = self._port.targets()
        if not targets:
            return
        self.operation.will(operations.UNDO_DISKS)
        end = self._clock() + self._seconds
        for target in targets:
            try:
                self._fill(self._port, target, end)
            except MigrationAborted:
                LOG.info('Live migration %s is aborted: its disks are not '
                         'built any further', self.operation.migration_uuid)
                break
            except NotStopped as error:
                self._note(target, reason=str(error))
                self.operation.warn('preparing disk %s' % target, error)
                self._cancel()
                break
            except Exception as error:
                self._note(target, reason=str(error))
                self.operation.warn('preparing disk %s' % target, error)
                self._release(self._port, target)

    @base.harmless('stopping to build disks')
    def revert(self, **kwargs: object) -> None:
        """Have both agents forget it; the undo log has QEMU's part."""
        if self._port is not None and self.operation.disks:
            forget(self._port)

    def _fill(self, port: DiskPort, target: str, end: float) -> None:
        self._check()
        watch = port.watch(target)
        self._note(target, size=watch.size, data=watch.data)
        known = port.facts(target, watch)
        decision = planner_disks.decide(known, self._min_gain, self._always)
        self._note(target, predicted_seconds=round(decision.seconds, 1),
                   predicted_stock_seconds=round(decision.stock, 1),
                   reason=decision.reason, image_store=known.image_store)
        if not decision.build:
            LOG.info('Disk %(target)s of live migration %(migration)s is '
                     'not built at the destination: %(reason)s',
                     {'target': target, 'reason': decision.reason,
                      'migration': self.operation.migration_uuid})
            self._release(port, target)
            return
        try:
            self._build(port, target, watch, end)
        except MigrationAborted:
            # Nothing is mirrored.
            port.abort()
            raise
        except BaseException:
            self._stop(port, target)
            raise
        armed = port.arm(target)
        LOG.info('Disk %(target)s of live migration %(migration)s: %(proven)d'
                 ' of %(size)d bytes are at the destination',
                 {'target': target, 'proven': armed.proven,
                  'size': armed.size,
                  'migration': self.operation.migration_uuid})

    def _build(self, port: DiskPort, target: str,
               watch: watch_objects.DedupWatchReply, end: float) -> None:
        """Have a disk built, by an agent that may be restarted meanwhile.

        :raises DiskNotBuilt:
        :raises MigrationAborted:
        """
        port.build(target, watch, max(1.0, end - self._clock()))
        for _ in range(RESTARTS):
            if self._await(port, target, end):
                return
            self._resume(port, target, watch, end)
        if not self._await(port, target, end):
            raise DiskNotBuilt(
                reason='the agent of host %s was lost %d times'
                % (self.operation.destination, RESTARTS + 1))

    def _resume(self, port: DiskPort, target: str,
                watch: watch_objects.DedupWatchReply, end: float) -> None:
        """Have the destination's agent go on, as soon as it is back."""
        LOG.warning('The agent of %(host)s does not answer, or was '
                    'restarted, while it builds disk %(target)s of live '
                    'migration %(migration)s',
                    {'host': self.operation.destination, 'target': target,
                     'migration': self.operation.migration_uuid})
        patience = self._clock() + RESTART
        while True:
            self._check()
            try:
                port.build(target, watch, max(1.0, end - self._clock()))
                return
            except rpc_errors.AgentRefused:
                raise
            except rpc_errors.AgentUnavailable:
                if self._clock() > min(end, patience):
                    raise
            self._sleep(INTERVAL)

    def _stop(self, port: DiskPort, target: str) -> None:
        """Have the destination stop writing to a disk.

        :raises NotStopped:
        """
        patience = self._clock() + RESTART
        while True:
            try:
                return port.abort()
            except Exception as error:
                if self._clock() > patience:
                    raise NotStopped(host=self.operation.destination,
                                     target=target, reason=error) from error
            self._sleep(INTERVAL)

    def _cancel(self) -> None:
        """Have Nova roll back before it calls libvirt."""
        self.operation.enter(self.operation.phase, requests=[
            *self.operation.durable.requests, operations.ABORT])

    def _await(self, port: DiskPort, target: str, end: float) -> bool:
        """Wait until a disk is built.

        :returns: False: the agent does not answer, or knows nothing of it
        :raises DiskNotBuilt:
        :raises MigrationAborted:
        """
        while True:
            try:
                found = port.state(target, INTERVAL)
            except rpc_errors.AgentRefused:
                raise
            except rpc_errors.AgentUnavailable:
                return False
            if found.state == 'unknown':
                return False
            self._note(target, build_seconds=round(found.seconds, 1),
                       sources={each.name: each.bytes
                                for each in found.sources})
            if found.total:
                self.operation.show(report.Progress(
                    share=min(1.0, found.done / found.total) / 2,
                    seconds_left=None, at=time.time()))
            if found.state == 'done':
                return True
            if found.state != 'running':
                raise DiskNotBuilt(reason=found.reason)
            self._check()
            if self._clock() > end:
                raise DiskNotBuilt(
                    reason='it was not built within disk_time, %d s'
                    % self._seconds)

    def _release(self, port: DiskPort, target: str) -> None:
        """Have it mirrored in the ordinary way, if that is still right."""
        try:
            port.release(target)
        except Exception as error:
            self.operation.warn('releasing disk %s' % target, error)

    def _check(self) -> None:
        if operations.ABORT in self.operation.durable.requests:
            raise MigrationAborted()

    def _note(self, target: str, **values: typing.Any) -> None:
        note(self.operation, target, **values)


class DiskLook:
    """Takes note of what the mirror jobs made of the disks.

    After the migration the source's QEMU is gone, so that is done while
    it goes on.
    """

    def __init__(self, operation: operations.Operation, port: DiskPort
                 ) -> None:
        self._operation = operation
        self._port = port
        self._seen: set[str] = set()

    def look(self) -> None:
        """Look at the disks whose mirrors have not been seen."""
        if len(self._seen) == len(self._operation.disks):
            return
        for target, (mirrored, reason) in self._port.used().items():
            note(self._operation, target, mirrored=mirrored,
                 **({'reason': reason} if reason else {}))
            self._seen.add(target)


class CollectDisks(base.Task):
    """Forget the disks of a migration that has completed.

    :param port: DiskPort or None
    """

    def __init__(self, operation: operations.Operation,
                 port: DiskPort | None) -> None:
        super().__init__(operation)
        self._port = port

    @base.harmless('forgetting the disks that were built')
    def execute(self) -> None:
        if self._port is not None and self.operation.disks:
            forget(self._port)


def forget(port: DiskPort) -> None:
    """Have both agents forget the disks of a migration that is over.

    Nova has removed the files of one that failed by now.
    """
    try:
        port.abort()
    finally:
        port.forget()


def note(operation: operations.Operation, target: str,
         **values: typing.Any) -> None:
    """Set fields of the report of a disk."""
    disks = list(operation.disks)
    for number, disk in enumerate(disks):
        if disk.target == target:
            disks[number] = dataclasses.replace(disk, **values)
            break
    else:
        disks.append(report.Disk(target=target, **values))
    operation.disks = disks
