# SPDX-License-Identifier: Apache-2.0
from lab import errors
from lab import settings
from nova_dedup_migrate.tests import base


class TestSettings(base.TestCase):

    def test_what_is_saved_is_loaded(self):
        directory = self.temporary_dir()
        ours = settings.Settings('volume', ('stock', 'dedup'),
                                 ('patched', 'stock'), 1, 2)
        ours.save(directory)
        loaded = settings.Settings.load(directory)
        self.assertEqual(ours, loaded)
        self.assertEqual(ours.password, loaded.password)

    def test_backups_are_saved(self):
        directory = self.temporary_dir()
        settings.Settings('volume', backups=True).save(directory)
        loaded = settings.Settings.load(directory)
        self.assertEqual(('nas', 'nas2'), loaded.nases)
        self.assertEqual(('backup1', 'backup2'), loaded.backup_hosts)
        self.assertEqual(('nas',), settings.Settings('volume').nases)
        self.assertEqual((), settings.Settings('ceph').nases)

    def test_no_directory_has_no_settings(self):
        self.assertIsNone(settings.Settings.load(self.temporary_dir()))

    def test_a_damaged_file_is_named(self):
        directory = self.temporary_dir()
        for text in ('{', '[]', '{"drivers": [], "qemus": [], "x": 1}'):
            (directory / 'settings.json').write_text(text)
            error = self.assertRaises(errors.LabError,
                                      settings.Settings.load, directory)
            self.assertIn('make lab-down', str(error))

    def test_two_labs_with_other_passwords_are_the_same(self):
        self.assertEqual(settings.Settings(), settings.Settings())

    def test_storage_follows_from_the_profile(self):
        storage = {profile: (one.has_nas, one.has_cinder, one.has_ceph)
                   for profile in settings.PROFILES
                   for one in [settings.Settings(profile)]}
        self.assertEqual({
            'shared': (True, False, False),
            'local': (False, False, False),
            'volume': (True, True, False),
            'ceph': (False, True, True)}, storage)

    def test_one_value_is_for_both_hosts(self):
        self.assertEqual(
            ('stock', 'stock'),
            settings.of_each_host('stock', settings.DRIVERS))
        self.assertEqual(
            ('dedup', 'stock'),
            settings.of_each_host('dedup,stock', settings.DRIVERS))

    def test_other_values_are_refused(self):
        for text in ('', 'other', 'stock,', 'stock,stock,stock'):
            self.assertRaises(ValueError, settings.of_each_host, text,
                              settings.DRIVERS)
