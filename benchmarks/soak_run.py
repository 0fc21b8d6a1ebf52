# SPDX-License-Identifier: Apache-2.0
"""One run of the soak: a guest, sent about, checked each time."""

import contextlib
import dataclasses
from pathlib import Path
import secrets
import time

from benchmarks import soak_case
from benchmarks import storage as storages
from guests.synthetic import channel
from guests.synthetic import disk
from guests.synthetic import workload
from nova_dedup_migrate.errors import DedupMigrateError
from nova_dedup_migrate.hypervisor import errors
from testkit import direct
from testkit import memory
from testkit import options
from testkit import spec
from testkit.guest import Migration

CHANNEL = 'workload'
#: Seconds after which a migration may take as much downtime and bandwidth
#: as it needs.
_PATIENCE_S = 20.0
_DEADLINE_S = 150.0


class Wrong(DedupMigrateError):
    """Memory differs, or the guest is not what it was."""

    template = '{reason}'


class SoakRun:
    """Runs a case once.

    :ivar hops: what became of each attempt, for people and the report
    """

    def __init__(
        self, case: soak_case.Case, directory: Path, tools: dict
    ) -> None:
        self.case = case
        self.hops: list[dict] = []
        self._directory = directory
        self._tools = tools
        self._number = 0
        self._talk: channel.GuestChannel | None = None
        self._guests: list[direct.DirectGuest] = []
        self._make_storage()
        binaries = ['patched', 'patched']
        if case.stock != 'none':
            binaries[case.stock == 'destination'] = 'stock'
        #: the next destination's spec is the second
        self._specs = [
            self._spec(self._tools[series][binary], args, disks)
            for series, binary, args, disks in zip(
                case.series,
                binaries,
                ((), self._storage.destination_args()),
                (self._source_disks, self._destination_disks),
                strict=True,
            )
        ]
        self._source = self._guest(self._specs[0])

    def close(self) -> None:
        if self._talk is not None:
            self._talk.close()
        for guest in self._guests:
            guest.destroy()

    # What there is

    def _make_storage(self) -> None:
        case = self.case
        images = [
            disk.make_disk(
                self._directory / 'disk',
                mib=case.cache // case.disks,
                seed=1 + number,
                format=case.format,
                layout=case.layout,
                qemu_img=self._tools['img'],
                name=f'data{number}',
            )
            for number in range(case.disks)
        ]
        self._storage = storages.KINDS[case.storage](
            images[0],
            case.device,
            self._directory / 'own-copy',
            case.storage_rate,
        )
        first = self._storage.source_disk()
        second = self._storage.destination_disk()
        if case.iothread:
            first, second = (
                dataclasses.replace(one, iothread=True)
                for one in (first, second)
            )
        more = tuple(
            spec.Disk(
                path=one.path,
                format=one.format,
                device=case.device,
                id=f'disk{number}',
            )
            for number, one in enumerate(images)
            if number
        )
        self._source_disks = (first, *more)
        self._destination_disks = (second, *more)
        if case.stale_disk:
            # from before the guest started; as if it were the shared one
            stale = images[0].own_copy(self._directory / 'stale')
            self._destination_disks = (
                dataclasses.replace(first, path=stale.path),
                *more,
            )

    def _spec(self, binary: Path, args: tuple, disks: tuple) -> spec.GuestSpec:
        case = self.case
        work = workload.Workload(
            mode=case.mode,
            cache=case.cache,
            anon=case.anon,
            rate=case.rate,
            readrate=20_000,
            disks=case.disks,
        )
        return spec.GuestSpec(
            binary=binary,
            name='soak',
            machine=soak_case.MACHINE,
            memory_mib=case.memory,
            kernel=self._tools['image'].kernel,
            initrd=self._tools['image'].initrd,
            append=work.append,
            disks=disks,
            channels=(spec.Channel(CHANNEL, 'uart', 'socket'),),
            extra_args=('-no-reboot', *args),
        )

    def _guest(self, what: spec.GuestSpec, inject: str = ''):
        self._number += 1
        if inject:
            what = dataclasses.replace(
                what, env={'QEMU_DEDUP_INJECT': inject}
            )
        guest = direct.DirectGuest(
            what, self._directory / f'qemu{self._number}')
        self._guests.append(guest)
        return guest

    # What is done

    def run(self) -> None:
        """Do it all.

        :raises Wrong, HypervisorError, GuestError: it went wrong
        """
        self._boot()
        for attempt in self.case.attempts:
            hop: dict = {'arrived': False, 'compared': 0}
            self.hops.append(hop)
            if not self._attempt(attempt, hop):
                self._verify('')
                continue
            if self.case.stale_disk:
                # it must not run: its disk is not the one it left
                return
            self._verify('anon')
        self._talk.command('stop')
        self._verify('')

    def _boot(self) -> None:
        self._source.start(paused=True)
        with contextlib.suppress(errors.DedupNotSupported):
            self._source.track_dedup()
        destination = self._guest(
            self._specs[1], self._inject(1, self.case.attempts[0].inject)
        )
        self._storage.connect(self._source, destination)
        self._next = destination
        self._listen(self._source)
        self._source.cont()
        self._talk.wait_ready()
        self._talk.wait_report()

    def _inject(self, side: int, inject: str) -> str:
        stock = self._specs[side].binary in (
            self._tools[series]['stock'] for series in soak_case.SERIES
        )
        further = self._tools['inject']
        return '' if stock else ','.join(filter(None, (inject, further)))

    def _listen(self, where: direct.DirectGuest) -> None:
        if self._talk is not None:
            self._talk.close()
        self._talk = channel.GuestChannel(where.channel(CHANNEL))

    def _verify(self, what: str) -> None:
        reply = self._talk.verify(what)
        if reply.get('errors') != 0:
            raise Wrong(reason='the guest found: %s' % reply.get('error'))

    def _options(self, attempt: soak_case.Attempt) -> options.MigrationOptions:
        rate = attempt.link * 1_000_000 or None
        return options.MigrationOptions(
            max_bandwidth=rate,
            max_postcopy_bandwidth=rate,
            downtime_limit_ms=attempt.downtime_ms,
            multifd_channels=attempt.multifd,
            multifd_compression=attempt.compression,
            xbzrle=attempt.xbzrle,
            postcopy=attempt.postcopy_after is not None,
            postcopy_preempt=attempt.preempt,
            auto_converge=attempt.auto_converge,
            pause_before_switchover=attempt.hold > 0
            or self.case.storage == 'own',
            paused=True,
            tls=self._tls() if attempt.tls else None,
            parameters={
                'zero-page-detection': 'legacy'
                if attempt.legacy_zero
                else 'multifd'
            },
        )

    def _tls(self) -> options.TlsCredentials:
        directory = self._directory / 'tls'
        directory.mkdir(exist_ok=True)
        (directory / 'keys.psk').write_text(f'qemu:{secrets.token_hex(32)}\n')
        return options.TlsCredentials(directory, directory, 'psk')

    def _attempt(self, attempt: soak_case.Attempt, hop: dict) -> bool:
        """Migrate; return whether the guest has arrived."""
        source = self._source
        destination = self._next or self._guest(
            self._specs[1], self._inject(1, attempt.inject)
        )
        self._next = None
        armed = False
        if attempt.armed:
            with contextlib.suppress(errors.DedupNotSupported):
                source.arm_dedup(
                    copy=self._storage.copy,
                    resend=attempt.resend,
                    compression=None
                    if attempt.threads is None
                    else {'threads': attempt.threads}
                    if attempt.threads
                    else {},
                    lazy=attempt.lazy,
                    defer_redirtied=attempt.defer,
                )
                armed = True
        migration = source.migrate(destination, self._options(attempt))
        try:
            last = self._follow(migration, attempt, destination)
        except errors.MigrationFailed as error:
            if not attempt.kill:
                raise
            hop['ended'] = str(error)[:80]
            last = None
        if armed:
            self._note(hop, source)
        if last is None or last.status != 'completed':
            destination.destroy()
            self._wait_running(source)
            return False
        hop['arrived'] = True
        hop['seconds'] = round((last.total_time_ms or 0) / 1000, 1)
        hop['downtime_ms'] = last.downtime_ms
        with contextlib.suppress(errors.DedupNotSupported):
            figures = destination.dedup_statistics().incoming
            hop['lazy_pages'] = figures.lazy_pages if figures else 0
        self._compare(source, destination, hop)
        if self.case.stale_disk:
            return True
        self._storage.arrived(destination)
        self._listen(destination)
        destination.cont()
        source.destroy()
        self._source = destination
        self._specs.reverse()
        return True

    def _note(self, hop: dict, source: direct.DirectGuest) -> None:
        figures = source.dedup_statistics().source
        hop.update(dataclasses.asdict(figures))

    def _follow(
        self,
        migration: Migration,
        attempt: soak_case.Attempt,
        destination: direct.DirectGuest,
    ):
        """Do to it what the attempt says, until its end."""
        begun = time.monotonic()
        events = {
            'cancel': attempt.cancel_after,
            'postcopy': attempt.postcopy_after,
            'disarm': attempt.disarm_after,
            'patience': _PATIENCE_S,
        }
        while True:
            now = migration.progress()
            if now.finished:
                # _settle belongs to wait(), which raises for a failure
                if now.status == 'cancelled':
                    return now
                return migration.wait(60)
            elapsed = time.monotonic() - begun
            if elapsed > _DEADLINE_S:
                raise Wrong(reason=f'it did not end: {now.status}')
            if now.status == 'pre-switchover':
                time.sleep(attempt.hold)
                self._storage.switch_over(self._source, 30.0)
                migration.proceed()
                return migration.wait(60)
            due = [n for n, at in events.items() if at is not None
                   and elapsed >= at]
            for name in due:
                if name == 'postcopy' and now.status != 'active':
                    continue
                events[name] = None
                last = self._event(name, migration, attempt, destination)
                if last is not None:
                    return last
            time.sleep(0.01)

    def _event(self, name, migration, attempt, destination):
        if name == 'cancel':
            if attempt.kill:
                destination.destroy()
                return migration.wait(60)
            return migration.cancel()
        if name == 'postcopy':
            migration.start_postcopy()
            return migration.wait(_DEADLINE_S)
        if name == 'disarm':
            with contextlib.suppress(errors.DedupNotSupported):
                self._source.disarm_dedup()
        else:
            migration.set_rate(None)
            self._source.qmp(
                'migrate-set-parameters', **{'downtime-limit': 300_000}
            )
        return None

    @staticmethod
    def _wait_running(source: direct.DirectGuest) -> None:
        deadline = time.monotonic() + 30
        while source.run_state() != 'running':
            if time.monotonic() > deadline:
                raise Wrong(reason='after it was given up the guest is '
                            + source.run_state())
            time.sleep(0.01)

    def _compare(self, source, destination, hop: dict) -> None:
        there = destination.save_memory(self._directory / 'ram-destination')
        here = source.save_memory(self._directory / 'ram-source')
        result = memory.compare(here, there)
        hop['compared'] = result.pages
        if not result.identical:
            memory.keep(
                self._directory / 'differing', result.addresses[:8],
                source=here, destination=there,
            )
            raise Wrong(
                reason='%d pages differ, the first at %s'
                % (
                    result.differing,
                    ' '.join(map(hex, result.addresses[:8])),
                )
            )


def remove_large(directory: Path) -> None:
    """Logs stay, images go."""
    for pattern in ('ram-*/*', 'disk/*', 'own-copy/*', 'stale/*'):
        for path in directory.glob(pattern):
            path.unlink()
    for name in ('ram-source', 'ram-destination', 'disk', 'own-copy', 'stale'):
        with contextlib.suppress(OSError):
            (directory / name).rmdir()


def words(hop: dict) -> str:
    """A hop in short."""
    if not hop['arrived']:
        return 'given-up'
    if 'record_pages' not in hop:
        return 'plain:%.1fs' % hop.get('seconds', 0)
    return '%.1fs:%d/%d storage,%d resent,%d final,%d nack%s' % (
        hop.get('seconds', 0),
        hop['storage_pages'],
        hop['record_pages'],
        hop['resent_pages'],
        hop['final_pages'],
        hop['nack_digest'] + hop['nack_io'],
        ' (%s)' % hop['reason'] if hop['reason'] else '',
    )
