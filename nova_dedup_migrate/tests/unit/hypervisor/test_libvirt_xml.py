# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.hypervisor import libvirt_xml
from nova_dedup_migrate.tests import base

DOMAIN = '''
<domain>
  <devices>
    <disk type='file' device='disk'>
      <target dev='vda' bus='virtio'/>
      <alias name='virtio-disk0'/>
    </disk>
    <disk type='block' device='lun'>
      <target dev='sda' bus='scsi'/>
      <alias name='ua-volume'/>
    </disk>
    <disk type='file' device='cdrom'>
      <target dev='hda' bus='ide'/>
      <alias name='ide0-0-0'/>
    </disk>
    <disk type='file'>
      <target dev='vdb'/>
    </disk>
  </devices>
</domain>
'''


class ReadTest(base.TestCase):

    def test_disks(self):
        self.assertEqual({'vda': 'virtio-disk0', 'sda': 'ua-volume'},
                         libvirt_xml.disks(DOMAIN))
