# SPDX-License-Identifier: Apache-2.0
"""Building the disks of a block migration before they are mirrored.

::

    for each disk, one after the other
      watch     the source's QEMU records writes; a sample of the disk
      decide    does it pay? (planner.disks)
      build     the destination's agent fills the file Nova has made there
                until it is done, or its time is over
    for each disk that is built, right before Nova calls libvirt
      check     is the file as the agent has left it?
      arm       the mirror that libvirt starts later copies the rest

A disk that is not built is released, and mirrored in the ordinary way.  If
something fails later it remains watched and not armed: then the mirror
copies everything, which is right whatever is in the file by then.  There is
no way back from armed to that, which is another reason to arm last.

A destination's agent that was restarted continues where its journal ends.
One that cannot be reached may write to the file after the mirror has begun,
and QEMU's locks would not prevent that.  So the migration is cancelled then.
"""

from collections.abc import Callable
import dataclasses
import time
import typing

from oslo_log import log as logging

from nova_dedup_migrate import errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import disks as planner_disks
from nova_dedup_migrate.planner import units
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.tasks import base
from nova_dedup_migrate.tasks import disk_port

LOG = logging.getLogger(__name__)

#: Seconds between two looks at a disk that is built.
INTERVAL = 1.0
#: Seconds in which a destination's agent that was killed has to be back,
#: and times that this may happen to one disk.
RESTART = 30.0
RESTARTS = 3
#: Seconds for what is in hand when the time of a disk is over: calls of
#: sources, the canary, the end of the writer.
GRACE = 60.0


class DiskNotBuilt(errors.DedupMigrateError):
    """A disk is mirrored in full."""

    template = '{reason}'


class NotEnded(errors.DedupMigrateError):
    """Likewise; the destination's agent may still be building it."""

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


@dataclasses.dataclass
class _Build:
    """A disk while it is built.

    :ivar number: how many were dealt with before it
    :ivar begun: by the clock
    :ivar end: likewise, when nothing more of it is to be begun
    :ivar proven: bytes of data that are at the destination; an agent that
        was restarted counts anew
    """

    target: str
    number: int
    watch: watch_objects.DedupWatchReply
    decision: planner_disks.Decision
    begun: float
    end: float
    proven: int = 0


class FillDisks(base.Task):
    """Have the destination build the disks; see above.

    The undo log has that QEMU watches disks.

    :param port: disk_port.DiskPort, None if disks are not to be built
    :param seconds: for all disks
    :param min_gain: share of the time that has to be saved
    :param always: build whatever is predicted, and however slow it is
    :param clock: seconds
    :param sleep: waits for seconds
    """

    def __init__(self, operation: operations.Operation,
                 port: disk_port.DiskPort | None, seconds: float = 3600.0,
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
        self._count = 0
        self._built: list[str] = []
        self._spare = planner_disks.LEAST
        #: whether the agent was stopped while it built a disk
        self._stopped = False

    @base.harmless('preparing the disks')
    def execute(self) -> None:
        if self._port is None:
            return
        targets = self._port.targets()
        if not targets:
            return
        self.operation.will(operations.UNDO_DISKS)
        self._count = len(targets)
        end = self._clock() + self._seconds
        for number, target in enumerate(targets):
            try:
                self._fill(self._port, target, number, end)
            except MigrationAborted:
                LOG.info('Live migration %s is aborted: its disks are not '
                         'built any further', self.operation.migration_uuid)
                return
            except NotStopped as error:
                self._failed(target, error)
                self._cancel()
                return
            except Exception as error:
                self._failed(target, error)
                self._release(self._port, target)
        self._arm(self._port)

    def _failed(self, target: str, error: Exception) -> None:
        self._note(target, reason=str(error))
        self.operation.warn('preparing disk %s' % target, error)

    @base.harmless('stopping to build disks')
    def revert(self, **kwargs: object) -> None:
        """Have both agents forget it; the undo log has QEMU's part."""
        if self._port is not None and self.operation.disks:
            forget(self._port)

    def _fill(self, port: disk_port.DiskPort, target: str, number: int,
              end: float) -> None:
        """Build a disk, if that pays and there is time.

        :raises DiskNotBuilt:
        :raises MigrationAborted:
        """
        self._check()
        if self._stopped:
            raise DiskNotBuilt(reason='the agent of host %s was stopped '
                               'while it built another disk'
                               % self.operation.destination)
        if self._clock() >= end:
            raise DiskNotBuilt(reason='disk_time, %s, was over before it '
                               'was begun' % units.duration(self._seconds))
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
        begun = self._clock()
        build = _Build(target, number, watch, decision, begun,
                       end if self._always else min(
                           end, begun + decision.longest + self._spare))
        try:
            self._build(port, build)
        except MigrationAborted:
            # Nothing is mirrored.
            port.abort()
            raise
        except (DiskNotBuilt, rpc_errors.AgentRefused):
            # It has ended, or was not begun.
            raise
        except BaseException:
            # Whose files are not checked any more after that.
            self._arm(port)
            self._stop(port, target)
            self._stopped = True
            raise
        finally:
            self._spare = max(0.0, self._spare - self._lost(build))
        self._built.append(target)

    def _arm(self, port: disk_port.DiskPort) -> None:
        """Arm what is built, if nobody has written to its file since."""
        while self._built:
            target = self._built.pop(0)
            try:
                found = port.state(target, 0.0)
                if found.state != 'done':
                    raise DiskNotBuilt(reason=found.reason)
                armed = port.arm(target)
            except Exception as error:
                self._failed(target, error)
                self._release(port, target)
                continue
            self._note(target, proven=armed.proven)
            if found.reason:
                self._note(target, reason='%s. %s of %s are proven; the rest '
                           'is mirrored' % (found.reason,
                                            units.size(armed.proven),
                                            units.size(armed.size)))
            LOG.info('Disk %(target)s of live migration %(migration)s: '
                     '%(proven)d of %(size)d bytes are at the destination',
                     {'target': target, 'proven': armed.proven,
                      'size': armed.size,
                      'migration': self.operation.migration_uuid})

    def _build(self, port: disk_port.DiskPort, build: _Build) -> None:
        """Have a disk built, by an agent that may be restarted meanwhile.

        :raises DiskNotBuilt: the agent does not build it any more
        :raises NotEnded: it may
        :raises MigrationAborted:
        """
        self._begin(port, build)
        for _ in range(RESTARTS):
            if self._await(port, build):
                return
            self._resume(port, build)
        if not self._await(port, build):
            raise NotEnded(
                reason='the agent of host %s was lost %d times'
                % (self.operation.destination, RESTARTS + 1))

    def _begin(self, port: disk_port.DiskPort, build: _Build) -> None:
        port.build(build.target, build.watch,
                   max(1.0, build.end - self._clock()))

    def _lost(self, build: _Build) -> float:
        """Return the seconds that a disk has taken in vain."""
        if self._always:
            return 0.0
        return build.decision.lost(self._clock() - build.begun, build.proven)

    def _resume(self, port: disk_port.DiskPort, build: _Build) -> None:
        """Have the destination's agent go on, as soon as it is back."""
        LOG.warning('The agent of %(host)s does not answer, or was '
                    'restarted, while it builds disk %(target)s of live '
                    'migration %(migration)s',
                    {'host': self.operation.destination,
                     'target': build.target,
                     'migration': self.operation.migration_uuid})
        patience = self._clock() + RESTART
        while True:
            self._check()
            try:
                return self._begin(port, build)
            except rpc_errors.AgentRefused:
                raise
            except rpc_errors.AgentUnavailable:
                if self._clock() > patience:
                    raise
            self._sleep(INTERVAL)

    def _stop(self, port: disk_port.DiskPort, target: str) -> None:
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

    def _await(self, port: disk_port.DiskPort, build: _Build) -> bool:
        """Wait until a disk is built.

        :returns: False: the agent does not answer, or knows nothing of it
        :raises DiskNotBuilt:
        :raises NotEnded:
        :raises MigrationAborted:
        """
        ending = False
        while True:
            try:
                found = port.state(build.target, INTERVAL)
                if found.state == 'unknown':
                    return False
                self._see(port, build, found)
                if (found.state == 'running' and not ending
                        and self._lost(build) > self._spare):
                    LOG.info('Disk %(target)s of live migration '
                             '%(migration)s is not built any further: '
                             'copying the rest is faster',
                             {'target': build.target,
                              'migration': self.operation.migration_uuid})
                    port.build(build.target, build.watch, 0.0)
                    ending = True
            except rpc_errors.AgentRefused:
                raise
            except rpc_errors.AgentUnavailable:
                return False
            if found.state == 'done':
                return True
            if found.state != 'running':
                raise DiskNotBuilt(reason=found.reason)
            self._check()
            if self._clock() > build.end + GRACE:
                raise NotEnded(reason='building it did not end in time, '
                               'after %s' % units.duration(
                                   self._clock() - build.begun))

    def _see(self, port: disk_port.DiskPort, build: _Build,
             found: disk_objects.DedupFillingReply) -> None:
        """Take note of how far a disk is."""
        sources = {each.name: each.bytes for each in found.sources}
        build.proven = max(build.proven, planner_disks.copied(sources))
        self._note(build.target, build_seconds=round(found.seconds, 1),
                   sources=sources)
        total = sum(disk.data for disk in self.operation.disks)
        left = sum(max(0, disk.data - planner_disks.copied(disk.sources))
                   for disk in self.operation.disks)
        if found.total:
            share = min(1.0, found.done / found.total)
            self.operation.show(report.Progress(
                share=(build.number + share) / self._count / 2,
                seconds_left=None, at=time.time(), disk_total=total,
                disk_remaining=left))
        port.show(total, left)

    def _release(self, port: disk_port.DiskPort, target: str) -> None:
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

    def __init__(self, operation: operations.Operation,
                 port: disk_port.DiskPort) -> None:
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

    :param port: disk_port.DiskPort or None
    """

    def __init__(self, operation: operations.Operation,
                 port: disk_port.DiskPort | None) -> None:
        super().__init__(operation)
        self._port = port

    @base.harmless('forgetting the disks that were built')
    def execute(self) -> None:
        if self._port is not None and self.operation.disks:
            forget(self._port)


def forget(port: disk_port.DiskPort) -> None:
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
