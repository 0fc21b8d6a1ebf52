# SPDX-License-Identifier: Apache-2.0
"""What happens to a disk, or to its QEMUs, while it is built or mirrored.

Whatever it is, it ends with a right disk or a clear error, and nothing is
left of it.
"""

import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
from unittest import mock

from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.tasks import fill_disks
from nova_dedup_migrate.tests.functional.disks import built
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.unit.tasks import fakes
from testkit import spec

GRANULE = rig.GRANULE


class FaultsCase(built.BuiltCase):

    def setUp(self):
        super().setUp()
        self.temporary = self.temporary_dir()
        # several steps of reading, so that there is something between them
        for patcher in (
                mock.patch.object(tempfile, 'tempdir', str(self.temporary)),
                mock.patch.object(scan, 'STEP', rig.STEP)):
            patcher.start()
            self.addCleanup(patcher.stop)

    def halfway(self, event):
        """Have something happen once some of the target is filled.

        The source has cleared and read a part, and not the rest.
        """
        real, begun = watchings.Watching.scan, []
        path = pathlib.Path(self.image.path)

        def scanning(watching, wanted):
            empty = path.read_bytes()
            for number, part in enumerate(real(watching, wanted)):
                yield part
                # a record, and so all of the first step, was sent
                if number and not begun:
                    begun.append(True)
                    self.eventually(lambda: path.read_bytes() != empty,
                                    'some of the target is filled')
                    event()

        patcher = mock.patch.object(watchings.Watching, 'scan', scanning)
        patcher.start()
        self.addCleanup(patcher.stop)

    def write(self, granule, value):
        self.rig_.io('write', '-q', '-P', value, granule * GRANULE, GRANULE)

    def new_target(self, size=case.SIZE):
        """As Nova has it: the file is removed, and made for the next."""
        os.unlink(self.image.path)
        self.raw('target.img', size=size)

    def again(self, writes=None):
        """Migrate once more, with a new target.

        :param writes: a context in which the guest writes
        """
        size = os.path.getsize(self.rig_.image[0])
        self.operation = fakes.operation()
        self.new_target(size)
        with writes or contextlib.nullcontext():
            self.assertEqual('', self.build().reason)
            self.rig_.start_target()
            mark = self.rig_.begin_mirror()
        self.assertLess(self.rig_.ready(mark), size // 2)
        self.assertEqual(('used', None), (self.rig_.query().state,
                                          self.rig_.query().reason))
        self.rig_.finish_mirror(mark)
        self.assert_same(self.rig_)

    def failing_mirror(self, error):
        """Mirror; the job fails with that in its error."""
        self.rig_.start_target()
        mark = self.rig_.begin_mirror()
        event = self.rig_.source.events.wait('BLOCK_JOB_COMPLETED', mark, 30)
        self.assertIn(error, event.data['error'])
        self.rig_.source.qmp('blockdev-del', **{'node-name': 'mirror-target'})
        self.rig_.destination.destroy()

    def forget(self):
        """What Nova's rollback has done; then nothing is left."""
        fill_disks.forget(built.Port(self))
        self.assertEqual([], os.listdir(self.directory / 'journals'))
        self.assertEqual([], self.daemons())
        self.assertEqual([], [path.name for path in
                              self.temporary.glob('dedup-*')])
        if self.rig_.source.is_alive():
            self.assertEqual((), self.rig_.source.disk_watches())
            self.assertEqual([], self.rig_.source.qmp('query-block-exports'))

    @staticmethod
    def daemons():
        """Return the PIDs of this process's daemons that write targets."""
        found = []
        for path in pathlib.Path('/proc/self/task').glob('*/children'):
            for pid in path.read_text().split():
                command = pathlib.Path('/proc', pid, 'cmdline').read_bytes()
                if b'qemu-storage-daemon' in command:
                    found.append(int(pid))
        return found


class QemuTest(FaultsCase):
    """One of both QEMUs is killed."""

    def test_source_while_the_disk_is_built(self):
        self.flat()
        before = self.rig_.image[0].read_bytes()
        self.halfway(lambda: os.kill(self.rig_.source.pid, signal.SIGKILL))
        reason = self.build().reason
        self.assertIn('the QMP connection is closed', reason)
        self.assertTrue(self.rig_.source.wait_exit(10))
        self.forget()
        self.assertTrue(before == self.rig_.image[0].read_bytes())
        # Nova starts the instance again
        self.rig_.start(target=False)
        self.write(3, 5)
        self.again()

    def booted_flat(self):
        """A disk that a guest runs from."""
        source, content = self.images.raw('source.img')
        target = self.raw('target.img', size=len(content))
        self.hold(content[:len(content) // 8 * 7])
        self.image = disk_objects.DedupImageFile(path=str(target),
                                                 format='raw')
        self.rig_ = rig.Rig(
            self, self.binary, spec.Disk(path=source), spec.Disk(path=target),
            (source, 'raw'), (target, 'raw'), boot=True)
        self.rig_.start(target=False)

    def killed_destination(self):
        """Kill the destination's in a seeded mirror; the guest goes on."""
        self.booted_flat()
        source = self.rig_.source
        with self.rig_.guest_writes(self.sectors):
            self.assertEqual('', self.build().reason)
            self.rig_.start_target()
            mark = self.rig_.begin_mirror(speed=GRANULE)
            self.eventually(
                lambda: source.qmp('query-block-jobs')[0]['offset'],
                'something is mirrored')
            os.kill(self.rig_.destination.pid, signal.SIGKILL)
            source.qmp('block-job-set-speed', device='mirror', speed=0)
            source.events.wait('BLOCK_JOB_COMPLETED', mark, 30)
            source.qmp('blockdev-del', **{'node-name': 'mirror-target'})
            self.rig_.destination.destroy()
        self.assertEqual('running', source.run_state())

    def test_destination_in_the_mirror(self):
        self.killed_destination()
        self.forget()
        # in what was read, where the guest never writes
        self.halfway(lambda: self.write(15, 5))
        self.again(self.rig_.guest_writes(self.sectors[:40], seed=31))

    def test_destination_in_the_mirror_of_a_disk_that_stays_watched(self):
        """The seed was for the first mirror only."""
        self.killed_destination()
        size = os.path.getsize(self.image.path)
        self.new_target(size)
        self.assertGreaterEqual(self.mirror(), size)
        self.assertIn('used it before', self.rig_.query().reason)
        self.assert_same(self.rig_)


class ChangedTest(FaultsCase):
    """The source's disk is another one by the time it is built."""

    def check(self, reason, port=None, **given):
        """Build, mirror everything, and compare."""
        self.assertIn(reason, self.build(port=port).reason)
        self.assertGreaterEqual(self.mirror(**given), case.SIZE)
        self.assert_same(self.rig_)

    def test_resized_while_it_is_read(self):
        """QEMU refuses that."""
        refused = []

        def resize():
            self.write(3, 5)
            refused.append(self.assertRaises(
                errors.QmpError, self.rig_.source.qmp, 'block_resize',
                size=case.SIZE + GRANULE, **{'node-name': 'disk0-format'}))

        self.flat()
        self.halfway(resize)
        self.assertEqual('', self.build().reason)
        self.assertIn('resize', str(refused[0]))
        self.assertLess(self.mirror(), case.SIZE // 2)
        self.assert_same(self.rig_)

    def test_resized_after_it_was_read(self):
        """The target is too short then: the mirror fails, not the guest."""
        self.flat()
        port = built.Port(self)
        arm = port.arm

        def resized(target):
            self.rig_.source.qmp('block_resize', size=case.SIZE + GRANULE,
                                 **{'node-name': 'disk0-format'})
            return arm(target)

        port.arm = resized
        self.assertIn('resized', self.build(port=port).reason)
        self.failing_mirror('')
        self.write(case.SIZE // GRANULE, 7)
        self.forget()
        self.again()

    def test_external_snapshot(self):
        """The disk has another node then."""
        top = self.directory / 'top.qcow2'

        def snapshot():
            self.rig_.source.qmp('blockdev-snapshot-sync', **{
                'node-name': 'disk0-format', 'snapshot-node-name': 'top',
                'snapshot-file': str(top), 'format': 'qcow2'})
            self.write(3, 5)

        self.flat()
        self.halfway(snapshot)
        self.rig_.image = top, 'qcow2'
        self.check('another node', device='top')

    def watched_overlay(self):
        """An overlay of which the destination has all."""
        self.overlay()
        self.rig_.io('write', '-q', '-s', self.directory / 'held.img',
                     0, 10 * GRANULE)

    def snapshot(self):
        """As Nova's: a mirror of the top image, which is then ended."""
        self.copy = self.images.overlay(self.directory / 'base.img', 'raw',
                                        'copy.qcow2')
        source = self.rig_.source
        source.qmp('blockdev-add', **{
            'driver': 'qcow2', 'node-name': 'copy', 'backing': None,
            'file': {'driver': 'file', 'filename': str(self.copy)}})
        mark = source.events.mark()
        source.qmp('blockdev-mirror', **{
            'job-id': 'copy', 'device': 'disk0-format', 'target': 'copy',
            'sync': 'top'})
        self.write(3, 5)
        source.events.wait('BLOCK_JOB_READY', mark, 30)
        source.qmp('block-job-cancel', device='copy')
        source.events.wait('BLOCK_JOB_COMPLETED', mark, 30)
        source.qmp('blockdev-del', **{'node-name': 'copy'})

    def check_snapshot(self, port=None):
        """Both the disk and the snapshot are right."""
        self.check('before the disk was armed', port, sync='top')
        self.rig_.target_image = self.copy, 'qcow2'
        self.assert_same(self.rig_)

    def test_live_snapshot_while_it_is_read(self):
        self.watched_overlay()
        self.halfway(self.snapshot)
        self.check_snapshot()

    def test_live_snapshot_after_it_was_read(self):
        """The canary is where the disk has nothing: it must not stay."""
        self.watched_overlay()
        port = built.Port(self)
        arm = port.arm

        def snapshot(target):
            self.snapshot()
            return arm(target)

        port.arm = snapshot
        self.check_snapshot(port)

    def test_detached(self):
        source, target = (self.raw(name + '.img', self.random()[:length])
                          for name, length in (('source', None),
                                               ('target', 0)))
        before = source.read_bytes()
        self.image = disk_objects.DedupImageFile(path=str(target),
                                                 format='raw')
        self.rig_ = rig.Rig(
            self, self.binary, spec.Disk(path=source, device='virtio-scsi'),
            spec.Disk(path=target), (source, 'raw'), (target, 'raw'))
        self.rig_.start(target=False)

        def detach():
            mark = self.rig_.source.events.mark()
            self.rig_.source.qmp('device_del', id='disk0')
            self.rig_.source.events.wait('DEVICE_DELETED', mark, 30)

        self.halfway(detach)
        self.assertIn('another node', self.build().reason)
        self.forget()
        # nobody reads it any more
        self.rig_.source.qmp('blockdev-del', **{'node-name': 'disk0-format'})
        self.assertTrue(before == source.read_bytes())


class SpaceTest(FaultsCase):
    """The file system of the destination is full."""

    def mount(self, name, size):
        """Mount a file system of that many bytes; return where."""
        if os.geteuid():
            self.skipTest('only root can mount a file system')
        path = self.directory / name
        path.mkdir(exist_ok=True)
        subprocess.run(['mount', '-t', 'tmpfs', '-o', 'size=%d' % size,
                        'small', path], check=True)
        self.addCleanup(subprocess.run, ['umount', '--lazy', path],
                        check=True)
        return path

    def test_disk(self):
        """It is mirrored in the ordinary way as soon as there is space."""
        small = self.mount('small', case.SIZE // 2)
        self.flat(small)
        self.assertIn('its file system has 0 bytes free',
                      self.build().reason)
        # so it is for the mirror; the guest goes on
        self.failing_mirror('No space left')
        self.write(3, 5)
        subprocess.run(['mount', '-o', 'remount,size=%d' % (2 * case.SIZE),
                        small], check=True)
        self.assertGreaterEqual(self.mirror(), case.SIZE)
        self.assert_same(self.rig_)
        self.forget()
        os.unlink(self.image.path)
        found = os.statvfs(small)
        self.assertEqual(found.f_blocks, found.f_bfree)

    def test_journal(self):
        """There is no room for it: the disk is mirrored all the same."""
        self.mount('journals', 4096)
        self.flat()
        self.assertRegex(self.build().reason,
                         'journals/.* its file system has 0 bytes free')
        self.write(3, 5)
        self.assertGreaterEqual(self.mirror(), case.SIZE)
        self.assert_same(self.rig_)
        self.forget()
