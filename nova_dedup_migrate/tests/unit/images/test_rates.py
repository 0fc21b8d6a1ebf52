# SPDX-License-Identifier: Apache-2.0
"""How fast a disk is read."""

import os
import threading
from unittest import mock

from nova_dedup_migrate.images import rates
from nova_dedup_migrate.tests import base

MIB = 1 << 20


class OffsetsTest(base.TestCase):
    def open(self, write):
        path = self.temporary_dir() / 'disk'
        with path.open('wb') as file:
            write(file)
        fd = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, fd)
        return fd

    def test_whole_requests(self):
        fd = self.open(lambda file: file.write(bytes(5 * MIB + 7)))
        self.assertEqual([n * MIB for n in range(5)],
                         rates.data_offsets(fd, 100))

    def test_count(self):
        fd = self.open(lambda file: file.write(bytes(9 * MIB)))
        self.assertEqual(4, len(rates.data_offsets(fd, 4)))
        self.assertEqual([], rates.data_offsets(fd, 0))

    def test_holes_are_left_out(self):
        # So few that each is sure to be looked at, in an order that is
        # not.
        def write(file):
            file.truncate(40 * MIB)
            file.seek(30 * MIB)
            file.write(os.urandom(2 * MIB))
            file.flush()
            os.fsync(file.fileno())

        self.assertEqual([30 * MIB, 31 * MIB],
                         rates.data_offsets(self.open(write), 100))

    def test_pages(self):
        def write(file):
            # So few that each is sure to be looked at.
            file.truncate(40 * rates.PAGE)
            file.seek(30 * rates.PAGE)
            file.write(os.urandom(2 * rates.PAGE))
            file.flush()
            os.fsync(file.fileno())

        self.assertEqual(
            [30 * rates.PAGE, 31 * rates.PAGE],
            rates.data_offsets(self.open(write), 100, rates.PAGE))

    def test_scattered(self):
        """Pages, in no order, of all of the disk, and only so many."""
        fd = self.open(lambda file: file.write(os.urandom(16 * MIB)))
        read = []

        def take(fd, offset, length):
            read.append((offset, length))
            return bytes(length)

        with mock.patch.object(rates.direct, 'read', autospec=True,
                               side_effect=take):
            self.assertGreater(rates.measure_scattered(fd, 60.0), 0)
        offsets = [offset for offset, _ in read]
        self.assertEqual({rates.PAGE}, {length for _, length in read})
        self.assertEqual(rates.PAGES, len(set(offsets)))
        self.assertNotEqual(sorted(offsets), offsets)
        self.assertEqual({0}, {offset % rates.PAGE for offset in offsets})
        self.assertLess(min(offsets), MIB)
        self.assertGreater(max(offsets), 15 * MIB)

    def test_scattered_takes_a_share_of_the_time(self):
        fd = self.open(lambda file: file.write(os.urandom(MIB)))
        with mock.patch.object(rates, 'timed', autospec=True,
                               return_value=3.0) as timed:
            self.assertEqual(3.0, rates.measure_scattered(fd, 8.0))
        self.assertEqual(8.0 * rates.SCATTERED, timed.call_args.args[2])

    def test_nothing(self):
        self.assertEqual([], rates.data_offsets(
            self.open(lambda file: file.write(b'x')), 100))
        self.assertEqual([], rates.data_offsets(
            self.open(lambda file: file.truncate(50 * MIB)), 100))

    def test_file_system_that_does_not_tell_holes(self):
        fd = self.open(lambda file: file.write(bytes(3 * MIB)))
        with mock.patch.object(rates.os, 'lseek', autospec=True) as lseek:
            def seek(fd, offset, whence):
                if whence == os.SEEK_DATA:
                    raise OSError(22, 'Invalid argument')
                return 3 * MIB

            lseek.side_effect = seek
            self.assertEqual([0, MIB, 2 * MIB], rates.data_offsets(fd, 100))


class TimedTest(base.TestCase):
    def test_each_offset_once(self):
        read = []

        def take(offset):
            read.append(offset)
            return 10

        self.assertGreater(rates.timed(take, range(50), 60.0), 0)
        self.assertEqual(list(range(50)), sorted(read))

    def test_rate(self):
        with mock.patch.object(rates.time, 'monotonic', autospec=True,
                               side_effect=[0.0] + [1.0] * 99):
            rate = rates.timed(lambda offset: 10, [0, 1, 2], 60.0)
        self.assertEqual(30.0, rate)

    def test_time_is_up(self):
        with mock.patch.object(rates.time, 'monotonic', autospec=True,
                               side_effect=[0.0] + [2.0] * 99):
            self.assertIsNone(rates.timed(self.fail, [0, 1], 1.0))

    def test_nothing_to_read(self):
        self.assertIsNone(rates.timed(self.fail, [], 1.0))

    def test_error(self):
        def fail(offset):
            raise OSError('storage')

        self.assertRaises(OSError, rates.timed, fail, range(1000), 60.0)

    def test_depth(self):
        together = threading.Barrier(rates.DEPTH)

        def read(offset):
            together.wait(30)
            return 1

        rates.timed(read, range(rates.DEPTH), 60.0)
