# SPDX-License-Identifier: Apache-2.0
"""What crosses a data connection, and what must not."""

import io
import os
import random

from nova_dedup_migrate.backups import frames
from nova_dedup_migrate.backups import reader
from nova_dedup_migrate.tests import base

UNIT = 512
SIZE = 10 * UNIT + 100


def parse(data, size=SIZE, unit=UNIT):
    return list(frames.parse(io.BytesIO(data).read, size, unit))


class FramesTest(base.TestCase):

    def test_round_trip(self):
        content = os.urandom(2 * UNIT)
        found = parse(
            frames.pack(frames.DATA, UNIT, 2 * UNIT) + content
            + frames.pack(frames.MISSING, 10 * UNIT, 100)
            + frames.pack(frames.END) + b'the next answer')
        self.assertEqual([
            frames.Frame(frames.DATA, UNIT, 2 * UNIT, content),
            frames.Frame(frames.MISSING, 10 * UNIT, 100)], found)

    def test_malformed(self):
        for data in (
                b'\1' * 16, frames.pack(3, 0, UNIT),
                frames.pack(frames.DATA, 0, 0),
                frames.pack(frames.DATA, 1, UNIT),
                frames.pack(frames.DATA, 0, UNIT - 1),
                frames.pack(frames.DATA, 0, UNIT) + b'short',
                frames.pack(frames.DATA, 10 * UNIT, UNIT),
                frames.pack(frames.MISSING, 2 ** 64 - UNIT, UNIT),
                frames.pack(frames.DATA, 0, 2 ** 64 - 1)):
            self.assertRaises(frames.Malformed, parse,
                              data + frames.pack(frames.END)
                              if b'short' not in data else data)
        self.assertRaises(frames.Malformed, parse, b'')

    def test_frames_without_end(self):
        frame = frames.pack(frames.MISSING, 0, UNIT)
        parsed = frames.parse(lambda length: frame, SIZE, UNIT)
        for _ in range(SIZE // UNIT):
            next(parsed)
        self.assertRaisesRegex(frames.Malformed, 'more than the volume',
                               next, parsed)

    def test_long_data_is_not_read(self):
        size = 1 << 40

        def read(length):
            self.assertLess(length, 100)
            return frames.pack(frames.DATA, 0, size)

        self.assertRaises(frames.Malformed, next,
                          frames.parse(read, size, UNIT))

    def test_extents(self):
        self.assertEqual(
            [(0, 1), (2, 3), (9, 2)], frames.parse_extents(
                frames.pack_extents([(0, UNIT), (2 * UNIT, 3 * UNIT),
                                     (9 * UNIT, UNIT + 100)]), SIZE, UNIT))
        for extents in ([], [(0, 0)], [(1, UNIT)], [(0, 100)],
                        [(UNIT, UNIT), (0, UNIT)],
                        [(0, 2 * UNIT), (UNIT, UNIT)],
                        [(0, 11 * UNIT)], [(2 ** 63, 2 ** 63)]):
            self.assertRaises(frames.Malformed, frames.parse_extents,
                              frames.pack_extents(extents), SIZE, UNIT)
        self.assertRaises(frames.Malformed, frames.parse_extents, b'x' * 17,
                          SIZE, UNIT)

    def test_geometry(self):
        frames.check_geometry(1, 512)
        for size, unit in ((0, 512), (-1, 512), (frames.MAX_VOLUME + 1, 512),
                           (512, 0), (512, 511), (512, 513),
                           (512, frames.MAX_DATA * 2)):
            self.assertRaises(frames.Malformed, frames.check_geometry, size,
                              unit)


class SubtractTest(base.TestCase):

    def test_what_is_left(self):
        self.assertEqual(
            [(0, 1), (3, 2), (12, 3)],
            reader.subtract([(0, 5), (10, 5)], [(10, 2), (1, 2)]))
        self.assertEqual([], reader.subtract([(0, 5)], [(0, 5)]))
        self.assertEqual([(0, 5)], reader.subtract([(0, 5)], []))
        self.assertEqual([(2, 3)], reader.subtract([(2, 3)], [(0, 1)]))

    def test_as_sets(self):
        chance = random.Random(5)
        for _ in range(300):
            bounds = sorted(chance.sample(range(60), 6))
            extents = [(start, end - start) for start, end in zip(
                bounds[::2], bounds[1::2], strict=True)]
            units = [unit for start, length in extents
                     for unit in range(start, start + length)]
            done = chance.sample(units, chance.randrange(len(units) + 1))
            left = reader.subtract(extents, [(unit, 1) for unit in done])
            self.assertEqual(
                sorted(set(units) - set(done)),
                [unit for start, length in left
                 for unit in range(start, start + length)])
