# SPDX-License-Identifier: Apache-2.0
"""The disk is rebuilt between the guest's I/O and the migration.

Hints keep what the guest knows, its offset; what that means is looked up
when the migration begins.
"""

import dataclasses

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import images
from nova_dedup_migrate.tests.functional.migration import scripted

PAGES = case.PAGES
DIRECT = {'direct': False, 'no-flush': False}


class GraphChangesTest(case.MigrationCase):

    def setUp(self):
        super().setUp()
        self.images = images.Images(self.directory, self.binary)
        self.base, content = self.images.raw('base.raw')
        self.top = self.images.overlay(self.base, 'raw', 'top.qcow2')
        self.both = self.images.disk((self.base, 'raw'),
                                     (self.top, 'qcow2'))
        self.one = self.rig(source_disks=[self.both], contents=[content])
        self.one.boot()
        self.one.read_pages(PAGES)

    def rewrite(self, pages):
        for page in pages:
            self.one.guest.poke(page, 100)
            self.one.guest.write(page,
                                 scripted.DATA + (page - PAGES[0]) * 8)

    def migrate(self, *disks):
        one = self.one
        if disks:
            one.new_destination(disks=tuple(disks))
        one.migrate()
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        return outcome.source

    def job(self, command, **arguments):
        """Run a block job to its end."""
        source = self.one.source
        mark = source.events.mark()
        source.qmp(command, **{'job-id': 'job', **arguments})

        def over():
            for job in source.qmp('query-jobs'):
                if job['status'] == 'ready':
                    source.qmp('job-complete', id='job')
            return not source.qmp('query-jobs')
        self.eventually(over, command)
        for event in source.events.since(mark):
            self.assertNotIn('error', event.data, event)

    def snapshot(self):
        """Put a new overlay on top, with the guest writing meanwhile."""
        path = self.images.overlay(self.top, 'qcow2', 'newest.qcow2')
        source = self.one.source
        source.qmp('blockdev-add', driver='qcow2', backing=None, file={
            'driver': 'file', 'filename': str(path)},
            **{'node-name': 'newest'})
        source.qmp('blockdev-snapshot', node='disk0-format',
                   overlay='newest')
        return self.images.disk((self.base, 'raw'), (self.top, 'qcow2'),
                                (path, 'qcow2'))

    def test_snapshot(self):
        disk = self.snapshot()
        figures = self.migrate(disk)
        self.assertEqual(len(PAGES), figures.storage_pages)

    def test_snapshot_sync(self):
        """blockdev-snapshot-sync, then the guest writes half of it."""
        path = self.directory / 'sync.qcow2'
        self.one.source.qmp('blockdev-snapshot-sync', **{
            'node-name': 'disk0-format', 'snapshot-file': str(path),
            'snapshot-node-name': 'newest', 'format': 'qcow2'})
        self.rewrite(PAGES[:16])
        figures = self.migrate(self.images.disk(
            (self.base, 'raw'), (self.top, 'qcow2'), (path, 'qcow2')))
        self.assertEqual(len(PAGES), figures.storage_pages)

    def test_commit(self):
        self.rewrite(PAGES[:16])
        self.job('block-commit', device='disk0-format',
                 **{'auto-finalize': True})
        figures = self.migrate(self.images.disk((self.base, 'raw')))
        self.assertEqual(len(PAGES), figures.storage_pages)

    def test_stream(self):
        self.rewrite(PAGES[:16])
        self.job('block-stream', device='disk0-format')
        figures = self.migrate(self.images.disk((self.top, 'qcow2')))
        self.assertEqual(len(PAGES), figures.storage_pages)

    def mirror(self, path):
        self.one.source.qmp(
            'blockdev-add', driver='qcow2', backing=None,
            file={'driver': 'file', 'filename': str(path)},
            **{'node-name': 'mirror'})
        self.job('blockdev-mirror', device='disk0-format', target='mirror',
                 sync='full')

    def test_mirror(self):
        """The disk moves to another file while the guest runs."""
        path = self.directory / 'mirror.qcow2'
        self.images.img('create', '-f', 'qcow2', path,
                        len(self.one.model.disks[0]))
        self.rewrite(PAGES[:16])
        self.mirror(path)
        figures = self.migrate(self.images.disk((path, 'qcow2')))
        self.assertEqual(len(PAGES), figures.storage_pages)

    def test_mirror_that_the_destination_missed(self):
        """It still has the old file, whose bytes are good by luck only."""
        path = self.directory / 'mirror.qcow2'
        self.images.img('create', '-f', 'qcow2', path,
                        len(self.one.model.disks[0]))
        self.mirror(path)
        self.rewrite(PAGES[:16])
        self.migrate()

    def test_snapshot_that_the_destination_missed(self):
        self.snapshot()
        self.rewrite(PAGES[:16])
        self.migrate()

    def test_resize(self):
        source = self.one.source
        source.qmp('block_resize', **{'node-name': 'disk0-format',
                                      'size': 16 << 20})
        figures = self.migrate()
        self.assertEqual(len(PAGES), figures.storage_pages)

    def test_snapshot_during_the_migration(self):
        """Records of then and writes of now: each is where it is."""
        one = self.one
        one.migrate()
        one.fetched(len(PAGES))
        self.snapshot()
        self.rewrite(PAGES)
        one.rounds()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        self.assert_right(one.finish())

    def test_commit_during_the_migration(self):
        one = self.one
        self.rewrite(PAGES[:16])
        one.migrate()
        one.fetched(len(PAGES))
        self.job('block-commit', device='disk0-format')
        self.rewrite(PAGES)
        one.rounds()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        self.assert_right(one.finish())


class HotUnplugTest(case.MigrationCase):
    """The disk a hint speaks of has gone, or is another one."""

    def begin(self):
        one = self.rig(drives=2, device='virtio-scsi')
        one.boot()
        one.read_pages(PAGES[:16])
        one.read_pages(PAGES[16:], drive=1)
        return one

    def unplug(self, one):
        mark = one.source.events.mark()
        one.source.qmp('device_del', id='disk1')
        one.source.events.wait('DEVICE_DELETED', mark, 30)
        one.source.qmp('blockdev-del', **{'node-name': 'disk1-format'})

    def plug(self, one, path):
        one.source.qmp('blockdev-add', driver='raw', cache=DIRECT,
                       file={'driver': 'file', 'filename': str(path)},
                       **{'node-name': 'disk1-format'})
        one.source.qmp('device_add', driver='scsi-hd', id='disk1',
                       drive='disk1-format', bus='disk1-bus.0')

    def migrate(self, one):
        one.migrate()
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        return outcome.source

    def test_unplugged(self):
        """The controller stays, as in the destination's command line."""
        one = self.begin()
        self.unplug(one)
        # a bus without a disk: scsi-hd needs one, so it is plugged off
        one.destination.start_incoming()
        one.destination.qmp('device_del', id='disk1')
        figures = self.migrate(one)
        self.assertEqual(16, figures.storage_pages)

    def test_another_disk_in_its_place(self):
        one = self.begin()
        self.unplug(one)
        other = self.directory / 'other.raw'
        scripted.write_disk(other, seed=99, boot=False)
        self.plug(one, other)
        one.new_destination(disks=(
            one.spec.disks[0],
            dataclasses.replace(one.spec.disks[1], path=other)))
        figures = self.migrate(one)
        self.assertGreaterEqual(figures.storage_pages, 16)

    def test_the_same_disk_again(self):
        one = self.begin()
        self.unplug(one)
        self.plug(one, one.spec.disks[1].path)
        self.migrate(one)

    def test_unplugged_during_the_migration(self):
        """QEMU forbids it, whoever asks."""
        one = self.begin()
        one.migrate()
        one.active()
        self.assertRaises(errors.QmpError, one.source.qmp, 'device_del',
                          id='disk1')
        self.assert_right(one.finish())


class MediumChangeTest(case.MigrationCase):
    """Another CD in the drive."""

    def disk(self, number):
        """A CD with noise, 2 KiB sectors."""
        path = self.directory / ('cd%d.iso' % number)
        scripted.write_disk(path, seed=100 + number, boot=False)
        return path

    def test_removed_and_changed(self):
        one = self.rig(drives=1)
        extra = []
        for number in range(1, 3):
            extra += ['-blockdev', '{"driver":"raw","read-only":true,'
                      '"node-name":"cd%d","file":{"driver":"file",'
                      '"filename":"%s"}}' % (number, self.disk(number))]
        extra += ['-device', 'virtio-scsi-pci,id=scsi', '-device',
                  'scsi-cd,id=cd,drive=cd1,bus=scsi.0']
        for name in 'spec', 'destination_spec':
            changed = dataclasses.replace(getattr(one, name),
                                          extra_args=tuple(extra))
            setattr(one, name, changed)
        one.source.spec = one.spec
        one.new_destination()
        one.boot()
        one.read_pages(PAGES[:16])
        for change in ('blockdev-open-tray', 'blockdev-remove-medium'):
            one.source.qmp(change, id='cd')
        one.source.qmp('blockdev-insert-medium', id='cd',
                       **{'node-name': 'cd2'})
        one.source.qmp('blockdev-close-tray', id='cd')
        one.migrate()
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        for change in ('blockdev-open-tray', 'blockdev-remove-medium'):
            one.source.qmp(change, id='cd')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(16, outcome.source.storage_pages)
