# SPDX-License-Identifier: Apache-2.0
"""The whole way of a disk, but Nova and libvirt: two agents, two QEMUs."""

import os
import threading
from unittest import mock

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.hypervisor import disk_export
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.tests.functional.disks import built
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.unit.storage import image_server
from nova_dedup_migrate.tests.unit.tasks import fakes


class BuiltTest(built.BuiltCase):

    def test_flat(self):
        self.flat()
        found = self.build()
        self.assertEqual(('', []), (found.reason, self.operation.warnings))
        self.assertEqual(built.HELD // blocks.BLOCK * blocks.BLOCK,
                         found.sources['local'])
        self.assertIn('zero', found.sources)
        self.assertEqual([operations.UNDO_DISKS],
                         self.operation.durable.undo)
        self.rig_.io('write', '-q', '-P', 5, 4 * rig.GRANULE, 4096)
        copied = self.mirror()
        # what it did not have, the canary's granule and one that was
        # written to since
        self.assertLess(copied, case.SIZE - built.HELD)
        (found,) = self.operation.disks
        self.assertEqual(found.mirrored, copied)
        self.assert_same(self.rig_)

    def test_blocks_from_the_source(self):
        """What is nowhere else, its agent sends: all is proven."""
        self.flat()
        port = built.Port(self)
        watch = port.watch('disk0')
        port.build('disk0', watch, 60.0, source_blocks=True)
        self.eventually(lambda: port.state('disk0', 1.0).state == 'done',
                        'the disk is built')
        found = {each.name: each.bytes
                 for each in port.state('disk0', 0.0).sources}
        self.assertGreaterEqual(found['source'], built.DATA - built.HELD)
        self.assertEqual(case.SIZE, sum(found.values()))
        port.arm('disk0')
        self.rig_.start_target()
        mark = self.rig_.begin_mirror()
        # that of the canary
        self.assertLessEqual(self.rig_.ready(mark), rig.GRANULE)
        self.rig_.finish_mirror(mark)
        self.assert_same(self.rig_)

    def stored(self):
        """Have nothing near but a snapshot in the image store.

        The guest has rewritten a part since.
        """
        self.index.remove(str(self.directory / 'held.img'))
        content = bytearray(self.random())
        content[1 << 18:1 << 19] = os.urandom(1 << 18)
        self.server = image_server.Server(self, content)
        self.store = image_objects.DedupImageStore(
            endpoint=self.server.endpoint, token=image_server.TOKEN, images=[
                image_objects.DedupStoredImage(image=image_server.IMAGE,
                                               size=len(content))])

    def test_image_store(self):
        self.flat()
        self.stored()
        with self.written_to():
            found = self.build()
            self.rig_.start_target()
            mark = self.rig_.begin_mirror()
        self.assertEqual('', found.reason)
        self.assertGreater(found.sources['image_store'],
                           (built.DATA - (1 << 18)) // 2)
        self.finish(mark)

    def test_image_store_lies(self):
        self.flat()
        self.stored()
        self.server.fault = 'other_bytes'
        self.assertEqual({'zero'}, set(self.build().sources))
        self.mirror()
        self.assert_same(self.rig_)

    def test_images_are_tried(self):
        """With the sample that was read when the disk was watched."""
        self.flat()
        self.stored()
        watch = built.Port(self).watch('disk0')
        sample = self.watchings.sample(fakes.MIGRATION, 'disk0')
        self.assertEqual(watch.sample, sample.digests)
        reply = self.fillings.stored.try_(
            image_objects.DedupTryImagesRequest(
                store=self.store, sample=sample, size=watch.size))
        self.assertEqual(('', [image_server.IMAGE]), (reply.reason,
                                                      reply.images))
        self.assertGreater(reply.found, reply.tried // 2)
        self.assertLess(reply.found, reply.tried)
        self.assertRaises(errors.WatchRefused, self.watchings.sample,
                          fakes.MIGRATION, 'disk1')

    def test_written_while_it_is_built(self):
        """Again and again."""
        self.flat()
        with self.written_to():
            found = self.build()
            self.rig_.start_target()
            mark = self.rig_.begin_mirror()
        self.assertEqual('', found.reason)
        self.finish(mark)

    def test_overlay(self):
        """Its base is there; of the top image much is near."""
        self.overlay()
        for number in 3, 9, 20:
            self.rig_.io('write', '-q', '-s', self.directory / 'held.img',
                         number * 65536, 65536)
        self.rig_.io('write', '-q', '-P', 77, 25 * 65536, 65536)
        found = self.build()
        self.assertEqual('', found.reason)
        self.assertIn('absent', found.sources)
        self.assertLess(self.mirror(sync='top'), 8 * rig.GRANULE)
        self.assert_same(self.rig_)

    def test_it_does_not_pay(self):
        """The disk is released, and its mirror is an ordinary one."""
        self.flat()
        found = self.build(always=False)
        self.assertIn('of data', found.reason)
        self.assertEqual((), self.rig_.source.disk_watches())
        self.assertGreaterEqual(self.mirror(), built.DATA)
        self.assert_same(self.rig_)

    def test_libvirt_is_away_when_the_disk_is_forgotten(self):
        """QEMU forgets it, and its export, when libvirt is back."""
        self.flat()
        source = self.rig_.source
        gone = hypervisor_errors.HypervisorUnavailable(
            uri='libvirt', reason='it is away')
        port = built.Port(self)
        with mock.patch.object(disk_export, '_stop', autospec=True,
                               side_effect=gone):
            # A sample is read, and the end of its export cannot be sent.
            self.assertRaises(errors.WatchRefused, port.watch, 'disk0')
        self.assertEqual(1, len(source.qmp('query-block-exports')))
        with mock.patch.object(type(source), 'drop_disk', autospec=True,
                               side_effect=gone):
            self.watchings.settle()
        self.watchings.settle()
        self.assertEqual([], source.qmp('query-block-exports'))
        self.assertEqual((), source.disk_watches())

    def test_destination_refuses(self):
        """Before anything is written: likewise."""
        self.flat()
        with mock.patch.object(
                fillings.Fillings, 'fill', autospec=True,
                side_effect=errors.FillRefused(
                    target='disk0', instance='x', reason='it is busy')):
            found = self.build()
        self.assertIn('it is busy', found.reason)
        self.assertEqual((), self.rig_.source.disk_watches())

    def test_fails_half_way(self):
        """Then everything is mirrored into what is half built."""
        self.flat()
        scan = watchings.Watching.scan

        def breaking(watching, wanted):
            for number, part in enumerate(scan(watching, wanted)):
                if number == 2:
                    raise storage_errors.DiskUnreadable(reason='gone')
                yield part

        with mock.patch.object(watchings.Watching, 'scan', breaking):
            self.assertNotEqual('', self.build().reason)
        (watch,) = self.rig_.source.disk_watches()
        self.assertEqual('watching', watch.state)
        self.assertGreaterEqual(self.mirror(), case.SIZE)
        self.assertIn('armed', self.operation.disks[0].reason)
        self.assert_same(self.rig_)

    def test_destination_is_restarted(self):
        """It continues where its journal ends, and not before."""
        self.flat()
        port = built.Port(self)
        scan, passes = watchings.Watching.scan, []
        halted = threading.Event()

        def halting(watching, wanted):
            passes.append(sum(length for _, length in wanted))
            *parts, end = scan(watching, wanted)
            yield from parts
            if len(passes) == 1:
                halted.wait(20)
            yield end

        state = port.state
        first = blocks.digest(self.random()[:blocks.BLOCK])

        def ending(target, wait):
            found = state(target, 0.1)
            journals = list((self.directory / 'journals').iterdir())
            if not halted.is_set() and any(
                    first in path.read_bytes() for path in journals):
                self.fillings.stop()
                halted.set()
                # in what was built, while nobody looks
                self.rig_.io('write', '-q', '-P', 5, 4096, 4096)
                self.restart()
            return found

        port.state = ending
        with mock.patch.object(watchings.Watching, 'scan', halting):
            found = self.build(port=port)
        self.assertEqual(('', []), (found.reason, self.operation.warnings))
        before, after = passes
        self.assertLess(after, before)
        self.assertLess(self.mirror(), case.SIZE - built.HELD)
        self.assert_same(self.rig_)
        self.assertEqual([], os.listdir(self.directory / 'journals'))

    def test_aborted(self):
        """The task ends soon; nothing is armed."""
        self.flat()
        port = built.Port(self)
        state = port.state

        def abort(target, wait):
            self.operation.durable.requests.append(operations.ABORT)
            return state(target, 0.0)

        port.state = abort
        self.build(port=port)
        self.assertNotEqual('armed', self.rig_.query().state)

    def test_watched_before_by_another(self):
        """Such as a preparation, whose watch QEMU has forgotten then."""
        self.flat()
        other = '99999999-0000-4000-8000-000000000009'
        for migration in other, fakes.MIGRATION:
            self.watchings.watch(watch_objects.DedupWatchRequest(
                instance_uuid=fakes.INSTANCE, migration_uuid=migration,
                target='disk0'))
        error = self.assertRaises(errors.WatchRefused, self.watchings.arm,
                                  other, 'disk0')
        self.assertIn('it is not watched', str(error))
        error = self.assertRaises(errors.WatchRefused, self.watchings.arm,
                                  fakes.MIGRATION, 'disk0')
        self.assertIn('nothing of it is proven', str(error))

    def test_no_such_disk(self):
        self.flat()
        self.assertRaises(
            errors.WatchRefused, self.watchings.watch,
            watch_objects.DedupWatchRequest(
                instance_uuid=fakes.INSTANCE,
                migration_uuid=fakes.MIGRATION, target='vdz'))
        self.assertRaises(errors.WatchRefused, self.watchings.arm,
                          fakes.MIGRATION, 'vda')
