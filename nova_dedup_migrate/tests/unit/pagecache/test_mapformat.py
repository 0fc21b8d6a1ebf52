# SPDX-License-Identifier: Apache-2.0
import os
import pathlib
import random
import shutil
import struct
import subprocess

from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import mapformat
from nova_dedup_migrate.pagecache.mapformat import Extent
from nova_dedup_migrate.pagecache.mapformat import PageCacheMap
from nova_dedup_migrate.tests import base

QEMU = pathlib.Path(__file__).resolve().parents[4] / 'qemu'
TOP = 1 << 63


def random_map(rng):
    disks = tuple('/machine/peripheral/disk%d' % n
                  for n in range(rng.randint(1, 4)))
    extents = []
    gpa = 0
    for _ in range(rng.randint(0, 12)):
        gpa += rng.choice((0, 1, 2, 1 << 20)) * mapformat.PAGE
        extents.append(Extent(gpa, rng.randrange(1 << 40) * 512,
                              rng.randint(1, 1 << rng.randint(0, 24)),
                              rng.randrange(len(disks))))
        gpa = extents[-1].end
    return PageCacheMap(disks, tuple(extents))


def mutate(rng, data):
    """Return data with a few bytes, numbers or its length changed."""
    data = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        kind = rng.randrange(4)
        at = rng.randrange(len(data))
        if rng.random() < 0.5:
            # The header is where most rules are, the names' rest is noise.
            at = rng.randrange(64)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            at &= ~3
            data[at:at + 4] = struct.pack('<I', rng.choice(
                (0, 1, 64, 65, 1 << 24, (1 << 24) + 1, (1 << 32) - 1)))
        elif kind == 2:
            at &= ~7
            data[at:at + 8] = struct.pack('<Q', rng.choice(
                (0, 4096, TOP - 4096, TOP - 8192, TOP, (1 << 64) - 4096)))
        elif rng.random() < 0.5:
            del data[max(64, at):]
        else:
            data += bytes(rng.randint(1, 30))
    return bytes(data)


class EncodeTest(base.TestCase):

    def test_layout(self):
        data = PageCacheMap(('disk0',), (Extent(4096, 512, 2, 0),)).encode()
        self.assertEqual(64 + 256 + 24, len(data))
        self.assertEqual(
            b'QDEDUPM1' + struct.pack('<IIIIQ', 1, 64, 1, 0, 1) + bytes(32),
            data[:64])
        self.assertEqual(b'disk0' + bytes(251), data[64:320])
        self.assertEqual(struct.pack('<QQII', 4096, 512, 2, 0), data[320:])

    def test_round_trip(self):
        rng = random.Random(1)
        for _ in range(200):
            one = random_map(rng)
            self.assertEqual(one, mapformat.decode(one.encode()))

    def test_names(self):
        for name in ('d', 'x' * 255, 'd\u00fcsk', 'bad\udcff'):
            one = PageCacheMap((name,))
            self.assertEqual(one, mapformat.decode(one.encode()), name)
        for name in ('', 'x' * 256, '\u00fc' * 128, 'a\0b'):
            self.assertRaisesRegex(errors.MapError, 'name of a disk',
                                   PageCacheMap((name,)).encode)

    def test_refused(self):
        for what, extents in (
                ('not aligned', [Extent(1, 0, 1, 0)]),
                ('not aligned', [Extent(0, 511, 1, 0)]),
                ('out of bounds', [Extent(0, 0, 0, 0)]),
                ('out of bounds', [Extent(0, 0, -1, 0)]),
                ('out of bounds', [Extent(0, 0, (1 << 24) + 1, 0)]),
                ('out of bounds', [Extent(-4096, 0, 1, 0)]),
                ('out of bounds', [Extent(0, -512, 1, 0)]),
                ('out of bounds', [Extent(TOP - 4096, 0, 1, 0)]),
                ('out of bounds', [Extent(0, 1 << 64, 1, 0)]),
                ('names disk 1, of 1', [Extent(0, 0, 1, 1)]),
                ('names disk -1', [Extent(0, 0, 1, -1)]),
                ('not sorted', [Extent(0, 0, 2, 0), Extent(4096, 0, 1, 0)]),
                ('not sorted', [Extent(4096, 0, 1, 0), Extent(0, 0, 1, 0)])):
            self.assertRaisesRegex(
                errors.MapError, what,
                PageCacheMap(('d',), tuple(extents)).encode)
        for count in (0, 65):
            self.assertRaisesRegex(errors.MapError, 'number of disks',
                                   PageCacheMap(('d',) * count).encode)

    def test_memfd(self):
        one = PageCacheMap(('d',), (Extent(0, 0, 7, 0),))
        self.assertEqual(7, one.pages)
        fd = one.to_memfd()
        self.addCleanup(os.close, fd)
        self.assertEqual(one.encode(), os.read(fd, 1 << 16))
        self.assertRaises(PermissionError, os.pwrite, fd, b'x', 0)
        self.assertFalse(os.get_inheritable(fd))


class DecodeTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.good = PageCacheMap(
            ('a', 'b'),
            (Extent(0, 0, 1, 0), Extent(4096, 512, 1, 1))).encode()

    def refused(self, what, data):
        self.assertRaisesRegex(errors.MapError, what,
                               mapformat.decode, data)

    def patched(self, at, data):
        return self.good[:at] + data + self.good[at + len(data):]

    def test_every_truncation(self):
        for size in range(len(self.good)):
            self.refused('ends too early', self.good[:size])

    def test_longer(self):
        self.refused('longer than it says', self.good + b'\0')

    def test_header(self):
        self.refused('magic', self.patched(7, b'2'))
        self.refused('version', self.patched(8, b'\2'))
        self.refused('version', self.patched(12, b'\x41'))
        self.refused('number of disks', self.patched(16, b'\0'))
        self.refused('number of disks', self.patched(16, b'\x41'))
        self.refused('reserved', self.patched(20, b'\1'))
        self.refused('reserved', self.patched(63, b'\1'))
        self.refused('too many extents', self.patched(24, b'\xff' * 8))

    def test_count_is_not_believed(self):
        # 400 MiB of extents, said in 320 bytes
        self.refused('ends too early',
                     self.patched(24, struct.pack('<Q', 1 << 24)))

    def test_names(self):
        self.refused('disk 1 is empty', self.patched(64 + 256, b'\0'))
        self.refused('disk 0 is empty or too', self.patched(64 + 255, b'x'))

    def test_extents(self):
        first = 64 + 512
        self.refused('extent 0 is not aligned', self.patched(first, b'\1'))
        self.refused('extent 1 overlaps', self.patched(first + 16, b'\2'))
        self.refused('extent 1 names disk 2',
                     self.patched(first + 24 + 20, b'\2'))


class CrossTest(base.TestCase):
    """The C parser, compiled alone, says the same of every input."""

    def setUp(self):
        super().setUp()
        if shutil.which('gcc') is None:
            self.skipTest('no gcc')
        self.tool = self.temporary_dir() / 'map_dump'
        source = QEMU / 'src' / 'migration' / 'dedup'
        subprocess.run(
            ['gcc', '-std=gnu11', '-O1', '-I', source, '-o', self.tool,
             QEMU / 'tests' / 'map_dump.c', source / 'map-format.c'],
            check=True)

    def dump(self, inputs):
        """What the C parser prints for each."""
        feed = b''.join(struct.pack('<I', len(one)) + one for one in inputs)
        done = subprocess.run([self.tool], input=feed, check=True,
                              stdout=subprocess.PIPE)
        return done.stdout.split(b'\n\n')[:-1]

    @staticmethod
    def expected(data):
        try:
            one = mapformat.decode(data)
        except errors.MapError as error:
            return str(error)
        lines = ['disk ' + name for name in one.disks]
        lines += ['extent %d %d %d %d' % (e.gpa, e.offset, e.pages, e.disk)
                  for e in one.extents]
        return '\n'.join(lines)

    @staticmethod
    def kind(text):
        """The rule that an error text of either side speaks of."""
        for rule in ('magic', 'version', 'reserved', 'number of disks',
                     'too many', 'too early', 'longer than it says', 'name',
                     'aligned', 'out of bounds', 'overlap'):
            if rule in text:
                return 'disk listed' if 'listed' in text else rule
        raise AssertionError('unknown error: %s' % text)

    def test_agree(self):
        rng = random.Random(2)
        inputs = [random_map(rng).encode() for _ in range(300)]
        inputs += [mutate(rng, rng.choice(inputs[:300]))
                   for _ in range(6000)]
        accepted = set()
        kinds = set()
        for data, output in zip(inputs, self.dump(inputs), strict=True):
            text = output.decode('utf-8', 'surrogateescape').strip('\n')
            wanted = self.expected(data)
            if text.startswith('error '):
                self.assertEqual(self.kind(text), self.kind(wanted), text)
                kinds.add(self.kind(text))
            else:
                self.assertEqual(text, wanted)
                accepted.add(text)
        # The test is worth something: all rules, and not only refusals.
        self.assertGreater(len(accepted), 300)
        self.assertEqual(12, len(kinds), kinds)
