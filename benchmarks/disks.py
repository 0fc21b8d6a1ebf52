# SPDX-License-Identifier: Apache-2.0
"""make bench-disks: mirrors of a running guest's disk, stock and built.

Without OpenStack and libvirt: the synthetic guest works on its disk, and
that is mirrored over NBD at the rate of a link, as libvirt has it done in a
block migration.  Before that the destination builds what it can:

stock      it has nothing; an ordinary mirror
base       it has the image that the disk was made of
snapshot   it has a snapshot of the disk as well
kept       it has a copy from before, which is compared and kept

Afterwards the guest stands still and every byte of both disks is compared.
Bytes on the link are those that the mirror has copied and the manifest.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import filecmp
import hashlib
import itertools
import json
from pathlib import Path
import shutil
import sys
import tempfile
import time

from guests.synthetic import channel
from guests.synthetic import disk as disks
from guests.synthetic import image
from guests.synthetic import workload
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.hypervisor import latency
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.storage.sources import local
from nova_dedup_migrate.storage.sources import zero
from testkit import command
from testkit import direct
from testkit import qemus
from testkit import results
from testkit import spec

TOP = Path(__file__).resolve().parents[1]
VARIANTS = ('stock', 'base', 'snapshot', 'kept')
#: Share of stock's bytes on the link that is to be left.
SHARE = {'base': 0.25, 'snapshot': 0.05, 'kept': 0.05}
PROJECT = 'bench'
_CHANNEL = 'workload'
_JOB = 'mirror'
_TARGET = 'mirror-target'
_EXPORT = 'target'


@dataclasses.dataclass
class Outcome:
    """What one variant came to; bytes, seconds.

    :ivar sources: bytes proven, by source
    :ivar latency: of the guest's requests, before and meanwhile
    """

    mirrored: int = 0
    manifest: int = 0
    build: float = 0.0
    total: float = 0.0
    identical: bool = False
    reason: str = ''
    sources: dict[str, int] = dataclasses.field(default_factory=dict)
    latency: tuple[float | None, float | None] = (None, None)

    @property
    def link(self) -> int:
        return self.mirrored + self.manifest


class Cell:
    """One variant.

    :param mib: of files on the disk
    :param rate: bytes/s of the link
    :param rewrite: MiB that differ from the image when it begins
    """

    def __init__(self, variant: str, mib: int, rate: int, rewrite: int,
                 directory: Path) -> None:
        self.variant = variant
        self._mib = mib
        self._rate = rate
        self._rewrite = rewrite
        self._directory = directory
        self._binary = qemus.find('patched')
        self.outcome = Outcome()

    def run(self) -> Outcome:
        data = disks.make_disk(
            self._directory / 'disk', mib=self._mib, format='raw',
            layout='whole', qemu_img=qemus.tool(self._binary, 'qemu-img'))
        base = self._directory / 'base.img'
        shutil.copy(data.path, base)
        self._disk, self._target = data.path, self._directory / 'target.img'
        with self._target.open('wb') as file:
            file.truncate(data.path.stat().st_size)
        self._source = self._guest()
        self._destination = direct.DirectGuest(spec.GuestSpec(
            binary=self._binary, memory_mib=32,
            extra_args=tuple(itertools.chain.from_iterable(
                ('-blockdev', json.dumps(node))
                for node in command.blockdevs(
                    'disk0', spec.Disk(path=self._target))))),
            self._directory / 'destination')
        with self._source, self._destination:
            self._boot()
            index = self._index(self._hold(base))
            measured = latency.Latency(self._source)
            time.sleep(3.0)
            before = measured()
            begun = time.monotonic()
            if self.variant != 'stock':
                self._build(index)
            self._mirror()
            self.outcome.total = time.monotonic() - begun
            self.outcome.latency = before, measured()
            self._end()
            index.close()
        self.outcome.identical = filecmp.cmp(self._disk, self._target,
                                             shallow=False)
        return self.outcome

    def _guest(self) -> direct.DirectGuest:
        work = workload.Workload(mode='pagecache-writer', cache=64, wss=8,
                                 rate=200, readrate=2000)
        kernel = image.guest_image()
        return direct.DirectGuest(spec.GuestSpec(
            binary=self._binary, name='bench', memory_mib=256,
            kernel=kernel.kernel, initrd=kernel.initrd, append=work.append,
            disks=(spec.Disk(path=self._disk),),
            channels=(spec.Channel(_CHANNEL, 'uart', 'socket'),),
            extra_args=('-no-reboot',)), self._directory / 'source')

    def _boot(self) -> None:
        """Have the guest work, with a part of the disk of its own."""
        self._source.start(paused=True)
        # Behind the file system's files, where the guest does not look.
        size = self._disk.stat().st_size
        for number in range(self._rewrite):
            self._source.qmp('human-monitor-command', **{
                'command-line': 'qemu-io -d /machine/peripheral/disk0/'
                'virtio-backend "write -q -P %d %d 1M"' % (
                    number % 250 + 1, size - (number + 1 << 20))})
        with channel.GuestChannel(self._source.channel(_CHANNEL)) as guest:
            self._source.cont()
            guest.wait_ready()
            guest.wait_report()

    def _hold(self, base: Path) -> list[Path]:
        """Return the files that the destination has."""
        if self.variant == 'base':
            return [base]
        if self.variant in ('snapshot', 'kept'):
            snapshot = self._directory / 'snapshot.img'
            self._source.pause()
            shutil.copy(self._disk, snapshot)
            self._source.cont()
            if self.variant == 'kept':
                shutil.copy(snapshot, self._target)
                return []
            return [base, snapshot]
        return []

    def _index(self, held: list[Path]) -> store.Index:
        """Return the index that the destination has long had."""
        index = store.Index(str(self._directory / 'index'))
        for path in held:
            with path.open('rb') as file:
                found = fingerprints.fingerprint(file.fileno())
            index.add(str(path), PROJECT, found.stat, found.digests,
                      found.numbers)
        return index

    def _build(self, index: store.Index) -> None:
        begun = time.monotonic()
        watched = watchings.Watching(self._source, 'disk0', False,
                                     float('inf'))
        built = rebuild.Rebuild(
            rebuild.Disk(
                writer.Image(str(self._target), 'raw'), watched.watch.size,
                str(self._directory / 'journal'), hashlib.sha256(
                    watched.watch.token.encode()).digest(),
                watched.watch.granularity),
            [zero.ZeroSource(), local.LocalSource(
                index, {PROJECT}, [str(self._directory)])],
            rebuild.Limits(reserve=0), reuse=self.variant == 'kept',
            program=str(qemus.tool(self._binary, 'qemu-storage-daemon')),
            roots=[str(self._directory)]).run(
                lambda ranges: self._reader(watched.scan(ranges)))
        watched.prove(built.proven, built.canary)
        watched.arm()
        self.outcome.sources = built.sources
        self.outcome.build = time.monotonic() - begun

    def _reader(self, parts: Iterator[bytes]) -> Callable[[int], bytes]:
        """Return what reads a manifest, and counts its bytes."""
        left = bytearray()

        def read(length: int) -> bytes:
            while len(left) < length:
                part = next(parts, b'')
                if not part:
                    break
                self.outcome.manifest += len(part)
                left.extend(part)
            data = bytes(left[:length])
            del left[:length]
            return data

        return read

    def _mirror(self) -> None:
        """Start the destination, and mirror as libvirt does."""
        address = str(self._directory / 'nbd')
        source, destination = self._source, self._destination
        destination.start(paused=True)
        destination.qmp('nbd-server-start', addr={
            'type': 'unix', 'data': {'path': address}})
        destination.qmp('block-export-add', **{
            'type': 'nbd', 'id': _EXPORT, 'node-name': 'disk0-format',
            'name': _EXPORT, 'writable': True})
        source.qmp('blockdev-add', **{
            'driver': 'nbd', 'node-name': _TARGET, 'export': _EXPORT,
            'server': {'type': 'unix', 'path': address}})
        mark = source.events.mark()
        source.qmp('blockdev-mirror', **{
            'job-id': _JOB, 'device': 'disk0-format', 'target': _TARGET,
            'sync': 'top', 'speed': self._rate})
        source.events.wait('BLOCK_JOB_READY', mark, 600)
        self._mark = mark

    def _end(self) -> None:
        """Stop the guest, end the job with both sides equal, end both."""
        self._source.pause()
        (job,) = self._source.qmp('query-block-jobs')
        self.outcome.mirrored = job['offset']
        self._source.qmp('block-job-cancel', device=_JOB)
        self._source.events.wait('BLOCK_JOB_COMPLETED', self._mark, 60)
        for watch in self._source.disk_watches():
            self.outcome.reason = watch.reason or ''
        for guest in self._source, self._destination:
            guest.qmp('quit')
            guest.wait_exit(30)


def measure(given: argparse.Namespace, found: results.Results) -> None:
    """Run all variants and add their rows."""
    stock: Outcome | None = None
    for variant in given.variants:
        with tempfile.TemporaryDirectory(
                prefix='bench-disks-', dir=given.directory) as directory:
            print('%s ...' % variant, flush=True)
            outcome = Cell(variant, given.mib, given.link * 125_000,
                           given.mib // 8, Path(directory)).run()
        if variant == 'stock':
            stock = outcome
        add_rows(found, variant, outcome, stock)


def add_rows(found: results.Results, variant: str, outcome: Outcome,
             stock: Outcome | None) -> None:
    """Add what one variant came to."""
    found.add(variant + ': disks are equal', str(outcome.identical), '',
              'True', outcome.identical)
    share = (outcome.link / stock.link
             if stock is not None and variant != 'stock' else 1.0)
    limit = SHARE.get(variant)
    found.add(variant + ': disk bytes on the link', outcome.link / 1e6, 'MB',
              'any' if limit is None else
              '%g of stock or less' % limit, limit is None or share <= limit)
    faster = stock is None or outcome.total <= stock.total
    found.add(variant + ': time', outcome.total, 's', 'no longer than stock',
              faster)
    for when, seconds in zip(('before', 'meanwhile'), outcome.latency,
                             strict=True):
        found.add("%s: guest's requests %s" % (variant, when),
                  'none' if seconds is None else seconds * 1000, 'ms',
                  'any', True)
    if variant == 'stock':
        return
    found.add(variant + ': of that, building', outcome.build, 's', 'any',
              True)
    for name, count in sorted(outcome.sources.items()):
        found.add('%s: from %s' % (variant, name), count / 1e6, 'MB', 'any',
                  True)
    found.add(variant + ': taken by the mirror', outcome.reason or 'yes', '',
              'yes', not outcome.reason)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='bench-disks', description='Mirror the disk of a running guest, '
        'stock and with what its destination can build; compare.')
    parser.add_argument('--quick', action='store_true',
                        help='a disk of 128 MiB')
    parser.add_argument('--mib', type=int, default=512,
                        help='of files on the disk (default: %(default)s)')
    parser.add_argument('--link', type=int, default=100, metavar='Mbit/s',
                        help='rate of the mirror (default: %(default)s)')
    parser.add_argument('--variants', default=VARIANTS, metavar='VARIANT,...',
                        type=lambda text: tuple(text.split(',')),
                        help='of ' + ', '.join(VARIANTS))
    parser.add_argument('--directory', type=Path,
                        help='for images (default: the temporary one)')
    given = parser.parse_args(arguments)
    if given.quick:
        given.mib = 128
    found = results.Results('make bench-disks' + (
        ' ARGS="%s"' % ' '.join(sys.argv[1:]) if len(sys.argv) > 1 else ''))
    with contextlib.suppress(KeyboardInterrupt):
        measure(given, found)
    print(found.text())
    found.write(TOP / 'build' / 'bench-disks' / 'report.json')
    return found.status()


if __name__ == '__main__':
    sys.exit(main())
