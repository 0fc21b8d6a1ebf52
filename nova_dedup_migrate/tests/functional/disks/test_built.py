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
from nova_dedup_migrate.storage import journal
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage import order
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.storage import target
from nova_dedup_migrate.storage.channel import errors as channel_errors
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

    def breaking(self, error, after):
        """Have the manifest end with an error."""
        real = watchings.Watching.scan

        def breaking(watching, wanted):
            for number, part in enumerate(real(watching, wanted)):
                if number == after:
                    raise error
                yield part

        return mock.patch.object(watchings.Watching, 'scan', breaking)

    def test_fails_half_way(self):
        """Then everything is mirrored into what is half built."""
        self.flat()
        with self.breaking(channel_errors.ChannelBroken(reason='x'), 2):
            self.assertNotEqual('', self.build().reason)
        (watch,) = self.rig_.source.disk_watches()
        self.assertEqual('watching', watch.state)
        self.assertGreaterEqual(self.mirror(), case.SIZE)
        self.assertIn('armed', self.operation.disks[0].reason)
        self.assert_same(self.rig_)

    def assert_part(self, found, reason):
        """The rest is mirrored, and the disk is right."""
        self.assertIn(reason, found.reason)
        self.assertIn('are proven; the rest is mirrored', found.reason)
        self.assertEqual([], self.operation.warnings)
        self.assertGreater(found.proven, 0)
        copied = self.mirror()
        self.assertEqual('used', self.rig_.query().state)
        self.assertLess(copied, case.SIZE)
        self.assertGreater(copied, built.DATA - built.HELD)
        self.assert_same(self.rig_)

    def test_source_cannot_read_on(self):
        """What came before is used."""
        self.flat()
        with mock.patch.object(scan, 'STEP', 8 * rig.GRANULE), \
                self.breaking(storage_errors.DiskUnreadable(reason='gone'),
                              5):
            found = self.build()
        self.assert_part(found, 'gone')

    def late(self, halt, proven, granules):
        """Have the time end while the source is silent; the guest writes.

        :param halt: called with a part of the manifest, returns whether the
            source halts before it
        :param proven: called with the journal, returns whether the time is
            over
        :param granules: that the guest writes to then
        """
        port = built.Port(self)
        end = threading.Event()
        self.addCleanup(end.set)
        real, state, watch = (watchings.Watching.scan, port.state,
                              port.watch)
        watched = []

        def halting(watching, wanted):
            for part in real(watching, wanted):
                if halt(part):
                    end.wait(60)
                yield part

        def watching(disk):
            watched.append(watch(disk))
            return watched[0]

        def ending(disk, wait):
            found = state(disk, 0.1)
            if found.state == 'running' and any(
                    proven(path.read_bytes()) for path
                    in (self.directory / 'journals').iterdir()):
                for granule in granules:
                    self.rig_.io('write', '-q', '-P', 5,
                                 granule * rig.GRANULE + 4096, 4096)
                port.build(disk, watched[0], 0.0)
            return found

        port.state, port.watch = ending, watching
        with mock.patch.object(scan, 'STEP', 8 * rig.GRANULE), \
                mock.patch.object(order, 'WINDOW', 16 * rig.GRANULE), \
                mock.patch.object(order, 'HOLE', 1), \
                mock.patch.object(order, 'LOOKS', 1 << 20), \
                mock.patch.object(watchings.Watching, 'scan', halting):
            found = self.build(port=port)
        self.assertFalse(end.is_set())
        # the reader that was given up goes on, and clears nothing
        end.set()
        return found

    def digest(self, number):
        """Return that of a block of the guest's disk."""
        return blocks.digest(self.random()[
            number * blocks.BLOCK:(number + 1) * blocks.BLOCK])

    def test_time_is_over(self):
        """Half way through; all bits were cleared by then.

        The guest writes to what is proven, to what was read and not sent,
        and to what was not reached.
        """
        self.flat()
        self.assert_part(self.late(
            lambda part: self.digest(32) in part,
            lambda journal: self.digest(31) in journal,
            (3, 30, 34, 60)), 'the time for that was over')

    def test_time_of_an_overlay_is_over(self):
        """The mirror does not copy what is in the base."""
        self.overlay()
        for number in 3, 9, 20, 40:
            self.rig_.io('write', '-q', '-s', self.directory / 'held.img',
                         number * rig.GRANULE, rig.GRANULE)
        cluster = 65536 // rig.GRANULE
        found = self.late(
            lambda part: part[0] == manifest.DIGESTS,
            lambda journal: journal.count(target.ABSENT) == (
                case.GRANULES - 4 * cluster), (50, 9))
        self.assertIn('the time for that was over', found.reason)
        # with clusters and the canary's granule
        self.assertLessEqual(self.mirror(sync='top'),
                             6 * cluster * rig.GRANULE)
        self.assertEqual('used', self.rig_.query().state)
        self.assert_same(self.rig_)

    def test_space_becomes_scarce(self):
        self.flat()
        real, free = os.statvfs, [2]

        def statvfs(path):
            return mock.Mock(real(path), f_bavail=free[0], f_frsize=1)

        prove = journal.Journal.prove

        def proving(one, first, digests):
            prove(one, first, digests)
            if first >= 24:
                free[0] = 0

        self.fillings.reserve = 1
        with mock.patch.object(rebuild.os, 'statvfs', statvfs), \
                mock.patch.object(scan, 'STEP', 8 * rig.GRANULE), \
                mock.patch.object(journal.Journal, 'prove', proving), \
                self.written_to():
            found = self.build()
        self.rig_.io('aio_flush')
        self.assert_part(found, 'storage_reserved_bytes keeps 1')

    def test_changed_after_it_was_built(self):
        """It is not armed, so everything is mirrored.

        QEMU itself compares a few blocks only.
        """
        self.flat()
        port = built.Port(self)
        state = port.state

        def changing(target, wait):
            found = state(target, wait)
            if found.state == 'done' and found.reason == '':
                with open(self.image.path, 'r+b') as file:
                    file.seek(7 * rig.GRANULE + 5)
                    file.write(b'changed')
            return found

        port.state = changing
        found = self.build(port=port)
        self.assertIn('has been replaced or changed', found.reason)
        self.assertIsNone(found.proven)
        self.assertEqual('watching', self.rig_.query().state)
        self.assertGreaterEqual(self.mirror(), case.SIZE)
        self.assert_same(self.rig_)

    def test_destination_is_restarted(self):
        """It continues where its journal ends, and not before."""
        self.flat()
        port = built.Port(self)
        real, passes = watchings.Watching.scan, []
        halted = threading.Event()

        def halting(watching, wanted):
            passes.append(sum(length for _, length in wanted))
            *parts, end = real(watching, wanted)
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
