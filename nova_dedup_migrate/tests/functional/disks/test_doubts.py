# SPDX-License-Identifier: Apache-2.0
"""Whatever is in doubt makes a mirror copy everything, with the reason."""

import shutil

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from testkit import spec

SIZE = case.SIZE


class DoubtsTest(case.SeedCase):

    def assert_full(self, one, reason, **given):
        """Mirror, of everything."""
        copied = one.mirror(**given)
        self.assertGreaterEqual(copied, SIZE - (1 << 19))
        found = one.query()
        self.assertEqual('dropped', found.state)
        self.assertIn(reason, found.reason)

    def assert_seeded(self, one, granules, **given):
        """Mirror, of so many granules."""
        copied = one.mirror(**given)
        self.assertEqual(('used', None),
                         (one.query().state, one.query().reason))
        self.assertLessEqual(copied, granules * rig.GRANULE)

    def test_nothing_in_doubt(self):
        """The canary's granule and one that is not proven are copied."""
        one = self.rig()
        armed = one.seeded(skip=(20,))
        self.assertEqual(('armed', SIZE - 2 * rig.GRANULE, 0),
                         (armed.state, armed.proven, armed.written))
        one.io('write', '-q', '-P', 7, 40 * rig.GRANULE, 512)
        self.assertEqual(rig.GRANULE, one.query().written)
        self.assert_seeded(one, 3)
        self.assert_same(one)

    def test_zeroes_and_discards_are_writes(self):
        path = self.raw('source.img')
        one = self.rig(disk=spec.Disk(blockdev=(
            {'driver': 'file', 'node-name': 'disk0-file',
             'filename': str(path), 'discard': 'unmap'},
            {'driver': 'raw', 'node-name': 'disk0-format',
             'file': 'disk0-file', 'discard': 'unmap'})))
        one.seeded()
        one.io('write', '-q', '-z', 10 * rig.GRANULE, 65536)
        one.io('discard', '-q', 30 * rig.GRANULE, 65536)
        self.assertEqual(4 * rig.GRANULE, one.query().written)
        self.assert_seeded(one, 5)
        self.assert_same(one)

    def test_one_job_only(self):
        """It is used when the job begins, even if the job fails."""
        one = self.rig()
        one.seeded()
        mark = one.begin_mirror(speed=1)
        one.source.qmp('block-job-cancel', device='mirror', force=True)
        one.source.events.wait('BLOCK_JOB_CANCELLED', mark, 30)
        one.source.qmp('blockdev-del', **{'node-name': 'mirror-target'})
        self.assertGreaterEqual(one.mirror(), SIZE - (1 << 19))
        self.assert_same(one)

    def test_client_that_dies(self):
        """All that it cleared counts for nothing before it is armed."""
        one = self.rig()
        one.fill(one.watch())
        self.assert_full(one, 'before the disk was armed')
        self.assert_same(one)

    def test_hole_of_an_overlay(self):
        """What nobody has written to here, somebody has in the target.

        Of an overlay, an ordinary mirror would not look at it at all.
        """
        base = self.raw('base.img', self.random())
        source, target = (self.images.overlay(base, 'raw', name)
                          for name in ('source.img', 'target.img'))
        one = rig.Rig(
            self, self.binary, self.images.disk((base, 'raw'),
                                                (source, 'qcow2')),
            self.images.disk((base, 'raw'), (target, 'qcow2')),
            (source, 'qcow2'), (target, 'qcow2'))
        one.start()
        one.fill(one.watch(), skip=(1, 30))
        one.mirror(sync='top')
        self.assertIn('before the disk was armed', one.query().reason)
        self.assert_same(one)

    def test_another_target(self):
        """Made again since it was filled: there is no canary."""
        one = self.rig()
        one.seeded()
        one.destination.destroy()
        self.raw('target.img')
        one.start_target()
        self.assert_full(one, 'not the one that was filled')
        self.assert_same(one)

    def test_target_that_was_changed(self):
        """The canary is there; a sample finds what differs."""
        one = self.rig()
        one.seeded()
        one.destination.destroy()
        with one.target_image[0].open('r+b') as file:
            file.seek(rig.GRANULE)
            file.write(b'x' * (SIZE - rig.GRANULE))
        one.start_target()
        self.assert_full(one, 'differs in the target')
        self.assert_same(one)

    def test_granularity(self):
        one = self.rig()
        one.seeded()
        self.assert_full(one, 'another granularity', granularity=65536)
        self.assert_same(one)

    def test_snapshot(self):
        """The disk has another node then; the mirror is of that."""
        one = self.rig()
        one.seeded()
        one.source.qmp('blockdev-snapshot-sync', **{
            'node-name': 'disk0-format', 'snapshot-node-name': 'top',
            'snapshot-file': str(self.directory / 'top.qcow2'),
            'format': 'qcow2'})
        one.io('write', '-q', '-P', 9, 0, 4096)
        self.assert_full(one, 'another node', device='top')
        one.image = (self.directory / 'top.qcow2', 'qcow2')
        self.assert_same(one)

    def test_committed_snapshot(self):
        """What a commit writes is recorded like the guest's writes."""
        one = self.rig()
        one.seeded()
        one.source.qmp('blockdev-snapshot-sync', **{
            'node-name': 'disk0-format', 'snapshot-node-name': 'top',
            'snapshot-file': str(self.directory / 'top.qcow2'),
            'format': 'qcow2'})
        one.io('write', '-q', '-P', 9, 8 * rig.GRANULE, 4096)
        mark = one.source.events.mark()
        one.source.qmp('block-commit', **{'job-id': 'commit',
                                          'device': 'top'})
        one.source.events.wait('BLOCK_JOB_READY', mark, 30)
        one.source.qmp('block-job-complete', device='commit')
        one.source.events.wait('BLOCK_JOB_COMPLETED', mark, 30)
        one.mirror()
        self.assert_same(one)

    def test_layers(self):
        """A node below the disk's is another one."""
        one = self.rig()
        one.seeded()
        one.source.qmp('blockdev-add', **{
            'driver': 'blkdebug', 'node-name': 'debug',
            'image': 'disk0-file'})
        one.source.qmp('blockdev-reopen', options=[{
            'driver': 'raw', 'node-name': 'disk0-format', 'file': 'debug',
            'cache': {'direct': True, 'no-flush': False}}])
        self.assert_full(one, 'layers')
        self.assert_same(one)

    def test_resized(self):
        one = self.rig()
        one.seeded()
        one.source.qmp('block_resize', size=SIZE + rig.GRANULE, **{
            'node-name': 'disk0-format'})
        self.assertIn('resized', one.query().reason)
        one.destination.destroy()
        self.raw('target.img', size=SIZE + rig.GRANULE)
        one.start_target()
        self.assert_full(one, 'resized')
        self.assert_same(one)

    def test_loaded_snapshot(self):
        """QEMU refuses to load one into a disk with a bitmap."""
        path, _ = self.images.qcow2('source.qcow2')
        target = self.raw('target.img', size=SIZE)
        one = rig.Rig(self, self.binary,
                      disk=spec.Disk(path=path, format='qcow2'),
                      target=spec.Disk(path=target), image=(path, 'qcow2'),
                      target_image=(target, 'raw'))
        one.start()
        one.source.qmp('human-monitor-command', **{
            'command-line': 'savevm one'})
        watch = one.watch()
        said = one.source.qmp('human-monitor-command', **{
            'command-line': 'loadvm one'})
        self.assertEqual('', said)
        self.assertIn('internal snapshot', one.query().reason)
        error = self.assertRaises(errors.QmpError, one.source.clear_disk,
                                  watch.token, 0, rig.GRANULE)
        self.assertIn('internal snapshot', str(error))

    def test_jobs_that_never_take_it(self):
        """It remains for the next mirror."""
        one = self.rig()
        one.seeded()
        mark = one.begin_mirror(sync='none')
        one.ready(mark)
        one.finish_mirror(mark)
        self.assertEqual('armed', one.query().state)

    def test_job_that_cannot_start(self):
        one = self.rig()
        one.seeded()
        self.assertRaises(errors.QmpError, one.source.qmp, 'blockdev-mirror',
                          device='disk0-format', target='disk0-format',
                          sync='full', **{'job-id': 'mirror'})
        self.assert_seeded(one, 1)
        self.assert_same(one)

    def test_dropped_in_a_job(self):
        """The job keeps what it has taken."""
        one = self.rig()
        armed = one.seeded()
        mark = one.begin_mirror()
        one.source.drop_disk(armed.token)
        self.assertEqual((), one.source.disk_watches())
        self.assertLessEqual(one.ready(mark), rig.GRANULE)
        one.finish_mirror(mark)
        self.assert_same(one)

    def test_ends_while_armed(self):
        """bdrv_close() asserts that no bitmap is left."""
        one = self.rig()
        one.seeded()
        one.end()

    def test_pulled_out_disk(self):
        one = self.rig(disk=spec.Disk(path=self.raw('other.img'),
                                      device='virtio-scsi'))
        one.seeded()
        mark = one.source.events.mark()
        one.source.qmp('device_del', id='disk0')
        one.source.events.wait('DEVICE_DELETED', mark, 30)
        self.assertIn('another node', one.query().reason)
        one.source.qmp('blockdev-del', **{'node-name': 'disk0-format'})

    def test_closed_disk(self):
        one = self.rig()
        one.seeded()
        shutil.copy(one.image[0], self.directory / 'copy.img')
        one.source.qmp('blockdev-add', **{
            'driver': 'file', 'node-name': 'copy',
            'filename': str(self.directory / 'copy.img')})
        one.source.qmp('qom-set', path='/machine/peripheral/disk0',
                       property='drive', value='copy')
        one.source.qmp('blockdev-del', **{'node-name': 'disk0-format'})
        self.assertIn('closed', one.query().reason)
