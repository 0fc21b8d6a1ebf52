# SPDX-License-Identifier: Apache-2.0
import dataclasses
import itertools
import json
import pathlib

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base
from testkit import command
from testkit import spec


@dataclasses.dataclass
class Paths:
    """Stands for the guest, which knows its paths."""

    console: pathlib.Path = pathlib.Path('/run/console.log')

    def channel(self, name):
        return pathlib.Path('/run') / name


class CommandTest(base.TestCase):

    def build(self, incoming=False, paused=False, **given):
        guest = spec.GuestSpec(binary='qemu', **given)
        return command.build(guest, '/bin/qemu', Paths(), 9, incoming,
                             paused)

    def values(self, argv, option):
        """Values of an option, decoded where they are JSON."""
        return [json.loads(value) if value.startswith('{') else value
                for key, value in itertools.pairwise(argv) if key == option]

    def test_least(self):
        argv = self.build()
        self.assertEqual('/bin/qemu', argv[0])
        self.assertEqual(['256M'], self.values(argv, '-m'))
        self.assertEqual(['pc'], self.values(argv, '-machine'))
        self.assertEqual(['tcg'], self.values(argv, '-accel'))
        self.assertIn('socket,id=qmp,fd=9', argv)
        for option in ('-incoming', '-S', '-kernel', '-blockdev', '-L',
                       '-cpu'):
            self.assertNotIn(option, argv)

    def test_destination(self):
        argv = self.build(incoming=True)
        self.assertEqual(['defer'], self.values(argv, '-incoming'))

    def test_paused(self):
        self.assertIn('-S', self.build(paused=True))

    def test_name_with_a_comma(self):
        self.assertEqual(['a,,b'],
                         self.values(self.build(name='a,b'), '-name'))

    def test_kernel(self):
        argv = self.build(kernel=pathlib.Path('/k'),
                          initrd=pathlib.Path('/i'), append='quiet x=1')
        self.assertEqual(['/k'], self.values(argv, '-kernel'))
        self.assertEqual(['/i'], self.values(argv, '-initrd'))
        self.assertEqual(['quiet x=1'], self.values(argv, '-append'))

    def test_extra_arguments_come_last(self):
        argv = self.build(extra_args=('-device', 'x'))
        self.assertEqual(['-device', 'x'], argv[-2:])

    def test_disk(self):
        argv = self.build(disks=(spec.Disk(pathlib.Path('/d,1'), 'qcow2'),))
        file, node = self.values(argv, '-blockdev')
        self.assertEqual('/d,1', file['filename'])
        self.assertTrue(file['cache']['direct'])
        self.assertEqual(('qcow2', file['node-name']),
                         (node['driver'], node['file']))
        self.assertEqual(
            [{'driver': 'virtio-blk-pci', 'id': 'disk0',
              'drive': node['node-name']}], self.values(argv, '-device'))

    def test_writeback(self):
        argv = self.build(disks=(spec.Disk(pathlib.Path('/d'),
                                           cache='writeback'),))
        self.assertFalse(
            self.values(argv, '-blockdev')[0]['cache']['direct'])

    def test_iothreads(self):
        argv = self.build(disks=(
            spec.Disk(pathlib.Path('/a'), iothread=True),
            spec.Disk(pathlib.Path('/b'), device='virtio-scsi',
                      iothread=True)))
        self.assertEqual(['disk0-thread', 'disk1-thread'],
                         [o['id'] for o in self.values(argv, '-object')])
        blk, bus, scsi = self.values(argv, '-device')
        self.assertEqual('disk0-thread', blk['iothread'])
        self.assertEqual('disk1-thread', bus['iothread'])
        self.assertEqual('disk1-bus.0', scsi['bus'])
        self.assertNotIn('iothread', scsi)

    def test_nvme_has_a_serial(self):
        argv = self.build(disks=(spec.Disk(pathlib.Path('/a'),
                                           device='nvme', id='fast'),))
        self.assertEqual('fast', self.values(argv, '-device')[0]['serial'])

    def test_explicit_nodes(self):
        nodes = ({'driver': 'null-co', 'node-name': 'a'},
                 {'driver': 'throttle', 'node-name': 'b', 'file': 'a'})
        argv = self.build(disks=(spec.Disk(blockdev=nodes),))
        self.assertEqual(list(nodes), self.values(argv, '-blockdev'))
        self.assertEqual('b', self.values(argv, '-device')[0]['drive'])

    def test_channels(self):
        argv = self.build(channels=(
            spec.Channel('report'),
            spec.Channel('agent', 'virtio-serial', 'socket')))
        self.assertEqual(['chardev:console', 'chardev:channel0'],
                         self.values(argv, '-serial'))
        self.assertIn('file,id=channel0,path=/run/report', argv)
        self.assertIn('socket,server=on,wait=off,id=channel1,'
                      'path=/run/agent', argv)
        self.assertEqual('agent', self.values(argv, '-device')[1]['name'])

    def test_huge_pages(self):
        argv = self.build(memory_path=pathlib.Path('/hugetlb'))
        backend, = self.values(argv, '-object')
        self.assertEqual(('memory-backend-file', '/hugetlb', 256 << 20),
                         (backend['qom-type'], backend['mem-path'],
                          backend['size']))
        self.assertEqual(['pc,memory-backend=pc.ram'],
                         self.values(argv, '-machine'))


class SpecTest(base.TestCase):

    def test_bad_disks(self):
        for given in ({'format': 'vmdk'}, {'device': 'floppy'},
                      {'cache': 'unsafe'}, {'aio': 'posix'},
                      {'path': None},
                      {'blockdev': ({'driver': 'null-co'},)},
                      {'device': 'ide', 'iothread': True},
                      {'aio': 'native', 'cache': 'writeback'},
                      {'path': None, 'blockdev': ({'driver': 'x'},)}):
            given = {'path': pathlib.Path('/d'), **given}
            self.assertRaises(errors.OptionError, spec.Disk, **given)

    def test_bad_guests(self):
        disk = spec.Disk(pathlib.Path('/d'), id='a')
        for given in ({'accel': 'xen'}, {'memory_mib': 0}, {'vcpus': 'two'},
                      {'append': 'quiet'}, {'disks': (disk, disk)},
                      {'channels': tuple(spec.Channel(str(n))
                                         for n in range(4))}):
            self.assertRaises(errors.OptionError, spec.GuestSpec,
                              binary='q', **given)

    def test_bad_channel(self):
        self.assertRaises(errors.OptionError, spec.Channel, 'a', 'usb')
        self.assertRaises(errors.OptionError, spec.Channel, 'a',
                          backend='pty')

    def test_missing_binary(self):
        guest = spec.GuestSpec(binary='/nowhere/qemu')
        self.assertRaises(errors.BinaryNotFound, guest.check_host)

    def test_missing_file(self):
        guest = spec.GuestSpec(binary='sh', kernel=pathlib.Path('/nowhere'))
        error = self.assertRaises(errors.OptionError, guest.check_host)
        self.assertIn('/nowhere', str(error))
