# SPDX-License-Identifier: Apache-2.0
import contextlib
import json
import os
from unittest import mock

from nova import objects

from nova_dedup_migrate.compute import journal
from nova_dedup_migrate.tests import base

INSTANCE = '22222222-0000-4000-8000-000000000002'
MIGRATION = '11111111-0000-4000-8000-000000000001'


def entry(**data):
    return journal.Entry(
        MIGRATION, INSTANCE, 'there', True, objects.LibvirtLiveMigrateData(
            migration=objects.Migration(uuid=MIGRATION),
            is_shared_block_storage=False, **data))


class JournalTest(base.TestCase):

    def setUp(self):
        super().setUp()
        objects.register_all()
        self.folder = self.temporary_dir() / 'under-way'
        self.journal = journal.Journal(self.folder)

    def only(self):
        (found,), damaged = self.journal.entries()
        self.assertEqual([], damaged)
        return found

    @contextlib.contextmanager
    def during(self, kept):
        self.journal.keep(kept)
        yield
        self.journal.forget(kept)

    def test_it_is_there_as_long_as_the_migration(self):
        self.assertEqual(([], []), self.journal.entries())
        with self.during(entry(
                old_vol_attachment_ids={'volume': 'attachment'})):
            found = self.only()
            self.assertEqual(
                (MIGRATION, INSTANCE, 'there', True),
                (found.migration_uuid, found.instance_uuid,
                 found.destination, found.block_migration))
            self.assertFalse(found.migrate_data.is_shared_block_storage)
            self.assertEqual({'volume': 'attachment'},
                             found.migrate_data.old_vol_attachment_ids)
        self.assertEqual(([], []), self.journal.entries())

    def test_nothing_secret_is_kept(self):
        data = entry(vtpm_secret_value='secret', bdms=[
            objects.LibvirtLiveMigrateBDMInfo(
                serial='s', connection_info={'password': 'secret'})])
        with self.during(data):
            path, = self.folder.iterdir()
            self.assertNotIn('secret', path.read_text())
            self.assertEqual(0o600, path.stat().st_mode & 0o777)
            self.assertNotIn('migration', self.only().migrate_data)
        self.assertEqual('secret', data.migrate_data.vtpm_secret_value)

    def test_it_may_be_forgotten_twice(self):
        with self.during(entry()):
            self.journal.forget(self.only())
            self.assertEqual(([], []), self.journal.entries())

    def test_killed_while_it_was_written(self):
        def die(source, target):
            raise SystemExit()

        def write():
            with mock.patch.object(os, 'replace', autospec=True,
                                   side_effect=die):
                self.journal.keep(entry())

        self.journal.tidy()
        self.assertRaises(SystemExit, write)
        self.assertEqual(([], []), self.journal.entries())
        with self.during(entry()):
            aside = self.folder / (INSTANCE + '.aside')
            aside.touch()
            self.journal.tidy()
            self.assertFalse(aside.exists())
            self.only()
        self.assertEqual([], list(self.folder.iterdir()))

    def test_damaged_files_are_told(self):
        with self.during(entry()):
            path, = self.folder.iterdir()
            good = json.loads(path.read_text())
            for bad in ('', '[]', '{}', 'x' * (journal.MAX_BYTES + 1),
                        json.dumps({**good, 'version': 2}),
                        json.dumps({**good, 'instance_uuid': '../x'}),
                        json.dumps({**good, 'migrate_data': 1}),
                        json.dumps({**good, 'migrate_data': entry()
                                    .migrate_data.migration
                                    .obj_to_primitive()})):
                path.write_text(bad)
                found, damaged = self.journal.entries()
                self.assertEqual([], found)
                self.assertIn(str(path), str(damaged[0]))
