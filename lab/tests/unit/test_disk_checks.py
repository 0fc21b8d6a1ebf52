# SPDX-License-Identifier: Apache-2.0
import json
import subprocess
from unittest import mock

from lab import cloud as clouds
from lab import disk_checks
from lab import errors
from lab import settings
from lab.faults import programs
from lab.hosts import host
from nova_dedup_migrate.tests import base

UUID = '22222222-0000-4000-8000-000000000002'


class DiskChecksCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.top = self.temporary_dir()
        self.source, self.destination = self.host('one'), self.host('two')
        self.commands = []
        self.cloud = mock.create_autospec(clouds.Cloud, instance=True)
        self.cloud.settings = settings.Settings('local')
        self.cloud.qemu.return_value = self.top

    def host(self, name):
        made = mock.create_autospec(host.Host, instance=True)
        made.name = name
        made.directory = made.root = self.top / name
        made.processes.return_value = []
        made.run.side_effect = self.run_command
        return made

    def run_command(self, argv, **_kwargs):
        """qemu-img of raw files, in short."""
        self.commands.append(argv[:2])
        status, out = 0, ''
        if argv[1] == 'info':
            out = json.dumps({'virtual-size': argv[-1].stat().st_size})
        elif argv[1] == 'compare':
            status = int(argv[-2].read_bytes() != argv[-1].read_bytes())
            out = 'Content mismatch at offset 0!\n' * status
        return subprocess.CompletedProcess(argv, status, out, '')

    def disk(self, on, content, name='disk'):
        path = on.directory / disk_checks._INSTANCES / UUID / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path


class KeptTest(DiskChecksCase):

    def test_equal_after_the_source_was_removed(self):
        before = self.disk(self.source, b'content')
        self.disk(self.source, b'{}', 'disk.info')
        with disk_checks.Kept(self.cloud, self.source, UUID) as kept:
            before.unlink()
            self.disk(self.destination, b'content')
            self.assertEqual(disk_checks.Compared(7),
                             kept.compare(self.destination))
        self.assertEqual(['virsh', 'suspend'], self.commands[0])
        self.assertEqual(['virsh', 'resume'], self.commands[-1])
        self.assertFalse((self.source.directory / disk_checks._KEPT
                          / UUID).exists())

    def test_a_byte_differs(self):
        self.disk(self.source, b'content')
        self.disk(self.destination, b'contenT')
        with disk_checks.Kept(self.cloud, self.source, UUID) as kept:
            found = kept.compare(self.destination)
        self.assertEqual(('disk disk: Content mismatch at offset 0!',),
                         found.problems)

    def test_a_disk_is_missing(self):
        self.disk(self.source, b'content')
        self.disk(self.source, b'content', 'disk.eph0')
        self.disk(self.destination, b'content')
        with disk_checks.Kept(self.cloud, self.source, UUID) as kept:
            self.assertIn('disk instead of disk, disk.eph0', kept.compare(
                self.destination).problems[0])

    def test_it_cannot_be_compared(self):
        self.disk(self.source, b'content')
        self.disk(self.destination, b'content')
        self.destination.run.side_effect = None
        self.destination.run.return_value = subprocess.CompletedProcess(
            [], 2, '{"virtual-size": 1}', 'no such file')
        with disk_checks.Kept(self.cloud, self.source, UUID) as kept:
            self.assertRaises(errors.LabError, kept.compare,
                              self.destination)


class LeftTest(DiskChecksCase):

    def test_digests(self):
        self.disk(self.source, b'content')
        self.disk(self.destination, b'content')
        source, destination = (disk_checks.digests(
            self.cloud, host_, UUID, True)
            for host_ in (self.source, self.destination))
        self.assertEqual(source, destination)
        self.disk(self.destination, b'contenT')
        self.assertNotEqual(source, disk_checks.digests(
            self.cloud, self.destination, UUID, False))

    def test_left(self):
        self.assertEqual([], list(disk_checks.left(self.source)))
        for directory in 'dedup_journals', 'dedup_replicas':
            path = self.source.directory / 'var/lib/nova' / directory
            path.mkdir(parents=True)
            (path / 'x').touch()
        self.source.processes.return_value = [mock.Mock(pid=7)]
        with mock.patch.object(
                programs, 'command_line', autospec=True,
                return_value=[b'/q/qemu-storage-daemon', b'--chardev']):
            self.assertEqual(['one: journal x', 'one: replica x',
                              'one: qemu-storage-daemon 7'],
                             list(disk_checks.left(self.source)))

    def test_watched(self):
        self.source.run.side_effect = lambda argv, **_: (
            subprocess.CompletedProcess(argv, 0, json.dumps(
                {'return': [1] if 'disk-query' in argv[-1] else []}), ''))
        found, = disk_checks.watched(self.source, UUID)
        self.assertIn('watches a disk', found)
