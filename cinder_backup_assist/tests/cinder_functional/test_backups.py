# SPDX-License-Identifier: Apache-2.0
"""Which backups are served, by Cinder's records."""

from oslo_config import cfg

from cinder_backup_assist import errors
from cinder_backup_assist.store import backups as store_backups
from cinder_backup_assist.store import drivers
from cinder_backup_assist.tests.cinder_functional import real_backups


class BackupsTest(real_backups.BackupTestCase):

    def setUp(self):
        super().setUp()
        self.store_of_host = drivers.BackupStore(cfg.CONF, self.context)
        self.backups = store_backups.Backups(self.store_of_host)

    def open(self, backup, project=real_backups.PROJECT, volume_id=None):
        return [one.id for one in self.backups.chain(
            backup.id, volume_id or backup.volume_id, project)]

    def refused(self, pattern, backup, **arguments):
        error = self.assertRaises(errors.BackupRefused, self.open, backup,
                                  **arguments)
        self.assertRegex(str(error), pattern)

    def find(self, volume_id, project=real_backups.PROJECT):
        return self.backups.find(volume_id, project)

    def test_backups_come_with_why_they_cannot_be_used(self):
        backups, _ = self.chain(increments=2)
        backups[1].status = 'error'
        backups[1].save()
        found = self.find(backups[0].volume_id)
        self.assertEqual(
            [(backups[2].id, False), (backups[1].id, False),
             (backups[0].id, True)],
            [(one.backup_id, one.usable) for one in found])
        self.assertIn('the status of %s is error' % backups[1].id,
                      found[0].reason)
        self.refused('the status of', backups[2])
        self.open(backups[0])

    def test_another_project_sees_nothing(self):
        backups, _ = self.chain(increments=0)
        self.assertEqual([], self.find(backups[0].volume_id,
                                       'f' * 32))
        self.refused('another project', backups[0], project='f' * 32)

    def test_another_volume(self):
        backups, _ = self.chain(increments=0)
        other = self.make_volume()
        self.assertEqual([], self.find(other.id))
        self.refused('another volume', backups[0], volume_id=other.id)

    def test_a_volume_that_was_made_from_a_backup(self):
        backups, _ = self.chain(increments=1)
        other = self.make_volume(metadata={'src_backup_id': backups[1].id})
        found, = self.find(other.id)
        self.assertEqual(backups[1].id, found.backup_id)
        self.assertEqual([backups[1].id, backups[0].id],
                         self.open(backups[1], volume_id=other.id))

    def test_an_encrypted_volume(self):
        backups, _ = self.chain(increments=1)
        backups[0].encryption_key_id = backups[0].id
        backups[0].save()
        self.refused('ciphertext', backups[0])
        self.refused('ciphertext', backups[1])

    def test_another_driver(self):
        backups, _ = self.chain(increments=0)
        backups[0].service = 'cinder.backup.drivers.s3.S3BackupDriver'
        backups[0].save()
        self.refused('was made by the driver', backups[0])

    def test_a_place_outside_the_store(self):
        backups, _ = self.chain(increments=0)
        for container in ('/etc', '../x', 'a/../../b'):
            backups[0].container = container
            backups[0].save()
            error = self.assertRaises(errors.BackupRefused,
                                      self.store_of_host.layer, backups[0])
            self.assertIn('its container is', str(error))

    def test_a_parent_that_is_gone(self):
        backups, _ = self.chain(increments=1)
        backups[0].destroy()
        self.refused('does not exist', backups[1])
