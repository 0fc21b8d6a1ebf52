# SPDX-License-Identifier: Apache-2.0
import pathlib
from xml.etree import ElementTree

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base
from testkit import libvirt_xml
from testkit import spec

DISK = spec.Disk(pathlib.Path('/images/a & b.img'))
RUN_DIR = pathlib.Path('/guests/one')

DOMAIN = '''
<domain>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <serial type='file'><source path='/guests/one/console.log'/></serial>
    <console type='file'><source path='/guests/one/console.log'/></console>
    <serial type='file'><source path='/guests/one-too/console.log'/>
    </serial>
    <channel type='unix'><source mode='bind'/></channel>
  </devices>
</domain>
'''


class BuildTest(base.TestCase):

    def build(self, **given):
        given.setdefault('disks', (DISK,))
        return ElementTree.fromstring(libvirt_xml.build(
            spec.GuestSpec('/usr/bin/qemu', **given), 'one',
            'c5c3b5a0-5d2c-4d8e-9d86-1b4a2b8d7f00', RUN_DIR))

    def test_minimal(self):
        root = self.build()
        self.assertEqual('qemu', root.get('type'))
        self.assertEqual('256', root.findtext('memory'))
        self.assertEqual('/images/a & b.img',
                         root.find('devices/disk/source').get('file'))
        self.assertEqual('raw', root.find('devices/disk/driver').get('type'))
        self.assertEqual('vda', root.find('devices/disk/target').get('dev'))
        self.assertEqual('/guests/one/console.log',
                         root.find('devices/serial/source').get('path'))
        self.assertIsNone(root.find('memoryBacking'))
        self.assertIsNone(root.find('cpu'))

    def test_what_spec_has(self):
        root = self.build(
            accel='kvm', cpu='Nehalem', memory_share=True, machine='q35',
            kernel=pathlib.Path('/k'), append='quiet',
            disks=(spec.Disk(DISK.path, device='ide', serial='7'),
                   spec.Disk(DISK.path, device='virtio-scsi'),
                   spec.Disk(DISK.path, id='data', iothread=True,
                             read_only=True)),
            extra_args=('-name', 'a<b'), env={'A': 'b'},
            channels=(spec.Channel('agent', 'virtio-serial', 'socket'),))
        self.assertEqual('kvm', root.get('type'))
        self.assertEqual('Nehalem', root.findtext('cpu/model'))
        self.assertEqual('shared', root.find('memoryBacking/access')
                         .get('mode'))
        self.assertEqual(['sda', 'sdb', 'vdc'], [
            t.get('dev') for t in root.iterfind('devices/disk/target')])
        self.assertEqual('ua-data', root.find('devices/disk/alias')
                         .get('name'))
        self.assertEqual('3', root.findall('devices/disk/driver')[2]
                         .get('iothread'))
        self.assertEqual(1, len(root.findall('devices/disk/readonly')))
        self.assertEqual('agent', root.find('devices/channel/target')
                         .get('name'))
        self.assertEqual('quiet', root.findtext('os/cmdline'))
        line = root.find('{%s}commandline' % libvirt_xml._QEMU)
        self.assertEqual(['-name', 'a<b', None],
                         [e.get('value') if 'env' not in e.tag else None
                          for e in line])

    def test_what_libvirt_cannot_do(self):
        for given in ({'firmware': pathlib.Path('/f')},
                      {'memory_path': pathlib.Path('/m')},
                      {'cpu': 'qemu64,kvm=off'},
                      {'disks': (spec.Disk(DISK.path, device='nvme'),)},
                      {'disks': (spec.Disk(blockdev=(
                          {'driver': 'null-co', 'node-name': 'n'},)),)}):
            error = self.assertRaises(errors.NotOffered, self.build, **given)
            self.assertIn('libvirt', error.reason)


class MovedTest(base.TestCase):

    def test_moved(self):
        moved = ElementTree.fromstring(libvirt_xml.moved(
            DOMAIN, '/opt/qemu', '/guests/one', '/guests/two'))
        self.assertEqual('/opt/qemu', moved.findtext('devices/emulator'))
        self.assertEqual(
            ['/guests/two/console.log', '/guests/one-too/console.log'],
            [s.get('path') for s in moved.iterfind('devices/serial/source')])
        self.assertEqual('/guests/two/console.log',
                         moved.find('devices/console/source').get('path'))
