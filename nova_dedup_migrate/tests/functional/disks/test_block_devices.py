# SPDX-License-Identifier: Apache-2.0
"""Seeded mirrors of what is no file: block devices and RBD images.

A loop device is to QEMU what a logical volume of LVM is.
"""

import subprocess

from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from testkit import ceph
from testkit import spec


class BlockDevicesTest(case.SeedCase):

    def mirrored(self, boot, disks, paths):
        """Mirror a disk that boots the guest; the target is empty before.

        :param disks: protocol nodes of both, without a name
        :param paths: of both, for qemu-img
        """
        source, target = (spec.Disk(blockdev=(
            {**disk, 'node-name': 'disk0-file'},
            {'driver': 'raw', 'node-name': 'disk0-format',
             'file': 'disk0-file'})) for disk in disks)
        self.images.img('convert', '-n', '-f', 'raw', '-O', 'raw', boot,
                        paths[0])
        one = rig.Rig(
            self, self.binary,
            disk=spec.Disk(blockdev=source.blockdev, iothread=True),
            target=target, image=(paths[0], 'raw'),
            target_image=(paths[1], 'raw'), boot=True)
        one.start()
        self.check_mirror(one)

    def loop(self, name, size):
        """Return the path of a loop device over an empty file."""
        found = subprocess.run(
            ['losetup', '--find', '--show', self.raw(name, size=size)],
            check=True, capture_output=True, text=True).stdout.strip()
        self.addCleanup(subprocess.run, ['losetup', '-d', found], check=True)
        return found

    def test_block_device(self):
        boot, content = self.images.raw('boot.raw')
        paths = [self.loop(name, len(content))
                 for name in ('source.img', 'target.img')]
        self.mirrored(boot, [
            {'driver': 'host_device', 'filename': path,
             'cache': {'direct': True}} for path in paths], paths)

    def test_rbd(self):
        self.assertEqual([], ceph.missing(), 'see bindep.txt')
        boot, content = self.images.raw('boot.raw')
        cluster = ceph.Cluster(self.temporary_dir())
        self.addCleanup(cluster.stop)
        cluster.start()
        names = 'source', 'target'
        for name in names:
            cluster.run('rbd', 'create', '-s', f'{len(content)}B',
                        f'{ceph.POOL}/{name}')
        self.mirrored(boot, [
            {'driver': 'rbd', 'pool': ceph.POOL, 'image': name,
             'conf': str(cluster.conf)} for name in names],
            [f'rbd:{ceph.POOL}/{name}:conf={cluster.conf}'
             for name in names])
