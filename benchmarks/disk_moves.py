# SPDX-License-Identifier: Apache-2.0
"""Disks of running guests move over a link, one or several at once.

Baselines, by QEMU alone:

stock          a mirror of the whole disk
full-mig       the source sends the base image, the snapshot, and by a mirror
               what was written since, as FullMig of the third paper
selective-mig  base image and snapshot are copied from the backup server, which
               is on the destination's side, and what was written since is
               mirrored, as SelectiveMig

What the destination builds before an ordinary mirror:

base           it has the image that the disk was made of
snapshot       it has a snapshot of the disk as well
neighbour      another host of its site has both
kept           it has a copy from before, which is compared and kept
prepared       it has a replica, and the source a record of the writes since

All that source and destination send each other for the disk passes the link.

A load requests I/O of each disk meanwhile, and before: the share of its
requests that it gets through is what the guest's I/O is worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent import futures
import contextlib
import dataclasses
import os
from pathlib import Path
import resource
import statistics
import time

from benchmarks import disk_agents
from benchmarks import disk_guest
from benchmarks import volume_load
from benchmarks import volume_servers
from guests import cache
from nova_dedup_migrate.hypervisor import latency
from nova_dedup_migrate.planner import disks as planner
from testkit import qemus

STOCK, FULL, SELECTIVE = BASELINES = ('stock', 'full-mig', 'selective-mig')
BUILT = ('base', 'snapshot', 'neighbour', 'kept', 'prepared')
VARIANTS = BASELINES + BUILT
_LAYERED = (FULL, SELECTIVE)
#: Who has the base image, and who the snapshot as well.
_HOLDS = {'base': disk_agents.DESTINATION,
          'snapshot': disk_agents.DESTINATION,
          'neighbour': disk_agents.NEIGHBOUR}
#: Seconds of the guest's I/O before, and of the load's first requests.
_BEFORE, _FIRST = 4.0, 1.0
#: Bytes of a load's request, requests a second, and of how many one is a
#: write: about as much as the guest itself writes.
_LOAD = 16384, 100, 10
_TICKS = os.sysconf('SC_CLK_TCK')


@dataclasses.dataclass
class Outcome:
    """What one run came to, of all of its guests; bytes, seconds.

    :ivar mirrored: on the link by QEMU, to targets
    :ivar manifest: on the link from the source's agent
    :ivar copied: from the backup server
    :ivar written: in blocks that guests have written to since the snapshot
    :ivar build: until the last disk was built, or lower layers were there
    :ivar total: until the last mirror was ready
    :ivar sources: bytes proven, by source
    :ivar latency: of the guests' requests, before and meanwhile
    :ivar requests: a second that loads got through, against those before
    :ivar downtime: the longest from a guest's stop until its target has
        everything
    :ivar processor: of the QEMUs at the source, beyond what they took
        before; of those at the destination; of the agents
    :ivar decisions: of the planner, one for each guest; it is built anyway
    """

    mirrored: int = 0
    manifest: int = 0
    copied: int = 0
    written: int = 0
    build: float = 0.0
    total: float = 0.0
    identical: bool = False
    reason: str = ''
    sources: dict[str, int] = dataclasses.field(default_factory=dict)
    latency: tuple[float | None, float | None] = (None, None)
    requests: float = 0.0
    downtime: float = 0.0
    processor: tuple[float, float, float] = (0.0, 0.0, 0.0)
    decisions: tuple[planner.Decision, ...] = ()

    @property
    def link(self) -> int:
        return self.mirrored + self.manifest


@dataclasses.dataclass(frozen=True)
class _Moved:
    """What one guest of them came to, as in Outcome."""

    build: float
    total: float
    copied: int
    written: int
    sources: dict[str, int]
    reason: str
    latency: tuple[float | None, float | None]
    requests: float
    downtime: float
    decision: planner.Decision | None


class _Usage:
    """Processor time from now on."""

    def __init__(self, guests: Sequence[disk_guest.Guest]) -> None:
        self._guests = guests
        self._begun = time.monotonic(), self._sources(), _own()

    def _sources(self) -> float:
        return sum(_of_process(one.source.pid) for one in self._guests)

    def rate(self) -> float:
        """Return seconds a second of the QEMUs at the source."""
        begun, sources, _ = self._begun
        return (self._sources() - sources) / (time.monotonic() - begun)

    def seconds(self, usual: float, others: float
                ) -> tuple[float, float, float]:
        """Return it of the sources, the destinations, and the agents.

        :param usual: rate() of the sources before
        :param others: seconds of children that are none of them
        """
        begun, sources, own = self._begun
        return (self._sources() - sources
                - usual * (time.monotonic() - begun),
                sum(_of_process(one.destination.pid)
                    for one in self._guests), _own() - own - others)


def _of_process(pid: int) -> float:
    """Return the processor seconds of a process and its threads."""
    fields = Path('/proc/%d/stat' % pid).read_text().rpartition(')')[2]
    return sum(map(int, fields.split()[11:13])) / _TICKS


def _own() -> float:
    """Return those of this process and of children that have ended."""
    return sum(usage.ru_utime + usage.ru_stime for usage in map(
        resource.getrusage, (resource.RUSAGE_SELF,
                             resource.RUSAGE_CHILDREN)))


class Cell:
    """One run.

    :param mib: of files on a disk
    :param rate: bytes/s of the link, which the guests share
    :param rewrite: MiB that differ from the image when it begins
    :param directory: empty; must be on a file system with O_DIRECT
    :param guests: that move at once
    :param storage: bytes/s of the storage of their disks, all together
    """

    def __init__(self, variant: str, mib: int, rate: int, rewrite: int,
                 directory: Path, guests: int = 1,
                 storage: int = 100_000_000) -> None:
        self._variant = variant
        self._mib = mib
        self._rate = rate
        self._rewrite = rewrite
        self._directory = directory
        self._count = guests
        self._storage = storage
        self._binary = qemus.find('patched')

    def run(self) -> Outcome:
        with contextlib.ExitStack() as stack:
            # Forks, so before there are threads.
            self._link = volume_servers.Link(self._rate)
            stack.callback(self._link.stop)
            guests = [disk_guest.Guest(
                self._binary, number, self._mib, self._variant in _LAYERED,
                self._directory / ('guest%d' % number))
                for number in range(self._count)]
            self._loads = [volume_load.Load(volume_load.guest(
                one.monitor, _LOAD[0], one.size, one.places()), *_LOAD,
                waits=True) for one in guests]
            for load in self._loads:
                stack.callback(load.kill)
            storage = volume_servers.Storage(
                qemus.tool(self._binary, 'qemu-storage-daemon'),
                self._directory, {
                    name: path for one in guests
                    for name, path in one.exports().items()}, self._storage)
            stack.callback(storage.stop)
            for one in guests:
                one.prepare(storage.address)
                stack.enter_context(one.source)
                stack.enter_context(one.destination)
            self._agents = disk_agents.Agents(
                self._binary, self._directory, guests, self._link)
            stack.callback(self._agents.stop)
            for one in guests:
                one.boot(self._rewrite)
            for one in guests:
                self._hold(one)
            outcome = self._move(guests)
            for one in guests:
                one.quit()
        outcome.identical = all(one.equal() for one in guests)
        return outcome

    def _hold(self, guest: disk_guest.Guest) -> None:
        """Bring everybody into the state that the variant begins with."""
        backup = guest.directory / 'snapshot.img'
        if self._variant in _LAYERED:
            guest.snapshot({'old': backup})
            return
        top = disk_guest.TOP
        copies = {}
        if self._variant == 'kept':
            copies[top] = guest.targets[top]
        elif self._variant in ('snapshot', 'neighbour'):
            copies[top] = backup
        elif self._variant == 'prepared':
            # So the replica is of one moment, as the other copies are.
            guest.source.pause()
            self._agents.prepare(guest)
        guest.snapshot(copies)
        if self._variant == 'kept':
            self._agents.hold(disk_agents.KEPT, guest.targets[top])
        if self._variant in _HOLDS:
            host = _HOLDS[self._variant]
            self._agents.hold(host, guest.base)
            if backup in copies.values():
                self._agents.hold(host, backup)

    def _move(self, guests: Sequence[disk_guest.Guest]) -> Outcome:
        """Move all at once."""
        for load in self._loads:
            load.begin()
        time.sleep(_FIRST)
        measured = [latency.Latency(one.source) for one in guests]
        first = [load.count() for load in self._loads]
        written = [one.write_bytes() for one in guests]
        usage = _Usage(guests)
        time.sleep(_BEFORE)
        usual = usage.rate()
        rates = [(one.write_bytes() - bytes_) / _BEFORE
                 for one, bytes_ in zip(guests, written, strict=True)]
        counts = [load.count() for load in self._loads]
        before = [one() for one in measured]
        carried = self._link.carried()
        usage = _Usage(guests)
        begun = time.monotonic()

        def work(number: int) -> _Moved:
            guest, load = guests[number], self._loads[number]
            copied, sources, reason, decision = (
                self._layers(guest) if self._variant in _LAYERED
                else self._build(guest, rates[number]))
            build = time.monotonic() - begun
            guest.open_target(disk_guest.TOP)
            guest.mirror()
            total = time.monotonic() - begun
            meanwhile = measured[number]()
            requests = volume_load.share(
                (first[number], counts[number]),
                (counts[number], load.count()))
            # Its requests do not stop with the guest.
            load.stop()
            downtime = guest.end()
            reasons = [reason, *(watch.reason or '' for watch
                                 in guest.source.disk_watches())]
            return _Moved(build, total, copied, guest.written(), sources,
                          '; '.join(filter(None, reasons)),
                          (before[number], meanwhile), requests, downtime,
                          decision)

        with futures.ThreadPoolExecutor(len(guests)) as pool:
            moved = list(pool.map(work, range(len(guests))))
        mirrored, manifest = (after - first for first, after in zip(
            carried, self._link.carried(), strict=True))
        outcome = _sum(moved, mirrored, manifest)
        outcome.processor = usage.seconds(usual, sum(
            load.processor for load in self._loads))
        return outcome

    def _build(self, guest: disk_guest.Guest, write_rate: float
               ) -> tuple[int, dict[str, int], str, planner.Decision | None]:
        """Build the disk.

        :returns: bytes copied, those by source, why it is not built, what
            the planner decides
        """
        guest.make_targets()
        sources: dict[str, int] = {}
        reason, decision = '', None
        if self._variant != STOCK:
            sources, reason, decision = self._agents.build(
                guest, self._rate, write_rate, self._variant == 'kept')
        guest.start_destination(self._link)
        return 0, sources, reason, decision

    def _layers(self, guest: disk_guest.Guest
                ) -> tuple[int, dict[str, int], str, None]:
        """Bring the layers below the top one to the destination."""
        copied = 0
        if self._variant == SELECTIVE:
            for layer, path in (('base', guest.base), (
                    'old', guest.directory / 'snapshot.img')):
                cache.copy(path, guest.targets[layer])
                copied += guest.targets[layer].stat().st_blocks * 512
        guest.make_targets()
        guest.start_destination(self._link)
        for layer in guest.layers[:-1]:
            guest.open_target(layer)
            if self._variant == FULL:
                guest.send(layer)
        return copied, {}, '', None


def _sum(moved: Sequence[_Moved], mirrored: int, manifest: int) -> Outcome:
    """Return the Outcome of guests that have moved at once."""
    sources: dict[str, int] = {}
    for one in moved:
        for name, count in one.sources.items():
            sources[name] = sources.get(name, 0) + count
    before, meanwhile = (
        statistics.fmean(known) if (known := [
            one.latency[when] for one in moved
            if one.latency[when] is not None]) else None for when in (0, 1))
    return Outcome(
        mirrored=mirrored, manifest=manifest,
        copied=sum(one.copied for one in moved),
        written=sum(one.written for one in moved),
        build=max(one.build for one in moved),
        total=max(one.total for one in moved),
        reason='; '.join(filter(None, (one.reason for one in moved))),
        sources=sources, latency=(before, meanwhile),
        requests=statistics.fmean(one.requests for one in moved),
        downtime=max(one.downtime for one in moved),
        decisions=tuple(one.decision for one in moved
                        if one.decision is not None))
