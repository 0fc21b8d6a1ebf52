# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.compute import disks
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.tests import base

XML = """
<domain type='qemu' id='3'>
  <name>instance-00000001</name>
  <devices>
    <emulator>/usr/bin/qemu-system-x86_64</emulator>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='none'/>
      <source file='/var/lib/nova/instances/x/disk' index='1'/>
      <backingStore type='file' index='3'>
        <format type='raw'/>
        <source file='/var/lib/nova/instances/_base/y'/>
        <backingStore/>
      </backingStore>
      <target dev='vda' bus='virtio'/>
      <alias name='virtio-disk0'/>
    </disk>
    <disk type='block' device='disk'>
      <source dev='/dev/sdb' index='2'/>
      <backingStore/>
      <target dev='vdb' bus='virtio'/>
      <serial>7ba3cb1f-b4f3-4af3-b3b3-4f3f4f3f4f3f</serial>
      <alias name='ua-7ba3cb1f'/>
    </disk>
    <disk type='network' device='disk'>
      <auth username='cinder'>
        <secret type='ceph' uuid='457eb676-33da-42ec-9a8c-9293d545c337'/>
      </auth>
      <source protocol='rbd' name='volumes/volume-1' index='4'>
        <host name='192.0.2.1' port='6789'/>
      </source>
      <target dev='vdc' bus='virtio'/>
      <alias name='virtio-disk2'/>
    </disk>
    <disk type='network' device='lun'>
      <source protocol='iscsi' name='iqn.x/0'/>
      <target dev='sda' bus='scsi'/>
      <alias name='scsi0-0-0-0'/>
    </disk>
    <disk type='file' device='cdrom'>
      <source file='/var/lib/nova/instances/x/disk.config'/>
      <target dev='hda' bus='ide'/>
      <alias name='ide0-0-0'/>
    </disk>
    <disk type='file' device='disk'>
      <source file='/not/started'/>
      <target dev='vdd' bus='virtio'/>
    </disk>
  </devices>
</domain>
"""


class ParseTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.domain = disks.parse(XML)
        self.disks = {disk.target: disk for disk in self.domain.disks}

    def test_which_disks(self):
        self.assertEqual(['vda', 'vdb', 'vdc', 'sda'], list(self.disks))

    def test_emulator(self):
        self.assertEqual('/usr/bin/qemu-system-x86_64', self.domain.emulator)

    def test_memory(self):
        self.assertFalse(self.domain.huge_pages)
        self.assertTrue(disks.parse(
            '<domain><memoryBacking><hugepages/></memoryBacking></domain>'
        ).huge_pages)

    def test_chain_of_files(self):
        self.assertEqual('virtio-disk0', self.disks['vda'].device)
        self.assertEqual(
            (nodes.Node('file', '/var/lib/nova/instances/x/disk'),
             nodes.Node('file', '/var/lib/nova/instances/_base/y')),
            self.disks['vda'].chain)

    def test_block(self):
        disk = self.disks['vdb']
        self.assertEqual('7ba3cb1f-b4f3-4af3-b3b3-4f3f4f3f4f3f', disk.serial)
        self.assertEqual((nodes.Node('block', '/dev/sdb'),), disk.chain)

    def test_rbd(self):
        self.assertEqual(
            (nodes.Node('rbd', 'volumes/volume-1', user='cinder',
                        secret='457eb676-33da-42ec-9a8c-9293d545c337'),),
            self.disks['vdc'].chain)

    def test_other(self):
        self.assertEqual((nodes.Node('other', 'network iscsi'),),
                         self.disks['sda'].chain)

    def test_endless_chain(self):
        link = "<source file='/a'/>"
        text = link
        for _ in range(200):
            text = link + "<backingStore type='file'>%s</backingStore>" % text
        domain = disks.parse(
            "<domain><devices><disk type='file'>%s<target dev='vda'/>"
            "<alias name='a'/></disk></devices></domain>" % text)
        self.assertEqual('other', domain.disks[0].chain[-1].kind)
        self.assertEqual(disks.MAX_CHAIN + 1, len(domain.disks[0].chain))

    def test_elsewhere_at_the_destination(self):
        there = self.disks['vdb'].at('/dev/sdz')
        self.assertEqual('vdb', there.target)
        self.assertEqual('/dev/sdz', there.chain[0].destination)

    def test_allocated(self):
        path = self.temporary_dir() / 'disk'
        path.write_bytes(b'x' * 8192)
        disk = disks.DomainDisk('vda', 'd', '',
                                (nodes.Node('file', str(path)),))
        self.assertEqual(path.stat().st_blocks * 512, disk.allocated())

    def test_allocated_of_what_is_not_there(self):
        self.assertEqual(0, self.disks['vdc'].allocated())
