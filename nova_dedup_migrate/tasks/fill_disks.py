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
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.tasks import base

LOG = logging.getLogger(__name__)

#: Seconds between two looks at a disk that is built.
INTERVAL = 1.0


class DiskNotBuilt(errors.DedupMigrateError):
    """A disk is mirrored in full."""

    template = '{reason}'


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
        """Have the destination stop building."""

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
    """

    def __init__(self, operation: operations.Operation,
                 port: DiskPort | None, seconds: float = 3600.0,
                 min_gain: float = 0.05, always: bool = False,
                 clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(operation)
        self._port = port
        self._seconds = seconds
        self._min_gain = min_gain
        self._always = always
        self._clock = clock

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
            except Exception as error:
                self._note(target, reason=str(error))
                self.operation.warn('preparing disk %s' % target, error)
                self._release(self._port, target)

    @base.harmless('stopping to build disks')
    def revert(self, **kwargs: object) -> None:
        """Stop at the destination; the undo log has the rest."""
        if self._port is not None and self.operation.disks:
            self._port.abort()

    def _fill(self, port: DiskPort, target: str, end: float) -> None:
        self._check()
        watch = port.watch(target)
        self._note(target, size=watch.size, data=watch.data)
        decision = planner_disks.decide(port.facts(target, watch),
                                        self._min_gain, self._always)
        self._note(target, predicted_seconds=round(decision.seconds, 1),
                   predicted_stock_seconds=round(decision.stock, 1),
                   reason=decision.reason)
        if not decision.build:
            LOG.info('Disk %(target)s of live migration %(migration)s is '
                     'not built at the destination: %(reason)s',
                     {'target': target, 'reason': decision.reason,
                      'migration': self.operation.migration_uuid})
            self._release(port, target)
            return
        try:
            port.build(target, watch, max(1.0, end - self._clock()))
            self._await(port, target, end)
        except BaseException:
            port.abort()
            raise
        armed = port.arm(target)
        LOG.info('Disk %(target)s of live migration %(migration)s: %(proven)d'
                 ' of %(size)d bytes are at the destination',
                 {'target': target, 'proven': armed.proven,
                  'size': armed.size,
                  'migration': self.operation.migration_uuid})

    def _await(self, port: DiskPort, target: str, end: float) -> None:
        """Wait until a disk is built.

        :raises DiskNotBuilt:
        :raises MigrationAborted:
        """
        while True:
            found = port.state(target, INTERVAL)
            self._note(target, build_seconds=round(found.seconds, 1),
                       sources={each.name: each.bytes
                                for each in found.sources})
            if found.total:
                self.operation.show(report.Progress(
                    share=min(1.0, found.done / found.total) / 2,
                    seconds_left=None, at=time.time()))
            if found.state == 'done':
                return
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
        if self._port is None or not self.operation.disks:
            return
        if self.operation.outcome != 'completed':
            self._port.abort()
        self._port.forget()


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
