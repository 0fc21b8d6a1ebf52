# SPDX-License-Identifier: Apache-2.0
import errno
import json
import math
import os
import threading
from unittest import mock
import uuid

from nova_dedup_migrate.operations import errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.reports import build
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples

MIGRATION = samples.MIGRATION


class StoreCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.path = self.temporary_dir() / 'a' / 'operations'
        self.store = store.OperationStore(self.path, 3)

    def file(self, name=MIGRATION):
        return self.path / (name + '.json')

    def write(self, age=0, **fields):
        """Write an operation that is so many seconds old; return its UUID.

        It has ended unless fields have a phase.
        """
        name = fields.setdefault('id', str(uuid.uuid4()))
        fields.setdefault('phase', operations.ENDED)
        self.store.write(samples.make(**fields))
        at = self.file(name).stat().st_mtime - age
        os.utime(self.file(name), (at, at))
        return name

    def values(self, name=MIGRATION):
        return json.loads(self.file(name).read_text())

    def unfinished(self):
        """Return the UUIDs of what has not ended, nothing being damaged."""
        found, missing = self.store.unfinished()
        self.assertEqual([], missing)
        return [durable.id for durable, _ in found]


class WriteTest(StoreCase):

    def test_write_and_read(self):
        operation = samples.make()
        written = self.store.write(operation)
        self.assertEqual(build.of_operation(operation), written)
        self.assertEqual(written, self.store.read(MIGRATION))
        self.assertEqual(written, self.store.read(MIGRATION.upper()))
        self.assertEqual(0o640, self.file().stat().st_mode & 0o777)
        self.assertEqual(0, self.path.stat().st_mode & 0o007)

    def test_write_again(self):
        operation = samples.make(self.store.write)
        operation.save()
        operation.finish('cancelled')
        operation.enter(operations.ENDED)
        self.assertEqual('cancelled', self.store.read(MIGRATION).outcome)
        self.assertEqual(1, len(list(self.path.iterdir())))

    def test_after_a_crash(self):
        """All that recovery needs is on the disk."""
        durable = samples.durable(
            phase=operations.ROLLING_BACK, undo=[operations.UNDO_ARM],
            requests=[operations.ABORT], deadline=1800001800.5, failures=2,
            progress=report.Progress(0.25, 7.5, 1.0),
            data={'block_migration': True, 'volumes': {'a': 'b'},
                  'nested': [{'x': [None, 1, 1.5, 'y', False]}]})
        operation = operations.Operation(durable, self.store.write)
        operation.warn('listing', ValueError('x'))
        operation.save()
        fresh = store.OperationStore(self.path, 3)
        (found, reported), = fresh.unfinished()[0]
        self.assertEqual(durable, found)
        self.assertEqual(build.of_operation(operation), reported)

    def test_continued_by_the_next_process(self):
        first = samples.make(self.store.write,
                             data={'a': 1}, error=KeyError('x'))
        first.warn('listing', ValueError('y'))
        first.save()
        (durable, reported), = self.store.unfinished()[0]
        second = operations.Operation(durable, self.store.write, reported)
        second.warn('rolling back', ValueError('z'))
        second.finish('failed')
        second.enter(operations.ENDED)
        made = self.store.read(MIGRATION)
        self.assertEqual(
            ('failed', 'ended', "'x'", ('listing: y', 'rolling back: z')),
            (made.outcome, made.phase, made.error, made.warnings))
        self.assertEqual([], self.unfinished())

    def test_data_goes_when_it_has_ended(self):
        """Nobody needs it, and it is most of the file."""
        operation = samples.make(self.store.write, data={'secret': 'x'})
        operation.save()
        self.assertEqual({'secret': 'x'}, self.values()['operation']['data'])
        operation.enter(operations.ENDED)
        self.assertEqual({}, self.values()['operation']['data'])
        self.assertNotIn('secret', self.file().read_text())
        # the object may still be used
        self.assertEqual({'secret': 'x'}, operation.durable.data)

    def test_no_end_in_sight(self):
        """JSON has no infinity; an operation must be written all the same.
        """
        for left in (math.inf, math.nan):
            self.store.write(samples.make(
                progress=report.Progress(0.5, left, 1.0)))
            (durable, reported), = self.store.unfinished()[0]
            self.assertIsNone(durable.progress.seconds_left)
            self.assertIsNone(reported.progress.seconds_left)

    def test_names_are_checked(self):
        for name in ('', '..', '../x', 'x', None, 5, '{%s}' % MIGRATION,
                     MIGRATION.replace('-', ''), MIGRATION + '/../x',
                     MIGRATION + '\n', 'urn:uuid:' + MIGRATION):
            self.assertRaises(errors.InvalidName, self.store.read, name)
            self.assertRaises(errors.InvalidName, self.store.remove, name)
            self.assertRaises(errors.InvalidName, self.store.write,
                              samples.make(id=name))
        self.assertFalse(self.path.exists())

    def test_remove(self):
        self.write(id=MIGRATION, phase=operations.REQUESTED)
        self.store.remove(MIGRATION)
        self.store.remove(MIGRATION)
        self.assertEqual([], list(self.path.iterdir()))

    def test_not_found(self):
        error = self.assertRaises(errors.OperationNotFound, self.store.read,
                                  MIGRATION)
        self.assertEqual(MIGRATION, error.name)
        self.assertEqual([], self.store.names())
        self.assertEqual(([], []), self.store.reports())
        self.assertEqual(([], []), self.store.unfinished())

    def test_reports(self):
        names = [self.write(age) for age in (10, 30, 20)]
        self.assertEqual(
            [names[0], names[2], names[1]],
            [one.migration_uuid for one in self.store.reports()[0]])
        self.assertEqual(
            [names[0]],
            [one.migration_uuid for one in self.store.reports(1)[0]])

    def test_unfinished(self):
        phases = {phase: self.write(phase=phase)
                  for phase in operations.PHASES}
        del phases[operations.ENDED]
        self.assertEqual(set(phases.values()), set(self.unfinished()))


class AtomicTest(StoreCase):

    def setUp(self):
        super().setUp()
        self.operation = samples.make(self.store.write)
        self.operation.save()
        self.operation.durable.phase = operations.FINISHING

    def check_old_one_is_there(self):
        self.assertEqual('running', self.values()['operation']['phase'])
        self.assertEqual([MIGRATION], self.unfinished())

    def check_fails(self, name, error, reason):
        with mock.patch.object(os, name, autospec=True, side_effect=error):
            raised = self.assertRaises(errors.StoreUnusable,
                                       self.operation.save)
        self.assertIn(reason, str(raised))
        self.check_old_one_is_there()
        self.assertEqual(1, len(list(self.path.iterdir())))

    def test_full_disk(self):
        self.check_fails('fsync', OSError(errno.ENOSPC, 'no space'),
                         'no space')

    def test_rename_fails(self):
        self.check_fails('replace', OSError(errno.EIO, 'no disk'), 'no disk')

    def test_directory_vanishes(self):
        self.check_fails('replace', FileNotFoundError(errno.ENOENT, 'gone'),
                         'gone')

    def test_killed_at_any_time(self):
        """The file is the old one until it is the new one."""
        for name in ('fchmod', 'fsync', 'replace'):
            with mock.patch.object(os, name, autospec=True,
                                   side_effect=KeyboardInterrupt), \
                    mock.patch.object(os, 'unlink', autospec=True):
                self.assertRaises(KeyboardInterrupt, self.operation.save)
            self.check_old_one_is_there()
        # what was left aside is no operation
        self.assertEqual(4, len(list(self.path.iterdir())))
        self.assertEqual([MIGRATION], self.store.names())

    def test_on_the_disk_before_it_has_its_name(self):
        order = mock.Mock(spec=[])
        order.fsync, order.replace = mock.Mock(), mock.Mock()
        with mock.patch.object(os, 'fsync', order.fsync), \
                mock.patch.object(os, 'replace', order.replace):
            self.operation.save()
        self.assertEqual(['fsync', 'replace', 'fsync'],
                         [call[0] for call in order.mock_calls])

    def test_readers_see_whole_files(self):
        stop = threading.Event()
        damaged = []

        def read():
            while not stop.is_set():
                damaged.extend(self.store.reports()[1])

        reader = threading.Thread(target=read)
        reader.start()
        for number in range(50):
            self.operation.enter(operations.RUNNING, data={'a': 'x' * number
                                                           * 1000})
        stop.set()
        reader.join(30)
        self.assertEqual([], damaged)


class PruneTest(StoreCase):

    def test_the_oldest_goes(self):
        names = [self.write(age) for age in (10, 40, 20)]
        newest = self.write()
        self.assertEqual([newest, names[0], names[2]], self.store.names())

    def test_the_new_one_stays(self):
        """Even where clocks say it is the oldest."""
        for age in (-100, -200, -300):
            self.write(age)
        self.assertIn(self.write(), self.store.names())

    def test_a_smaller_limit(self):
        for age in (10, 20, 30):
            self.write(age)
        self.store = store.OperationStore(self.path, 1)
        self.assertEqual([self.write()], self.store.names())

    def test_what_has_not_ended_stays(self):
        phases = [phase for phase in operations.PHASES
                  if phase != operations.ENDED]
        kept = {self.write(1000, phase=phase) for phase in phases}
        for age in (30, 20, 10, 0):
            self.write(age)
        self.assertEqual(kept, set(self.unfinished()))

    def test_nothing_is_pruned_before_the_end(self):
        for age in (10, 20, 30):
            self.write(age)
        for _ in range(5):
            self.write(phase=operations.RUNNING)
        self.assertEqual(8, len(self.store.names()))

    def test_foreign_files_stay(self):
        self.write()
        for name in ('notes.txt', 'x.json', MIGRATION.upper() + '.json'):
            (self.path / name).write_text('')
        for _ in range(5):
            self.write()
        self.assertEqual(3, len(self.store.names()))
        self.assertEqual(6, len(list(self.path.iterdir())))

    def test_leftovers_of_a_crash_go(self):
        self.write()
        old, new = self.path / '.aside-old', self.path / '.aside-new'
        old.write_text('')
        new.write_text('')
        os.utime(old, (0, 0))
        self.write()
        self.assertFalse(old.exists())
        self.assertTrue(new.exists())

    def test_what_is_damaged_goes(self):
        """It would stay for ever; start-up has logged it each time."""
        damaged = self.write(1000)
        self.file(damaged).write_bytes(b'{')
        os.utime(self.file(damaged), (0, 0))
        for age in (20, 10, 0):
            self.write(age)
        self.assertNotIn(damaged, self.store.names())

    def test_what_cannot_be_read_stays(self):
        """It may be an operation that has not ended."""
        unreadable = self.write(1000)
        reads = os.open

        def fail(path, *args, **kwargs):
            if unreadable in str(path):
                raise PermissionError(errno.EACCES, 'denied')
            return reads(path, *args, **kwargs)

        with mock.patch.object(os, 'open', autospec=True, side_effect=fail):
            for age in (20, 10, 0):
                self.write(age)
        self.assertIn(unreadable, self.store.names())

    def test_what_cannot_be_removed_does_no_harm(self):
        self.path.mkdir(parents=True)
        self.file().mkdir()
        os.utime(self.file(), (0, 0))
        names = [self.write(age) for age in (20, 10, 0)]
        self.assertEqual({MIGRATION, *names}, set(self.store.names()))


class DamagedTest(StoreCase):

    def setUp(self):
        super().setUp()
        self.good = self.write(phase=operations.RUNNING)
        self.write(id=MIGRATION, phase=operations.RUNNING)

    def check_damaged(self, kind=errors.OperationDamaged, part=''):
        """It costs one operation and not all."""
        for found, missing in (self.store.unfinished(),
                               self.store.reports()):
            self.assertEqual(1, len(found), part)
            error, = missing
            self.assertIsInstance(error, kind)
            self.assertEqual(str(self.file()), error.path)
            self.assertIn(part, str(error))
        self.assertRaises(kind, self.store.read, MIGRATION)

    def test_bytes(self):
        for data in (b'', b'{', b'[]', b'null', b'{}', b'\xff\xfe',
                     b'[' * 100000, b'{"operation": 1}',
                     b'{"operation": {}}', b'{"version": 1}'):
            self.file().write_bytes(data)
            self.check_damaged()

    def test_size(self):
        self.file().write_bytes(b' ' * (store.MAX_BYTES + 1))
        self.check_damaged(part='more than %d bytes' % store.MAX_BYTES)

    def test_what_is_no_file(self):
        for make, remove in (
                (lambda: self.file().symlink_to('/dev/zero'), os.unlink),
                (lambda: self.file().symlink_to(self.file(self.good)),
                 os.unlink),
                (lambda: os.mkfifo(self.file()), os.unlink),
                (self.file().mkdir, os.rmdir)):
            self.file().unlink()
            make()
            self.check_damaged()
            remove(self.file())
            self.file().touch()

    def test_nothing_is_left_open(self):
        self.file().unlink()
        self.file().mkdir()
        before = len(os.listdir('/proc/self/fd'))
        for _ in range(10):
            self.assertRaises(errors.OperationDamaged, self.store.read,
                              MIGRATION)
        self.assertEqual(before, len(os.listdir('/proc/self/fd')))

    def test_values(self):
        for name, value, part in (
                ('version', 2, 'its version is 2'),
                ('operation.id', 'x', "file of migration 'x'"),
                ('operation.id', self.good, 'file of migration'),
                ('report', None, 'is not a JSON object'),
                ('report.version', 9, 'version'),
                ('report.migration_uuid', 'x', 'about migration'),
                ('report.outcome', 5, 'report.outcome')):
            self.set(name, value)
            self.check_damaged(part=part)
            self.write(id=MIGRATION, phase=operations.RUNNING)

    def set(self, name, value):
        """Set a value in the file; the name is a path."""
        values = inner = self.values()
        *parents, last = name.split('.')
        for parent in parents:
            inner = inner[parent]
        inner[last] = value
        self.file().write_text(json.dumps(values))

    def test_values_of_operations(self):
        """Its report can still be read."""
        for name, value in (
                ('phase', 'walking'), ('phase', None), ('subject', None),
                ('source', 5), ('undo', 5), ('undo', [5]),
                ('requests', [None]), ('failures', 'many'),
                ('deadline', 'noon'), ('data', []), ('progress', 5),
                ('progress', {'share': 'x'})):
            self.set('operation.' + name, value)
            found, missing = self.store.unfinished()
            self.assertEqual(([self.good], 1), (
                [durable.id for durable, _ in found], len(missing)), name)
            self.assertIn(name, str(missing[0]))
            self.assertEqual(MIGRATION,
                             self.store.read(MIGRATION).migration_uuid)
            self.write(id=MIGRATION, phase=operations.RUNNING)

    def test_of_a_later_minor_release(self):
        self.set('operation.colour', 'red')
        self.set('report.colour', 'red')
        self.assertIn(MIGRATION, self.unfinished())

    def test_unreadable(self):
        """As with a disk that has bad sectors."""
        reads = os.open

        def fail(path, *args, **kwargs):
            if str(path) == str(self.file()):
                raise OSError(errno.EIO, 'bad sector')
            return reads(path, *args, **kwargs)

        with mock.patch.object(os, 'open', autospec=True, side_effect=fail):
            self.check_damaged(errors.StoreUnusable, 'bad sector')

    def test_directory_cannot_be_made(self):
        self.path = self.temporary_dir() / 'a file'
        self.path.write_text('')
        for path in (self.path, self.path / 'operations'):
            self.store = store.OperationStore(path, 3)
            self.assertRaises(errors.StoreUnusable, self.store.write,
                              samples.make())
            self.assertRaises(errors.StoreUnusable, self.store.names)
            self.assertRaises(errors.StoreUnusable, self.store.unfinished)


class ThreadsTest(StoreCase):

    def test_many_writers(self):
        threads = [threading.Thread(target=self.write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        reports, missing = self.store.reports()
        self.assertEqual((3, []), (len(reports), missing))

    def test_many_writers_of_what_goes_on(self):
        """None of them loses what another one has written."""
        threads = [threading.Thread(target=self.write, kwargs={
            'phase': phase}) for phase in 6 * (operations.RUNNING,
                                               operations.ENDED)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual(6, len(self.unfinished()))

    def test_one_operation_of_many_threads(self):
        operation = samples.make(self.store.write)
        entries = ['entry %d' % number for number in range(16)]
        threads = [threading.Thread(target=operation.will, args=(entry,))
                   for entry in entries]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        (durable, _), = self.store.unfinished()[0]
        self.assertEqual(sorted(entries), sorted(durable.undo))
