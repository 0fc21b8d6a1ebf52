# SPDX-License-Identifier: Apache-2.0
"""A volume of a guest is filled from a backup and mirrored by QEMU."""

import os
from unittest import mock

from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.images import locks
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import reading
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.functional.swaps import volume

#: Granules of a step.
_STEP = reading.STEP // rig.GRANULE


class FillTest(volume.VolumeCase):

    def test_only_what_is_newer_is_copied(self):
        """Of a backup that is older than the record of writes."""
        self.one.io('write', '-P', 0x11, 0, 4096)
        reader = self.backup()
        self.one.io('write', '-P', 0x22, 2 * rig.GRANULE, 4096)
        record = self.watch()
        self.read()
        self.one.io('write', '-P', 0x22, 5 * rig.GRANULE, 4096)
        self.one.io('write', '-z', 9 * rig.GRANULE, rig.GRANULE)
        filled = self.fill(record, reader)
        # while it was filled, and before the mirror
        self.one.io('write', '-P', 0x33, 20 * rig.GRANULE + 512, 1024)
        copied = self.one.mirror()
        self.assertEqual(watching.USED, self.one.query().state)
        self.assertLessEqual(copied, 6 * rig.GRANULE)
        self.assertGreater(filled.proven, filled.size - 6 * rig.GRANULE)
        self.assertEqual((1, 2), (filled.different // blocks.BLOCK,
                                  filled.unknown // blocks.BLOCK))
        self.assert_same(self.one)

    def test_what_was_written_is_read_again(self):
        record, reader = self.watch(), self.backup()
        self.read()
        self.one.io('write', '-P', 0x22, 0, 40 * rig.GRANULE)
        newer = self.backup()
        # not at once
        self.read()
        self.assertEqual(40 * rig.GRANULE, self.of(record).dirty)
        self.reader._passes[volume.NAME].due = 0
        self.read()
        self.assertEqual(0, self.of(record).dirty)
        with self.known(record) as known:
            first, entries = next(known.pieces())
            self.assertEqual(
                [blocks.digest(newer.content[at:at + blocks.BLOCK])[:16]
                 for at in range(0, case.SIZE, blocks.BLOCK)],
                [entry.tobytes() for entry in entries])
        self.assertEqual(40, self.fill(record, reader).different
                         // blocks.BLOCK)
        self.one.mirror()
        self.assert_same(self.one)

    def test_little_that_was_written_is_not_read_again(self):
        record = self.watch()
        self.read()
        self.reader._passes[volume.NAME].due = 0
        with mock.patch.object(reading, 'WORTH', 2 / 64):
            self.one.io('write', '-P', 0x22, 0, rig.GRANULE)
            self.read()
            self.assertEqual(rig.GRANULE, self.of(record).dirty)

    def test_a_volume_that_is_not_read_to_its_end(self):
        record, reader = self.watch(), self.backup()
        with mock.patch.object(reading, 'SLICE', 0.0), mock.patch.object(
                reading, 'TURN', 0.1):
            self.reader._turn(volume.NAME, float('inf'))
        self.assertEqual(_STEP, self.clear(record))
        self.assertEqual((case.GRANULES - _STEP) * rig.GRANULE,
                         self.fill(record, reader).unknown)
        self.one.mirror()
        self.assert_same(self.one)

    def test_a_pass_goes_on(self):
        """Also after nova-compute was started again."""
        record = self.watch()
        with mock.patch.object(reading, 'SLICE', 0.0), mock.patch.object(
                reading, 'TURN', 0.1):
            self.assertTrue(self.reader._turn(volume.NAME, float('inf')))
        self.reader._passes.clear()
        steps = []
        with mock.patch.object(
                reading, 'read', autospec=True, side_effect=lambda *args: (
                    steps.append(args[4]), 0)[1]):
            self.read()
        self.assertEqual([reading.STEP, 2 * reading.STEP], steps)
        self.assertLess(0, self.of(record).dirty)

    def test_zeros_stay_holes(self):
        self.one.io('write', '-z', 0, 64 * rig.GRANULE)
        record, reader = self.watch(), self.backup()
        self.read()
        filled = self.fill(record, reader)
        self.assertGreaterEqual(filled.zero, 64 * rig.GRANULE)
        self.one.mirror()
        self.assert_same(self.one)
        with open(self.target, 'rb') as file:
            self.assertGreaterEqual(
                os.lseek(file.fileno(), 0, os.SEEK_DATA),
                63 * rig.GRANULE)

    def test_holes_are_not_read(self):
        """The last step of the disk is one."""
        record, reader = self.watch(), self.backup()
        read = []
        theirs = reading.read
        with mock.patch.object(
                reading, 'read', autospec=True, side_effect=lambda *args: (
                    read.append(theirs(*args)), read[-1])[1]):
            self.read()
        self.assertEqual([reading.STEP, reading.STEP, 0], read)
        self.assertGreaterEqual(self.fill(record, reader).zero, 1 << 18)
        self.one.mirror()
        self.assert_same(self.one)

    def test_blocks_that_the_store_lacks_are_copied(self):
        record, reader = self.watch(), self.backup()
        self.read()
        reader.missing.update((3 * blocks.BLOCK, 4 * blocks.BLOCK))
        filled = self.fill(record, reader)
        self.assertLessEqual(filled.proven,
                             filled.size - 2 * blocks.BLOCK)
        self.one.mirror()
        self.assert_same(self.one)

    def test_a_backup_of_other_content_is_not_used(self):
        record = self.watch()
        self.read()
        content = bytearray(self.image.read_bytes())
        content[::4096] = bytes(0x77 ^ byte for byte in content[::4096])
        error = self.assertRaises(errors.NotFillable, self.fill, record,
                                  self.backup(content))
        self.assertIn('65 differ, and 0 have not', str(error))
        # Nothing was written: the mirror is an ordinary one.
        self.one.mirror()
        self.assertEqual(watching.WATCHING, self.one.query().state)
        self.assert_same(self.one)

    def test_blocks_of_other_content_are_copied(self):
        record = self.watch()
        self.read()
        content = bytearray(self.image.read_bytes())
        for number in 0, 7, 31, 32, len(content) // blocks.BLOCK - 1:
            content[number * blocks.BLOCK + 5] ^= 1
        filled = self.fill(record, self.backup(content))
        self.assertEqual(5 * blocks.BLOCK, filled.different)
        self.assertLessEqual(filled.proven, filled.size - filled.different)
        self.one.mirror()
        self.assert_same(self.one)

    def test_a_fill_that_fails(self):
        """Whatever it left is copied over."""
        record, reader = self.watch(), self.backup()
        self.read()
        content = os.urandom(rig.GRANULE)

        def fail(_build, open_manifest):
            open_manifest([])
            with self.target.open('r+b') as file:
                file.seek(5 * rig.GRANULE)
                file.write(content)
            raise storage_errors.TargetFailed(path='x', reason='why')

        with mock.patch.object(rebuild.Rebuild, 'run', fail):
            self.assertRaises(storage_errors.TargetFailed, self.fill, record,
                              reader)
        self.one.mirror()
        reason = self.one.query().reason
        self.assert_same(self.one)
        self.assertIn('before the disk was armed', reason)

    def test_a_volume_that_cannot_be_opened(self):
        """Nova's copy is an ordinary one."""
        record, reader = self.watch(), self.backup()
        self.read()
        with self.target.open('r+b') as file:
            locks.claim(file.fileno())
            self.assertRaises(storage_errors.TargetFailed, self.fill, record,
                              reader)
        self.one.mirror()
        self.assert_recorded(record)
        self.assert_same(self.one)

    def test_a_volume_of_another_size(self):
        record, reader = self.watch(), self.backup()
        self.read()
        os.truncate(self.target, case.SIZE + 512)
        self.assertRaises(storage_errors.TargetFailed, self.fill, record,
                          reader)
        self.assert_recorded(record)

    def assert_recorded(self, record):
        """Nobody has claimed the watch."""
        watch = self.one.query(record.token)
        self.assertEqual((watching.WATCHING, None, watching.VOLUME),
                         (watch.state, watch.reason, watch.recorder))

    def test_a_volume_that_has_a_replica(self):
        """Both records go on; the copy begins with that of the volume."""
        (device,) = self.one.source.disks().values()
        record, reader = self.watch(), self.backup()
        self.read()
        replica = self.one.source.watch_disk(device,
                                             recorder=watching.REPLICA)
        self.one.source.clear_disk(replica.token, 0, replica.size)
        self.one.io('write', '-P', 0x22, 5 * rig.GRANULE, 4096)
        self.fill(record, reader)
        self.assertLessEqual(self.one.mirror(), 2 * rig.GRANULE)
        self.assertEqual(watching.USED, self.one.query(record.token).state)
        self.assertEqual([5], self.one.dirty(replica))
        self.assert_same(self.one)

    def test_a_replica_of_a_volume_without_backups(self):
        """Nova's copy is an ordinary one."""
        (device,) = self.one.source.disks().values()
        self.one.source.watch_disk(device, recorder=watching.REPLICA)
        self.one.io('write', '-z', '-u', 0, 40 * rig.GRANULE)
        self.one.mirror()
        self.assertEqual(watching.WATCHING, self.one.query().state)
        self.assert_same(self.one)

    def test_a_volume_written_throughout_is_not_filled(self):
        record, reader = self.watch(), self.backup()
        self.read()
        self.one.io('write', '-P', 0x44, 0, case.SIZE)
        self.assertRaises(errors.NotFillable, self.fill, record, reader)

    def test_a_volume_that_was_not_read_is_not_filled(self):
        record, reader = self.watch(), self.backup()
        self.assertRaises(errors.NotFillable, self.fill, record, reader)

    def test_the_watch_of_an_earlier_qemu_is_not_read(self):
        record = self.watch()
        self.one.source.drop_disk(record.token)
        with mock.patch.object(reading, 'read', autospec=True) as read:
            self.read()
        read.assert_not_called()

    def test_a_backup_of_a_smaller_volume(self):
        record, reader = self.watch(), self.backup()
        self.read()
        reader.content = reader.content[:(1 << 20) + 512]
        reader.size = len(reader.content)
        filled = self.fill(record, reader)
        self.assertEqual((case.GRANULES - _STEP) * rig.GRANULE,
                         filled.different)
        self.one.mirror()
        self.assert_same(self.one)

    def test_a_backup_of_a_larger_volume(self):
        record, reader = self.watch(), self.backup()
        self.read()
        reader.content += bytes(1 << 20)
        reader.size = len(reader.content)
        self.fill(record, reader)
        self.one.mirror()
        self.assert_same(self.one)
