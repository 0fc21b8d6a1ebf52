# SPDX-License-Identifier: Apache-2.0
"""Hints from outside: page-cache maps, right, wrong and hostile."""

import os
import random

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.pagecache import mapformat
from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import scripted

PAGES = case.PAGES
Extent = mapformat.Extent
#: virtio-blk's backend belongs to a child of the device with the ID
DISK = '/machine/peripheral/disk0/virtio-backend'


def extents(shift=0):
    """The extents of PAGES, which were read in order."""
    return (Extent(PAGES[0] * 4096, scripted.DATA * 512 + shift,
                   len(PAGES), 0),)


class MapTest(case.MigrationCase):

    def booted(self):
        one = self.rig()
        one.boot(track=False)
        one.read_pages(PAGES)
        return one

    def load(self, one, data):
        """Load bytes as a map; return HintStatistics when it is over."""
        fd = os.memfd_create('map')
        try:
            os.write(fd, data)
            os.lseek(fd, 0, os.SEEK_SET)
            one.source.load_dedup_map(fd)
        finally:
            os.close(fd)
        return self.loaded(one)

    def loaded(self, one):
        def over():
            hints = one.source.dedup_statistics().hints
            return hints if hints.map_state != 'loading' else None
        return self.eventually(over, 'the map')

    def migrate(self, one, **given):
        one.migrate(**given)
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        return outcome.source

    def scenario(self, the_map):
        one = self.booted()
        hints = self.load(one, the_map.encode())
        self.assertEqual('loaded', hints.map_state)
        return hints, self.migrate(one)

    def test_right(self):
        hints, figures = self.scenario(
            mapformat.PageCacheMap((DISK,), extents()))
        self.assertEqual((len(PAGES), 0),
                         (hints.map_pages, hints.map_skipped))
        self.assertEqual(len(PAGES), figures.storage_pages)

    def test_every_page_by_itself(self):
        _, figures = self.scenario(mapformat.PageCacheMap(
            (DISK,), tuple(
                Extent(page * 4096, scripted.DATA * 512 + number * 4096,
                       1, 0) for number, page in enumerate(PAGES))))
        self.assertEqual(len(PAGES), figures.storage_pages)

    def test_wrong_offsets(self):
        _, figures = self.scenario(
            mapformat.PageCacheMap((DISK,), extents(512)))
        self.assertEqual(0, figures.storage_pages)
        self.assertEqual(len(PAGES), figures.nack_digest)

    def test_offsets_beyond_the_disk(self):
        _, figures = self.scenario(
            mapformat.PageCacheMap((DISK,), extents(1 << 40)))
        self.assertEqual(0, figures.storage_pages)

    def test_disk_that_does_not_exist(self):
        hints, figures = self.scenario(
            mapformat.PageCacheMap(('floppy',), extents()))
        self.assertEqual((0, len(PAGES)),
                         (hints.map_pages, hints.map_skipped))
        self.assertEqual(0, figures.record_pages)

    def test_all_of_memory_and_more(self):
        """All addresses there are: firmware, devices, holes, RAM."""
        hints, _ = self.scenario(mapformat.PageCacheMap(
            (DISK,), (Extent(0, 0, 1 << 24, 0),)))
        self.assertGreater(hints.map_pages, 0)
        self.assertGreater(hints.map_skipped, 1 << 23)

    def test_empty(self):
        hints, figures = self.scenario(mapformat.PageCacheMap((DISK,)))
        self.assertEqual(0, hints.map_pages)
        self.assertEqual(0, figures.record_pages)

    def test_hostile(self):
        """Each is refused with a reason, and the guest goes on."""
        good = mapformat.PageCacheMap((DISK,), extents()).encode()

        def patched(at, data):
            return good[:at] + data + good[at + len(data):]
        bad = {
            'nothing': b'',
            'wrong magic': patched(0, b'X'),
            'version': patched(8, b'\x02'),
            'disks': patched(16, b'\xff\xff\xff\xff'),
            'no disks': patched(16, b'\0\0\0\0'),
            'extents': patched(24, b'\xff' * 8),
            'reserved': patched(40, b'\x01'),
            'too short': good[:-1],
            'too long': good + b'\0',
            'name': patched(64, b'x' * 256),
            'not aligned': patched(320, b'\x01'),
            'length': patched(336, b'\0\0\0\0'),
            'beyond': patched(320, b'\0\xf0\xff\xff\xff\xff\xff\x7f'),
            'disk': patched(340, b'\x01'),
            'overlap': patched(24, b'\x02') + good[320:],
        }
        one = self.booted()
        for name, data in bad.items():
            hints = self.load(one, data)
            self.assertEqual('failed', hints.map_state, name)
            self.assertTrue(hints.map_error, name)
            self.assertEqual(0, hints.pages, name)
        figures = self.migrate(one)
        self.assertEqual(0, figures.record_pages)

    def test_what_is_no_file(self):
        """A pipe may never end, a directory has no bytes."""
        one = self.booted()
        reader, writer = os.pipe()
        directory = os.open('/', os.O_RDONLY)
        try:
            for fd in reader, directory:
                self.assertRaises(errors.QmpError,
                                  one.source.load_dedup_map, fd)
        finally:
            for fd in reader, writer, directory:
                os.close(fd)
        self.migrate(one)

    def test_during_the_migration(self):
        one = self.booted()
        one.migrate()
        one.active()
        self.load(one, mapformat.PageCacheMap((DISK,),
                                              extents()).encode())
        one.rounds()
        self.assert_right(one.finish())

    def test_fuzzed(self):
        """Random bytes in a good map: refused, or harmless."""
        chance = random.Random(3)
        good = mapformat.PageCacheMap((DISK,), extents()).encode()
        one = self.booted()
        for _ in range(100):
            data = bytearray(good)
            for _ in range(chance.choice((1, 2, 8))):
                data[chance.randrange(len(data))] = chance.randrange(256)
            self.load(one, bytes(data))
        self.migrate(one)
