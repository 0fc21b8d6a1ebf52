# SPDX-License-Identifier: Apache-2.0
"""Locks as signs."""

import fcntl
import os
import struct
from unittest import mock

from nova_dedup_migrate.images import locks
from nova_dedup_migrate.tests import base


class LocksTest(base.TestCase):
    def setUp(self):
        super().setUp()
        path = self.temporary_dir() / 'disk'
        path.write_bytes(b'')
        self.fd = os.open(path, os.O_RDONLY)
        self.addCleanup(os.close, self.fd)

    def hold(self, offset):
        number = locks.hold(self.fd, offset)
        self.addCleanup(locks.release, number)
        return number

    def test_offsets_are_behind_every_image(self):
        for _ in range(100):
            offset = locks.draw()
            self.assertGreaterEqual(offset, locks.FIRST)
            self.assertLess(offset + 1, 2 ** 63)

    def test_last_offset(self):
        with mock.patch('secrets.randbelow', autospec=True,
                        side_effect=lambda n: n - 1):
            offset = locks.draw()
        self.hold(offset)
        self.assertTrue(locks.is_held(self.fd, offset))

    def test_held_until_released(self):
        offset = locks.draw()
        self.assertFalse(locks.is_held(self.fd, offset))
        number = self.hold(offset)
        self.assertTrue(locks.is_held(self.fd, offset))
        locks.release(number)
        self.assertFalse(locks.is_held(self.fd, offset))
        locks.release(number)

    def test_several_hold_the_same_file(self):
        offsets = [locks.draw() for _ in range(5)]
        for offset in offsets:
            self.hold(offset)
        for offset in offsets:
            self.assertTrue(locks.is_held(self.fd, offset))
        self.assertFalse(locks.is_held(self.fd, locks.draw()))

    def test_lock_of_everything_is_no_sign(self):
        fcntl.fcntl(os.dup(self.fd), fcntl.F_OFD_SETLK,
                    struct.pack('hhqqi0q', fcntl.F_RDLCK, os.SEEK_SET, 0, 0,
                                0))
        other = os.open('/proc/self/fd/%d' % self.fd, os.O_RDONLY)
        self.addCleanup(os.close, other)
        self.assertFalse(locks.is_held(other, locks.draw()))

    def test_limit(self):
        with mock.patch.object(locks, 'MAX_HELD', 0):
            self.assertRaises(OSError, locks.hold, self.fd, locks.draw())
