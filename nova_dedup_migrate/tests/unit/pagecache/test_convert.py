# SPDX-License-Identifier: Apache-2.0
import math
import os
import random

from nova_dedup_migrate.pagecache import convert
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.pagecache import mapformat
from nova_dedup_migrate.pagecache import parser
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.pagecache import listings

DISKS = tuple(form.Disk(size=listings.GIB, name=name) for name in 'abc')


class ConvertTest(base.TestCase):

    def converted(self, extents, ids, disks=DISKS, deadline=math.inf):
        made = parser.ListingParser()
        made.feed(listings.small(disks=disks, given=extents))
        return convert.Converted(made, ids, deadline)

    def decoded(self, made):
        fd = made.to_memfd()
        try:
            return mapformat.decode(os.read(fd, 1 << 24))
        finally:
            os.close(fd)

    def test_some_disks_are_not_known(self):
        made = self.converted(
            [(0, 1, 512, 0), (4096, 4096, 4096, 1), (1 << 30, 2, 0, 2, 1)],
            {2: 'virtio-disk7', 0: 'scsi0-0-0-0'})
        self.assertEqual((2, 3), (made.extents, made.pages))
        self.assertEqual(mapformat.PageCacheMap(
            ('virtio-disk7', 'scsi0-0-0-0'),
            (mapformat.Extent(0, 512, 1, 1),
             mapformat.Extent(1 << 30, 0, 2, 0))), self.decoded(made))

    def test_too_late(self):
        """Nothing is loaded into a QEMU whose migration has gone on."""
        self.assertRaisesRegex(
            errors.NoAnswer, '1 extents .* page_cache_time', self.converted,
            [(0, 1, 512, 0)], {0: 'virtio-disk0'}, deadline=0.0)

    def test_nothing_left(self):
        made = self.converted([(0, 1, 512, 0)], {1: 'b'})
        self.assertEqual((0, 0), (made.extents, made.pages))
        self.assertEqual(mapformat.PageCacheMap(('b',)), self.decoded(made))

    def test_no_disk(self):
        for disks in (DISKS, ()):
            self.assertRaises(errors.MapError, self.converted(
                [], {}, disks).to_memfd)

    def test_name_too_long(self):
        made = self.converted([(0, 1, 512, 0)], {0: 'x' * 256})
        self.assertRaises(errors.MapError, made.to_memfd)

    def test_against_one_by_one(self):
        rng = random.Random(3)
        extents, gpa = [], 0
        for _ in range(500):
            gpa += rng.randrange(3) * 4096
            pages = rng.choice((1, 2, 4096))
            extents.append((gpa, pages, rng.randrange(
                (listings.GIB - pages * 4096) // 512) * 512,
                rng.randrange(3)))
            gpa += pages * 4096
        made = self.converted(extents, {0: 'a', 2: 'c'})
        self.assertEqual(mapformat.PageCacheMap(('a', 'c'), tuple(
            mapformat.Extent(gpa, offset, pages, {0: 0, 2: 1}[disk])
            for gpa, pages, offset, disk in extents if disk != 1)),
            self.decoded(made))
