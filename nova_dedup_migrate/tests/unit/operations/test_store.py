# SPDX-License-Identifier: Apache-2.0
import errno
import os
import threading
from unittest import mock
import uuid

from nova_dedup_migrate.reports import errors
from nova_dedup_migrate.reports import store
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.reports import samples


class StoreTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_dir() / 'a' / 'reports'
        self.store = store.ReportStore(self.path, 3)

    def _file(self, name=samples.MIGRATION):
        return self.path / (name + '.json')

    def _write(self, age=0):
        """Write a report that is so many seconds old; return its name."""
        name = str(uuid.uuid4())
        self.store.write(samples.make(name))
        at = self._file(name).stat().st_mtime - age
        os.utime(self._file(name), (at, at))
        return name

    def test_write_and_read(self):
        self.store.write(samples.make())
        self.assertEqual(samples.make(), self.store.read(samples.MIGRATION))
        self.assertEqual(samples.make(),
                         self.store.read(samples.MIGRATION.upper()))
        self.assertEqual(0o640, self._file().stat().st_mode & 0o777)

    def test_write_again(self):
        self.store.write(samples.make(outcome='running'))
        self.store.write(samples.make(outcome='cancelled'))
        self.assertEqual('cancelled',
                         self.store.read(samples.MIGRATION).outcome)
        self.assertEqual(1, len(list(self.path.iterdir())))

    def test_names_are_checked(self):
        for name in ('', '..', '../x', 'x', None, 5,
                     '{%s}' % samples.MIGRATION,
                     samples.MIGRATION.replace('-', ''),
                     samples.MIGRATION + '/../x', samples.MIGRATION + '\n'):
            self.assertRaises(errors.InvalidName, self.store.read, name)
            self.assertRaises(errors.InvalidName, self.store.write,
                              samples.make(name))
        self.assertFalse(self.path.exists())

    def test_not_found(self):
        error = self.assertRaises(errors.ReportNotFound, self.store.read,
                                  samples.MIGRATION)
        self.assertEqual(samples.MIGRATION, error.name)
        self.assertEqual([], self.store.names())
        self.assertEqual(([], []), self.store.list())

    def test_the_oldest_goes(self):
        names = [self._write(age) for age in (10, 40, 20)]
        newest = self._write()
        self.assertEqual([newest, names[0], names[2]], self.store.names())

    def test_the_new_one_stays(self):
        """Even where clocks say it is the oldest."""
        for age in (-100, -200, -300):
            self._write(age)
        self.assertIn(self._write(), self.store.names())

    def test_a_smaller_limit(self):
        for age in (10, 20, 30):
            self._write(age)
        self.store = store.ReportStore(self.path, 1)
        self.assertEqual([self._write()], self.store.names())

    def test_list(self):
        names = [self._write(age) for age in (10, 30, 20)]
        self.assertEqual(
            [names[0], names[2], names[1]],
            [report.migration_uuid for report in self.store.list()[0]])
        self.assertEqual(1, len(self.store.list(1)[0]))

    def test_damaged_is_told_and_not_fatal(self):
        good, bad = self._write(), self._write()
        self._file(bad).write_bytes(b'{"version": 1')
        error = self.assertRaises(errors.ReportDamaged, self.store.read,
                                  bad)
        self.assertEqual(str(self._file(bad)), error.path)
        reports, damaged = self.store.list()
        self.assertEqual([good], [one.migration_uuid for one in reports])
        self.assertEqual([str(self._file(bad))],
                         [one.path for one in damaged])

    def test_what_is_no_report(self):
        self._write()
        file = self._file()
        for make in (lambda: file.symlink_to('/dev/zero'),
                     lambda: os.mkfifo(file), file.mkdir,
                     lambda: file.write_bytes(b' ' * (store.MAX_BYTES + 1)),
                     lambda: self._write_as(file)):
            make()
            self.assertRaises((errors.ReportDamaged, errors.StoreUnusable),
                              self.store.read, samples.MIGRATION)
            file.rmdir() if file.is_dir() else file.unlink()

    def _write_as(self, file):
        file.write_bytes(self._file(self._write()).read_bytes())

    def test_foreign_files_stay(self):
        self._write()
        for name in ('notes.txt', 'x.json', samples.MIGRATION.upper()
                     + '.json'):
            (self.path / name).write_text('')
        for _ in range(5):
            self._write()
        self.assertEqual(3, len(self.store.names()))
        self.assertEqual(6, len(list(self.path.iterdir())))

    def test_leftovers_of_a_crash_go(self):
        self._write()
        old, new = self.path / '.aside-old', self.path / '.aside-new'
        old.write_text('')
        new.write_text('')
        os.utime(old, (0, 0))
        self._write()
        self.assertFalse(old.exists())
        self.assertTrue(new.exists())

    def test_full_disk(self):
        self.store.write(samples.make(outcome='running'))
        with mock.patch.object(
                os, 'fsync', autospec=True,
                side_effect=OSError(errno.ENOSPC, 'no space')):
            error = self.assertRaises(errors.StoreUnusable,
                                      self.store.write, samples.make())
        self.assertIn('no space', str(error))
        self.assertEqual('running',
                         self.store.read(samples.MIGRATION).outcome)
        self.assertEqual(1, len(list(self.path.iterdir())))

    def test_no_folder_can_be_made(self):
        self.path.parent.write_text('a file')
        self.assertRaises(errors.StoreUnusable, self.store.write,
                          samples.make())
        self.assertRaises(errors.StoreUnusable, self.store.names)

    def test_many_writers(self):
        threads = [threading.Thread(target=self._write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        reports, damaged = self.store.list()
        self.assertEqual((3, 0), (len(reports), len(damaged)))
