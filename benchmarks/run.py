# SPDX-License-Identifier: Apache-2.0
"""One measured migration of the test guest.

start source (tracking on, if dedup) -> guest fills its memory and
works -> migrate -> source stopped, destination still paused: compare
all memory -> let the guest run -> have it verify everything
"""

from collections.abc import Callable
import contextlib
import dataclasses
from pathlib import Path
import time

from benchmarks import content as contents
from benchmarks import options as demo_options
from benchmarks import relay
from benchmarks import storage
from guests.errors import GuestFailed
from guests.synthetic import channel
from guests.synthetic import disk
from guests.synthetic import image
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.planner.pacing import AdaptiveRate
from testkit import direct
from testkit import memory
from testkit import spec
from testkit.guest import Migration

CHANNEL = 'workload'
_WATCH_S = 0.25
#: Often enough to see each round of an adaptive rate begin.
_PACED_WATCH_S = 0.05
_POSTCOPY_AFTER_S = 2.0
#: The longest downtime that QEMU can be told to accept.
_ANY_MS = 2_000_000


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to run.

    :param directory: gets logs, disks and memory images
    :param qemu_img: makes the disks
    :param records: whether pages are left out if dedup is true
    :param analyse: find out what memory consists of, which takes seconds
    :param wire: the link's, if something else uses it, too
    :param ready: called with the source when its guest works, before it
        migrates
    """

    name: str
    source_binary: Path
    destination_binary: Path
    qemu_img: Path
    dedup: bool
    image: image.GuestImage
    options: demo_options.Options
    directory: Path
    analyse: bool = True
    records: bool = True
    wire: relay.Wire | None = None
    ready: Callable[[direct.DirectGuest], object] = lambda _: None


@dataclasses.dataclass(frozen=True)
class Sample:
    """A moment of a migration: seconds since it began, bytes, pages."""

    time_s: float
    link_bytes: int
    peer: int
    zero: int
    storage: int
    rounds: int
    status: str


@dataclasses.dataclass
class Result:
    """Outcome of a run; None: could not be found out.

    :ivar link_bytes: from source to destination
    :ivar back_bytes: the other way, None without a relay
    :ivar qemu_bytes: what QEMU says it sent
    :ivar reason: why a dedup run was, or became, an ordinary migration
    :ivar guest_error: the first mismatch the guest found
    """

    name: str
    total_time_s: float | None = None
    downtime_ms: int | None = None
    link_bytes: int = 0
    back_bytes: int | None = None
    qemu_bytes: int = 0
    rounds: int = 0
    pages: progress.PagePaths = progress.PagePaths()
    digest_failures: int = 0
    ram_identical: bool | None = None
    differing_pages: int | None = None
    guest_verified: bool = False
    guest_error: str | None = None
    converged: bool = False
    reason: str | None = None
    source_statistics: dict | None = None
    incoming_statistics: dict | None = None
    content: contents.Content | None = None
    guest: dict = dataclasses.field(default_factory=dict)
    samples: list[Sample] = dataclasses.field(default_factory=list)


Observer = Callable[[float, int, progress.Progress], None]


class Run:
    """Runs a Plan once.

    :param observe: called with (seconds, bytes on the link, Progress)
    :param note: called with a sentence about what happens
    """

    def __init__(
        self,
        plan: Plan,
        observe: Observer = lambda *_: None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._plan = plan
        self._options = plan.options
        self._observe = observe
        self._note = note
        self._result = Result(plan.name)
        self._storage: storage.Storage
        self._source: direct.DirectGuest
        self._destination: direct.DirectGuest

    def run(self) -> Result:
        """Do it.

        :raises GuestError, HypervisorError: it could not be done
        """
        self._build()
        with self._source, self._destination:
            try:
                self._boot()
                self._plan.ready(self._source)
                self._migrate()
            finally:
                self._remove_images()
        return self._result

    def _build(self) -> None:
        plan, options = self._plan, self._options
        work = options.guest_workload()
        data = disk.make_disk(
            plan.directory / 'disk',
            mib=max(work.cache, 1),
            format=options.format,
            layout=options.layout,
            qemu_img=plan.qemu_img,
        )
        self._storage = storage.KINDS[options.storage](
            data,
            options.device,
            plan.directory / 'own-copy',
            int(options.storage_rate * 1e6),
        )
        source = spec.GuestSpec(
            binary=plan.source_binary,
            name='demo',
            memory_mib=options.memory,
            accel=options.accel,
            # A paravirtual clock is a page the host's kernel writes to,
            # which would differ.
            cpu='qemu64,kvm=off' if options.accel == 'kvm' else None,
            kernel=plan.image.kernel,
            initrd=plan.image.initrd,
            append=work.append,
            disks=(self._storage.source_disk(),),
            channels=(spec.Channel(CHANNEL, 'uart', 'socket'),),
            # A guest that panics at boot ends instead of starting over.
            extra_args=('-no-reboot',),
        )
        destination = dataclasses.replace(
            source,
            binary=plan.destination_binary,
            disks=(self._storage.destination_disk(),),
            extra_args=(
                *source.extra_args,
                *self._storage.destination_args(),
            ),
        )
        kind = relay.RelayedGuest if options.relay else direct.DirectGuest
        self._source = direct.DirectGuest(
            source, plan.directory / 'source', plan.name + ' source'
        )
        self._destination = kind(
            destination,
            plan.directory / 'destination',
            plan.name + ' destination',
        )
        if options.relay:
            rate = options.wire_bytes_per_s
            self._destination.wire = plan.wire or (
                relay.Wire(rate) if rate else None)
            self._destination.delay = options.delay_s

    def _boot(self) -> None:
        source = self._source
        source.start(paused=True)
        if self._plan.dedup and self._plan.records:
            try:
                source.track_dedup()
            except errors.DedupNotSupported as error:
                self._result.reason = str(error)
        self._storage.connect(source, self._destination)
        with self._talk(source) as guest:
            source.cont()
            try:
                self._result.guest = guest.wait_ready()
            except GuestFailed as error:
                raise GuestFailed(
                    f'{error}; its console is in {source.console}'
                ) from error
            guest.wait_report()

    def _migrate(self) -> None:
        source = self._source
        armed = self._plan.dedup and self._result.reason is None
        if armed:
            source.arm_dedup(
                copy=self._storage.copy,
                records=self._plan.records,
                compression=self._options.qmp_compression,
                defer_redirtied=self._options.defer,
            )
        migration = source.migrate(
            self._destination, self._options.migration()
        )
        try:
            last = self._watch(migration)
        except errors.MigrationFailed as error:
            self._result.reason = str(error)
            last = migration.progress()
        self._take(last)
        if last.status == 'completed':
            self._result.converged = True
            self._compare_memory()
            self._storage.arrived(self._destination)
            self._collect_incoming()
            with self._talk(self._destination) as guest:
                self._destination.cont()
                self._verify(guest)
        else:
            # The guest never left; it has to be all right at home.
            self._storage.disconnect(source)
            with self._talk(source) as guest:
                self._verify(guest)

    def _talk(self, where: direct.DirectGuest) -> channel.GuestChannel:
        return channel.GuestChannel(where.channel(CHANNEL))

    def _link_bytes(self, now: progress.Progress) -> int:
        link = getattr(self._destination, 'relay', None)
        return link.forward_bytes if link else now.transferred_bytes

    def _watch(self, migration: Migration) -> progress.Progress:
        """Follow it to its end, doing what the options ask for."""
        begun = time.monotonic()
        postcopy = self._options.postcopy
        pacing = self._options.pacing
        cancelled = False
        while True:
            for now in migration.watch(_PACED_WATCH_S if pacing else _WATCH_S):
                elapsed = time.monotonic() - begun
                self._sample(elapsed, now)
                if now.status != 'active':
                    continue
                if pacing is not None:
                    self._pace(migration, pacing, now)
                if postcopy and elapsed > _POSTCOPY_AFTER_S:
                    postcopy = False
                    migration.start_postcopy()
                elif elapsed > self._options.timeout and not cancelled:
                    cancelled = True
                    self._note(f'cancelled after {elapsed:.0f} s')
                    now = migration.cancel()
                    break
            if now.status != 'pre-switchover':
                return now
            self._storage.switch_over(self._source, 30.0)
            migration.proceed()

    def _pace(
        self,
        migration: Migration,
        pacing: AdaptiveRate,
        now: progress.Progress,
    ) -> None:
        """Set the rate of a round that has just begun."""
        step = pacing.update(now.rounds, now.dirty_pages_per_s * now.page_size)
        if step is None:
            return
        migration.set_rate(step.rate)
        if step.last:
            # Whatever the downtime: QEMU may switch over now.
            self._source.qmp(
                'migrate-set-parameters', **{'downtime-limit': _ANY_MS}
            )

    def _sample(self, elapsed: float, now: progress.Progress) -> None:
        link = self._link_bytes(now)
        if now.status in ('cancelling', 'cancelled', 'failed'):
            return
        self._result.samples.append(
            Sample(
                round(elapsed, 3),
                link,
                now.pages.peer,
                now.pages.zero,
                now.pages.storage,
                now.rounds,
                now.status,
            )
        )
        self._observe(elapsed, link, now)

    def _take(self, last: progress.Progress) -> None:
        result = self._result
        if last.total_time_ms is not None:
            result.total_time_s = last.total_time_ms / 1000
        elif result.samples:
            result.total_time_s = result.samples[-1].time_s
        result.downtime_ms = last.downtime_ms
        result.link_bytes = self._link_bytes(last)
        link = getattr(self._destination, 'relay', None)
        result.back_bytes = link.back_bytes if link else None
        result.qemu_bytes = last.transferred_bytes
        result.rounds = last.rounds
        result.pages = last.pages
        if last.status != 'completed' and result.samples:
            # QEMU has forgotten the figures of what was given up.
            end = result.samples[-1]
            result.rounds = end.rounds
            result.pages = progress.PagePaths(
                end.peer, end.zero, end.storage
            )
        if last.dedup is not None and last.dedup.source is not None:
            figures = last.dedup.source
            result.digest_failures = figures.nack_digest
            result.reason = result.reason or figures.reason
            result.source_statistics = dataclasses.asdict(figures)

    def _collect_incoming(self) -> None:
        if self._result.source_statistics is None:
            return
        with contextlib.suppress(errors.DedupNotSupported):
            incoming = self._destination.dedup_statistics().incoming
            if incoming is not None:
                self._result.incoming_statistics = dataclasses.asdict(incoming)

    def _compare_memory(self) -> None:
        self._note('comparing all memory of source and destination')
        directory = self._plan.directory
        there = self._destination.save_memory(directory / 'ram-destination')
        here = self._source.save_memory(directory / 'ram-source')
        comparison = memory.compare(here, there)
        self._result.ram_identical = comparison.identical
        self._result.differing_pages = comparison.differing
        if not self._plan.analyse:
            return
        data = self._storage.disk
        images = [data.path] + ([data.base] if data.base else [])
        self._result.content = contents.analyse(here, images, data.offset)

    def _verify(self, guest: channel.GuestChannel) -> None:
        self._note('letting the guest verify its memory and its files')
        try:
            guest.command('stop')
            reply = guest.verify()
        except GuestFailed as error:
            self._result.guest_error = str(error)
            return
        self._result.guest_verified = reply.get('errors') == 0
        self._result.guest_error = reply.get('error') or None

    def _remove_images(self) -> None:
        """Logs stay, what is large goes."""
        for pattern in ('ram-*/*', 'disk/*', 'own-copy/*'):
            for path in self._plan.directory.glob(pattern):
                path.unlink()
        for name in ('ram-source', 'ram-destination', 'disk', 'own-copy'):
            with contextlib.suppress(OSError):
                (self._plan.directory / name).rmdir()
