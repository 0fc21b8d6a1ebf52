# SPDX-License-Identifier: Apache-2.0
"""The source of blocks for disks, with a real daemon and real backups."""

from cinder_backup_assist.tests.cinder_functional import test_service
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage.sources import backup


class BackupSourceTest(test_service.ServiceTestCase):

    def test_each_block_of_the_volume(self):
        backups, contents = self.chain(increments=2)
        daemon = self.start_daemon()
        source = backup.BackupSource(self.reader(backups[0].volume_id))
        self.addCleanup(source.close)
        content = contents[-1]
        wanted = [blocks.Block(
            blocks.digest(content[at:at + blocks.BLOCK]), at,
            blocks.length(at // blocks.BLOCK, len(content)))
            for at in range(0, len(content), blocks.BLOCK)]
        found = []
        for start in range(0, len(wanted), 64):
            found += source.read(wanted[start:start + 64])
        self.assertTrue(b''.join(found) == content)
        # nothing came twice
        self.assertLessEqual(source.fetched, len(content))
        daemon.stop()
        source._windows.clear()
        self.assertRaises(errors.SourceFailed, source.read, wanted[:1])

    def test_a_volume_without_backup(self):
        self.start_daemon()
        error = self.assertRaises(
            errors.SourceFailed, backup.BackupSource,
            self.reader(self.make_volume().id))
        self.assertIn('it has none', str(error))
