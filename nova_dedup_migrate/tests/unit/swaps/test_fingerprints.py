# SPDX-License-Identifier: Apache-2.0
"""The file of what is known of a volume's blocks."""

import contextlib
import dataclasses
import hashlib
import os
from unittest import mock

import numpy

from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.tests import base

_COUNT = fingerprints.PIECE + 3
_WATCH = watching.DiskWatch(
    'token', 'device', 'node', watching.WATCHING,
    (_COUNT - 1) * blocks.BLOCK + 512, 65536)


class FingerprintsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_dir() / 'file'
        self.make(_WATCH)

    def make(self, watch):
        fingerprints.Fingerprints.make(str(self.path), watch)

    def opened(self, watch=_WATCH):
        return contextlib.closing(
            fingerprints.Fingerprints(str(self.path), watch))

    def entries(self):
        with self.opened() as known:
            pieces = list(known.pieces())
        self.assertEqual([0, fingerprints.PIECE],
                         [first for first, _ in pieces])
        return [entry.tobytes()
                for entry in numpy.concatenate([one[1] for one in pieces])]

    def test_nothing_is_known_at_first(self):
        self.assertEqual([bytes(16)] * _COUNT, self.entries())
        self.assertEqual(4096 + 16 * _COUNT, self.path.stat().st_size)
        self.assertLess(self.path.stat().st_blocks * 512, 1 << 14)
        self.assertEqual(0o600, self.path.stat().st_mode & 0o777)

    def test_the_format(self):
        with self.opened() as known:
            known.note(1, bytes(range(64)))
        data = self.path.read_bytes()
        self.assertEqual(
            b'NDFPRNT1' + _WATCH.size.to_bytes(8, 'big')
            + (65536).to_bytes(4, 'big') + bytes(4)
            + hashlib.sha256(b'token').digest(), data[:56])
        self.assertEqual(bytes(16) + bytes(range(16))
                         + bytes(range(32, 48)) + bytes(16),
                         data[4096:4096 + 64])

    def test_what_was_noted_and_forgotten(self):
        digests = b''.join(blocks.digest(b'%d' % number)
                           for number in range(_COUNT))
        with self.opened() as known:
            known.note(0, digests)
            # To the end, where the last block is short.
            known.forget((_COUNT - 2) * blocks.BLOCK, blocks.BLOCK + 512)
            known.forget(0, blocks.BLOCK)
            known.sync()
        found = self.entries()
        self.assertEqual([0, _COUNT - 2, _COUNT - 1], [
            number for number, entry in enumerate(found)
            if entry == bytes(16)])
        self.assertEqual(blocks.digest(b'7')[:16], found[7])

    def test_beyond_the_end(self):
        with self.opened() as known:
            self.assertRaises(IndexError, known.note, _COUNT, bytes(32))
            self.assertRaises(IndexError, known.forget,
                              _COUNT * blocks.BLOCK, 1)

    def test_not_of_this_watch(self):
        for change in ({'token': 'other'}, {'size': _WATCH.size + 512},
                       {'granularity': 32768}):
            self.assertRaises(
                errors.NotFillable, fingerprints.Fingerprints,
                str(self.path), dataclasses.replace(_WATCH, **change))
        good = self.path.read_bytes()
        for wrong in (b'', good[:-1], good + b'x', b'N' + good):
            self.path.write_bytes(wrong)
            self.assertRaises(errors.NotFillable, self.opened)
        self.path.unlink()
        self.assertRaises(errors.NotFillable, self.opened)
        self.path.symlink_to(self.temporary_dir() / 'x')
        self.assertRaises(errors.NotFillable, self.opened)

    def test_a_new_watch_knows_nothing_of_an_old_one(self):
        with self.opened() as known:
            known.note(0, bytes(range(32)))
            # in the place of one that is still open, too
            self.make(_WATCH)
            known.note(1, bytes(range(32)))
        self.assertEqual([bytes(16)] * _COUNT, self.entries())

    def test_one_has_it_at_a_time(self):
        with self.opened():
            self.assertRaises(errors.NotFillable, self.opened)
        with self.opened():
            pass

    def test_it_ends_before_its_end(self):
        with self.opened() as known:
            os.truncate(self.path, 4096 + 16)
            self.assertRaises(errors.NotFillable, list, known.pieces())

    def test_granules_of_less_than_a_block(self):
        self.assertRaises(
            errors.NotFillable, self.make,
            dataclasses.replace(_WATCH, granularity=16384))

    def test_the_disk_fails(self):
        with self.opened() as known:
            with mock.patch.object(os, 'fdatasync', side_effect=OSError(5)):
                self.assertRaises(errors.NotKept, known.sync)
            with mock.patch.object(os, 'pwrite', return_value=1):
                self.assertRaises(OSError, known.note, 0, bytes(32))
