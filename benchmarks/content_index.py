# SPDX-License-Identifier: Apache-2.0
"""make bench-content-index: pages found by content, beside other hints.

A guest fills its page cache. Its QEMU then gets hints from three sources, one
after the other: the I/O that was recorded from the beginning, the list of the
guest's lister, and the content index, which has nothing but memory and disks.
What each has is compared with the disk by QEMU, page by page, and with all
pages of which the disk holds the bytes, whoever knows.
"""

import argparse
import contextlib
import dataclasses
import json
import os
from pathlib import Path
import sys
import tempfile
import time

import numpy

from benchmarks import content
from benchmarks import rst
from guests.errors import GuestError
from guests.lister import rig
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.pagecache import mapformat
from testkit import direct
from testkit import qemus
from testkit import results
from testkit import spec

NAME = 'content-index'
TOP = Path(__file__).parents[1]
#: Of the pages that the disk holds, those the index has to find.
TARGET = 0.95
#: MiB for each GiB of memory, at most.
TARGET_MIB = 4.1
_GIB = 1 << 30
_SAMPLE = 4096
_WAIT_S = 1800.0


@dataclasses.dataclass(frozen=True)
class Case:
    """What the guest has in its page cache.

    :ivar rounds: how often files are used; see benchmarks.lister
    """

    system: str
    kib: int
    rounds: int = 0

    @property
    def name(self) -> str:
        text = f'{self.system}, files of {self.kib} KiB'
        return text + (', in use' if self.rounds else '')


CASES = (Case('ext4', 300), Case('ext4', 300, 8), Case('xfs', 300),
         Case('btrfs', 300))


@dataclasses.dataclass(frozen=True)
class Found:
    """Pages with a right hint, by source; the rest is of the index.

    :ivar duplicate: pages of memory that the disk holds
    :ivar nonzero: pages of memory that are not zero
    :ivar lister: None if the lister has listed nothing
    """

    nonzero: int
    duplicate: int
    tracking: int
    lister: int | None
    index: int
    disk_bytes: int
    read_bytes: int
    memory_bytes: int
    memory: int
    seconds: float

    def share(self, pages: int | None) -> float:
        return (pages or 0) / self.duplicate if self.duplicate else 0.0

    @property
    def per_gib(self) -> float:
        """Seconds for a GiB that was read."""
        return self.seconds * _GIB / self.read_bytes if self.read_bytes else 0

    @property
    def mib_per_gib(self) -> float:
        """MiB that it took for each GiB of memory."""
        return self.memory_bytes / self.memory * 1024


def _right(guest: rig.Guest) -> int:
    """Return the pages whose hint holds, by a sample of them."""
    pages = 0.0
    for disk in guest.guest.sample_hints(_SAMPLE):
        pages += disk.pages * disk.valid / max(1, disk.sampled)
    return round(pages)


def _forget(guest: rig.Guest) -> None:
    guest.guest.track_dedup(False)


def _load(guest: rig.Guest) -> bool:
    """Have the guest list its page cache, give QEMU the list."""
    listing = guest.list('--time 300000')
    device = next(iter(guest.guest.disks().values()))
    extents = tuple(
        mapformat.Extent(one.gpa, one.offset, one.pages, 0)
        for one in listing.extents)
    if not extents:
        return False
    fd = os.memfd_create('map')
    try:
        os.write(fd, mapformat.PageCacheMap((device,), extents).encode())
        os.lseek(fd, 0, os.SEEK_SET)
        guest.guest.load_dedup_map(fd)
    finally:
        os.close(fd)
    while (state := guest.guest.dedup_statistics().hints.map_state
           ) == 'loading':
        time.sleep(0.02)
    if state != 'loaded':
        raise GuestError('QEMU refused the list')
    return True


def _index(guest: rig.Guest) -> statistics.IndexStatistics:
    guest.guest.index_disks(rate=0)
    deadline = time.monotonic() + _WAIT_S
    while (seen := guest.guest.dedup_statistics().index) is None or (
            seen.running):
        if time.monotonic() > deadline:
            guest.guest.cancel_index()
            raise GuestError('the index has not ended in %d s' % _WAIT_S)
        time.sleep(0.05)
    if seen.state != 'done':
        raise GuestError('the index ended as %s: %s'
                         % (seen.state, seen.reason))
    return seen


def _fill(guest: rig.Guest, case: Case, mib: int) -> None:
    if case.system == 'btrfs':
        guest.run('more-modules', timeout=900)
    files = mib * 1024 // case.kib
    guest.run(f'mount -t {case.system} /dev/vda /mnt && mkdir /mnt/files')
    if case.rounds:
        guest.run(f'helper age /mnt/files {files} {case.kib} {case.rounds}',
                  timeout=1800)
        guest.run('sync')
        return
    guest.run(
        f'i=0; while [ $i -lt {files} ]; do '
        f'dd if=/dev/urandom of=/mnt/files/$i bs={case.kib}k count=1; '
        'i=$((i+1)); done; sync', timeout=1800)
    guest.run('echo 3 >/proc/sys/vm/drop_caches')
    guest.run('cat /mnt/files/* >/dev/null', timeout=900)


def measure(binary: Path, case: Case, mib: int) -> Found:
    with (
        tempfile.TemporaryDirectory(prefix='content-index-') as directory,
        contextlib.ExitStack() as stack,
    ):
        place = Path(directory)
        options = ('-b', '4096') if case.system == 'ext4' else ()
        path = place / 'disk'
        rig.make_disk(path, max(512, mib * 2), case.system, *options)
        guest = rig.Guest(str(binary), [spec.Disk(path=path)],
                          memory_mib=mib * 5 // 4 + 192)
        stack.callback(guest.destroy)
        guest.start()
        guest.guest.track_dedup()
        _fill(guest, case, mib)
        tracking = _right(guest)
        _forget(guest)
        lister = _right(guest) if _load(guest) else None
        _forget(guest)
        seen = _index(guest)
        found = _right(guest)
        guest.guest.pause()
        image = guest.guest.save_memory(place / 'memory')
        truth = content.analyse(image, [path])
        return Found(
            truth.nonzero, truth.duplicate, tracking, lister, found,
            seen.bytes, seen.read_bytes, seen.memory_bytes,
            guest.memory_mib << 20, seen.ns / 1e9)


@dataclasses.dataclass(frozen=True)
class Loaded:
    """QEMU has read a map in which each extent is a page.

    :ivar seconds: until it was in the hints
    :ivar cpu: seconds of QEMU's processors
    """

    extents: int
    seconds: float
    cpu: float


def _cpu(pid: int) -> float:
    """Return the seconds of processor time a process has used."""
    fields = Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf('SC_CLK_TCK')


def loading(binary: Path, extents: int = 1_000_000) -> Loaded:
    """Load a list of pages that are far apart, for the second time.

    The first time the table is made, which does not depend on the list.
    """
    with (
        tempfile.TemporaryDirectory(prefix='content-index-') as directory,
        contextlib.ExitStack() as stack,
    ):
        path = Path(directory, 'disk')
        with path.open('wb') as file:
            file.truncate(1 << 40)
        # No page of it is ever touched
        guest = direct.DirectGuest(spec.GuestSpec(
            binary=str(binary), memory_mib=extents * 2 // 256 + 4096,
            disks=(spec.Disk(path=path),)))
        stack.callback(guest.destroy)
        guest.start(paused=True)
        rows = numpy.zeros(extents, dtype=[
            ('gpa', '<u8'), ('offset', '<u8'), ('pages', '<u4'),
            ('disk', '<u4')])
        rows['gpa'] = 4 * _GIB + numpy.arange(extents, dtype='<u8') * 8192
        rows['offset'] = numpy.random.default_rng(1).integers(
            0, (1 << 40) // 4096 - 1, extents, dtype='<u8') * 4096
        rows['pages'] = 1
        head = mapformat.PageCacheMap(
            (next(iter(guest.disks().values())),)).encode()
        data = head[:24] + extents.to_bytes(8, 'little') + head[32:]
        found = [_load_once(guest, data + rows.tobytes(), extents)
                 for _ in range(2)]
        return found[-1]


def _load_once(guest: direct.DirectGuest, data: bytes, extents: int
               ) -> Loaded:
    fd = os.memfd_create('map')
    try:
        with open(fd, 'wb', closefd=False) as file:
            file.write(data)
        os.lseek(fd, 0, os.SEEK_SET)
        cpu, begun = _cpu(guest.pid), time.monotonic()
        guest.load_dedup_map(fd)
        while (hints := guest.dedup_statistics().hints
               ).map_state == 'loading':
            time.sleep(0.05)
        seconds, cpu = time.monotonic() - begun, _cpu(guest.pid) - cpu
    finally:
        os.close(fd)
    if hints.map_pages != extents:
        raise GuestError('QEMU took %d of %d extents: %s' % (
            hints.map_pages, extents, hints.map_error))
    return Loaded(extents, seconds, cpu)


def table(measured: dict[str, Found]) -> str:
    rows = []
    for name, one in measured.items():
        rows.append([
            name,
            f'{one.nonzero / 256:.0f}',
            f'{one.duplicate / 256:.0f}',
            f'{one.share(one.tracking) * 100:.1f} %',
            '-' if one.lister is None
            else f'{one.share(one.lister) * 100:.1f} %',
            f'{one.share(one.index) * 100:.1f} %',
            f'{one.read_bytes / _GIB:.2f}',
            f'{one.seconds:.2f}',
            f'{one.per_gib:.2f}',
            f'{one.mib_per_gib:.2f}',
        ])
    return rst.simple(
        ['page cache', 'memory, MiB', 'on disk', 'tracking', 'lister',
         'index', 'GiB read', 'seconds', 'a GiB', 'MiB a GiB of memory'],
        rows)


def rows(made: results.Results, measured: dict[str, Found]) -> None:
    for name, one in measured.items():
        share = one.share(one.index)
        made.add(f'{name}: found by content', share * 100, '%',
                 f'>= {TARGET:.0%} of what the disk holds', share >= TARGET)
        made.add(f'{name}: memory for a GiB of memory', one.mib_per_gib,
                 'MiB', f'<= {TARGET_MIB}', one.mib_per_gib <= TARGET_MIB)
        made.add(f'{name}: time for a GiB read', one.per_gib, 's',
                 'a figure', True)
        made.add(f'{name}: recorded from I/O', one.share(one.tracking) * 100,
                 '%', 'a figure', True)
        made.add(f'{name}: listed by the guest',
                 '-' if one.lister is None
                 else one.share(one.lister) * 100, '%', 'a figure', True)


def loading_rows(made: results.Results, one: Loaded) -> None:
    speed = one.extents / max(one.cpu, 0.01) / 1e6
    made.add('list loaded into QEMU: by its processor time', speed,
             'million extents/s', '>= 10', speed >= 10)
    made.add('list loaded into QEMU: elapsed', one.seconds, 's',
             'a figure', True)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='bench-content-index', description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument('--mib', type=int, default=1024,
                        help='page cache in MiB (default: %(default)s)')
    parser.add_argument('--quick', action='store_true',
                        help='256 MiB, in 5 minutes')
    parser.add_argument('--publish', metavar='DIR')
    parser.add_argument('--patched-binary', metavar='FILE')
    args = parser.parse_args(argv)
    if args.quick:
        args.mib = 256
    if not 64 <= args.mib <= 16384:
        parser.error('--mib is 64 to 16384')
    words = '--quick' if args.quick else (
        f'--mib {args.mib}' if args.mib != 1024 else '')
    command = f'make bench-{NAME}' + (f" ARGS='{words}'" if words else '')
    made = results.Results(command)
    measured: dict[str, Found] = {}
    try:
        binary = qemus.find('patched', args.patched_binary)
        for case in CASES:
            print(case.name, '...', file=sys.stderr, flush=True)
            measured[case.name] = measure(binary, case, args.mib)
        print('loading a list ...', file=sys.stderr, flush=True)
        loaded = loading(binary)
    except (GuestError, errors.HypervisorError, qemus.QemuNotFound) as error:
        sys.exit(f'bench-{NAME}: error: {error}')
    rows(made, measured)
    loading_rows(made, loaded)
    print(table(measured), made.text(), sep='\n')
    made.write(TOP / f'build/bench-{NAME}/report.json')
    if args.publish:
        Path(args.publish).mkdir(parents=True, exist_ok=True)
        Path(args.publish, f'{NAME}.json').write_text(json.dumps(
            {name: dataclasses.asdict(one)
             for name, one in measured.items()}, indent=1) + '\n')
        Path(args.publish, f'{NAME}.inc').write_text(
            f'Made with::\n\n   {command}\n\n{table(measured)}\n')
    return made.status()


if __name__ == '__main__':
    sys.exit(main())
