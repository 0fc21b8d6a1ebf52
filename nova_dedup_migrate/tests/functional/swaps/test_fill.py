# SPDX-License-Identifier: Apache-2.0
"""A volume of a guest is filled from a backup and mirrored by QEMU."""

import os
import pathlib
from unittest import mock

from nova_dedup_migrate.backups import objects
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import backup as backup_source
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import fill
from nova_dedup_migrate.swaps import watches
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.unit.storage.sources import test_backup

_LIMITS = rebuild.Limits(seconds=60, reserve=0)


class FillTest(case.SeedCase):

    def setUp(self):
        super().setUp()
        self.one = self.rig()
        self.program = os.path.join(os.path.dirname(self.binary),
                                    'qemu-storage-daemon')
        self.target = pathlib.Path(self.one.target_image[0])
        self.other = self.directory / 'filled.img'

    def watch(self):
        """Begin to record; return the record."""
        (device,) = self.one.source.disks().values()
        reply = objects.DedupBackupFindReply(
            backups=[], hosts=[], now='2026-01-01T00:00:00Z')
        watch, _ = watches.begin(self.one.source, device, lambda: reply)
        return watches.Record('instance', 'vda', 'volume', watch.token, (),
                              reply.now)

    def backup(self):
        """Return a backup of the disk as it is now."""
        return test_backup.Reader(
            pathlib.Path(self.one.image[0]).read_bytes())

    def fill(self, record, reader, everything=True):
        """Fill the target while nothing else has it open."""
        source = backup_source.BackupSource(reader)
        self.addCleanup(source.close)
        self.one.destination.qmp('block-export-del', id='target')
        self.one.destination.qmp('blockdev-del', **{
            'node-name': 'disk0-format'})
        try:
            return fill.fill(
                self.one.source, record, source, 'backup',
                writer.Image(str(self.target), 'raw'),
                str(self.directory / 'journal'), _LIMITS, self.program,
                everything)
        finally:
            self.one.destination.qmp('blockdev-add', **{
                'driver': 'raw', 'node-name': 'disk0-format',
                'file': {'driver': 'file', 'filename': str(self.target)}})
            self.one.destination.qmp('block-export-add', **{
                'type': 'nbd', 'id': 'target', 'node-name': 'disk0-format',
                'name': 'target', 'writable': True})

    def test_only_what_is_newer_is_copied(self):
        record = self.watch()
        self.one.io('write', '-P', 0x11, 0, 4096)
        reader = self.backup()
        self.one.io('write', '-P', 0x22, 5 * rig.GRANULE, 4096)
        self.one.io('write', '-z', 9 * rig.GRANULE, rig.GRANULE)
        filled = self.fill(record, reader, everything=False)
        # while it was filled, and before the mirror
        self.one.io('write', '-P', 0x33, 20 * rig.GRANULE + 512, 1024)
        copied = self.one.mirror()
        self.assertEqual(watching.USED, self.one.query().state)
        self.assertLessEqual(copied, 6 * rig.GRANULE)
        self.assertGreater(filled.proven, filled.size - 6 * rig.GRANULE)
        self.assertLessEqual(filled.sampled, fill.SAMPLES * blocks.BLOCK)
        self.assert_same(self.one)

    def test_zeros_stay_holes(self):
        self.one.io('write', '-z', 0, 64 * rig.GRANULE)
        record, reader = self.watch(), self.backup()
        filled = self.fill(record, reader)
        self.assertGreaterEqual(filled.zero, 64 * rig.GRANULE)
        self.one.mirror()
        self.assert_same(self.one)
        with open(self.target, 'rb') as file:
            self.assertGreaterEqual(
                os.lseek(file.fileno(), 0, os.SEEK_DATA),
                63 * rig.GRANULE)

    def test_blocks_that_the_store_lacks_are_copied(self):
        record, reader = self.watch(), self.backup()
        reader.missing.update((3 * blocks.BLOCK, 4 * blocks.BLOCK))
        filled = self.fill(record, reader)
        self.assertLessEqual(filled.proven,
                             filled.size - 2 * blocks.BLOCK)
        self.one.mirror()
        self.assert_same(self.one)

    def test_a_backup_of_other_content_is_not_used(self):
        record = self.watch()
        content = bytearray(pathlib.Path(self.one.image[0]).read_bytes())
        content[::4096] = bytes(len(content[::4096]))
        self.assertRaises(errors.BackupDiffers, self.fill, record,
                          test_backup.Reader(bytes(content)))
        # Nothing was written: the mirror is an ordinary one.
        self.one.mirror()
        self.assertEqual(watching.WATCHING, self.one.query().state)
        self.assert_same(self.one)

    def test_a_fill_that_fails(self):
        """Whatever it left is copied over."""
        record, reader = self.watch(), self.backup()
        content = os.urandom(rig.GRANULE)

        def fail(*_args, **_given):
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

    def test_a_volume_that_has_a_replica(self):
        """Both records go on; the copy begins with that of the volume."""
        (device,) = self.one.source.disks().values()
        record, reader = self.watch(), self.backup()
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

    def test_one_block_of_other_content(self):
        """A sample would most likely miss it."""
        record = self.watch()
        content = pathlib.Path(self.one.image[0]).read_bytes()
        # Many are read at once.
        for number in 0, 7, 31, 32, len(content) // blocks.BLOCK - 1:
            other = bytearray(content)
            other[number * blocks.BLOCK + 5] ^= 1
            error = self.assertRaises(errors.BackupDiffers, self.fill, record,
                                      test_backup.Reader(bytes(other)))
            self.assertIn('at byte %d,' % (number * blocks.BLOCK),
                          str(error))
        self.one.mirror()
        self.assert_same(self.one)

    def test_all_that_is_filled_was_compared(self):
        record, reader = self.watch(), self.backup()
        filled = self.fill(record, reader)
        self.assertGreaterEqual(filled.sampled, filled.proven)
        self.one.mirror()
        self.assert_same(self.one)

    def test_a_volume_written_throughout_is_not_filled(self):
        record, reader = self.watch(), self.backup()
        self.one.io('write', '-P', 0x44, 0, case.SIZE)
        self.assertRaises(errors.NotFillable, self.fill, record, reader)

    def test_without_its_watch_it_is_not_filled(self):
        record, reader = self.watch(), self.backup()
        self.one.source.drop_disk(record.token)
        self.assertRaises(errors.NotFillable, self.fill, record, reader)

    def test_a_backup_of_a_smaller_volume(self):
        record, reader = self.watch(), self.backup()
        reader.content = reader.content[:1 << 20]
        reader.size = 1 << 20
        filled = self.fill(record, reader)
        self.assertLessEqual(filled.proven, 1 << 20)
        self.one.mirror()
        self.assert_same(self.one)
