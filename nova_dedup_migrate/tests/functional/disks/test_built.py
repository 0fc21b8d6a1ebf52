# SPDX-License-Identifier: Apache-2.0
"""The whole way of a disk, but Nova and libvirt: two agents, two QEMUs."""

import importlib.util
import os
import threading
import unittest
from unittest import mock

if not all(map(importlib.util.find_spec, ('libvirt', 'cryptography',
                                          'nbd'))):
    raise unittest.SkipTest('libvirt, cryptography or nbd is not installed')

from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import disks as planner_disks
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.tasks import fill_disks
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.unit.storage.channel import certificates
from nova_dedup_migrate.tests.unit.tasks import fakes
from testkit import qemus
from testkit import spec

#: Of these the destination has all but the last eighth.
DATA = case.SIZE - (1 << 19)
HELD = DATA // 8 * 7


class Port:
    """A fill_disks.DiskPort over the agents' own objects."""

    def __init__(self, test):
        self._test = test

    def targets(self):
        return ['disk0']

    def watch(self, target):
        return self._test.watchings.watch(watch_objects.DedupWatchRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=fakes.MIGRATION,
            target=target, above_base=bool(self._test.backing)))

    def facts(self, target, watch):
        return planner_disks.DiskFacts(watch.data, len(watch.sample), 0)

    def build(self, target, watch, seconds, source_blocks=False):
        self._test.fillings.fill({}, disk_objects.DedupFillRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=fakes.MIGRATION,
            project_id='p1', target=target, image=self._test.image,
            backing=self._test.backing, size=watch.size,
            granularity=watch.granularity, watch=watch.watch,
            source='source', seconds=seconds,
            source_blocks=source_blocks))

    def state(self, target, wait):
        return self._test.fillings.filling(disk_objects.DedupFillingRequest(
            migration_uuid=fakes.MIGRATION, target=target, wait=wait))

    def arm(self, target):
        return self._test.watchings.arm(fakes.MIGRATION, target)

    def release(self, target):
        return self._test.watchings.release(fakes.MIGRATION, target)

    def abort(self):
        self._test.fillings.abort(fakes.MIGRATION)

    def used(self):
        return {watch.device: (watch.dirty, watch.reason or '')
                for watch in self._test.rig_.source.disk_watches()}

    def forget(self):
        self._test.watchings.forget(fakes.MIGRATION)


class BuiltTest(case.SeedCase):

    def setUp(self):
        super().setUp()
        binary = qemus.find('patched', self.binary)
        self.authority = certificates.Authority(self.temporary_dir())
        self.index = store.Index(str(self.directory / 'index'))
        self.addCleanup(self.index.close)
        channels = {}
        for host in 'source', 'destination':
            channels[host] = disk_channel.DiskChannel(
                host, '127.0.0.1', 0, self.authority.host(host), self.index,
                [str(self.directory)], 0.0)
            channels[host].start()
            self.addCleanup(channels[host].stop)
        agents = mock.create_autospec(api.AgentAPI, instance=True)
        agents.channel_offer.side_effect = (
            lambda ctxt, host, request: channels[host].offer(request))
        self.begin = lambda: fillings.Fillings(
            channels['destination'], self.index, agents,
            [str(self.directory)], str(self.directory / 'journals'), 0,
            str(qemus.tool(binary, 'qemu-storage-daemon')), {}.get)
        self.restart()
        self.watchings = watchings.Watchings(
            lambda uuid: self.rig_.source, channels['source'])
        self.addCleanup(self.watchings.stop)
        self.operation = fakes.operation()
        self.backing = []
        self.hold(self.random()[:HELD])

    def restart(self):
        """Have a new agent at the destination, which knows no disk."""
        self.fillings = self.begin()
        self.fillings.start()
        self.addCleanup(self.fillings.stop)

    def hold(self, content):
        """Have the destination's index know a file with this content."""
        path = self.directory / 'held.img'
        path.write_bytes(content)
        with path.open('rb') as file:
            found = fingerprints.fingerprint(file.fileno())
        self.index.add(str(path), 'p1', found.stat, found.digests,
                       found.numbers)

    def flat(self):
        """A raw disk and a target that nobody has opened."""
        source = self.raw('source.img', self.random())
        target = self.raw('target.img')
        self.image = disk_objects.DedupImageFile(path=str(target),
                                                 format='raw')
        self.rig_ = rig.Rig(self, self.binary, spec.Disk(path=source),
                            spec.Disk(path=target), (source, 'raw'),
                            (target, 'raw'))
        self.rig_.start(target=False)

    def build(self, always=True, port=None):
        """Run the task; return the report of the disk."""
        fill_disks.FillDisks(self.operation, port or Port(self), 60.0,
                             always=always).execute()
        (found,) = self.operation.disks
        return found

    def mirror(self, **given):
        """Mirror as libvirt does after that; return bytes mirrored."""
        self.rig_.start_target()
        mark = self.rig_.begin_mirror(**given)
        copied = self.rig_.ready(mark)
        fill_disks.DiskLook(self.operation, Port(self)).look()
        self.rig_.finish_mirror(mark)
        return copied

    def test_flat(self):
        self.flat()
        found = self.build()
        self.assertEqual(('', []), (found.reason, self.operation.warnings))
        self.assertEqual(HELD // blocks.BLOCK * blocks.BLOCK,
                         found.sources['local'])
        self.assertIn('zero', found.sources)
        self.assertEqual([operations.UNDO_DISKS],
                         self.operation.durable.undo)
        self.rig_.io('write', '-q', '-P', 5, 4 * rig.GRANULE, 4096)
        copied = self.mirror()
        # what it did not have, the canary's granule and one that was
        # written to since
        self.assertLess(copied, case.SIZE - HELD)
        (found,) = self.operation.disks
        self.assertEqual(found.mirrored, copied)
        self.assert_same(self.rig_)

    def test_blocks_from_the_source(self):
        """What is nowhere else, its agent sends: all is proven."""
        self.flat()
        port = Port(self)
        watch = port.watch('disk0')
        port.build('disk0', watch, 60.0, source_blocks=True)
        self.eventually(lambda: port.state('disk0', 1.0).state == 'done',
                        'the disk is built')
        found = {each.name: each.bytes
                 for each in port.state('disk0', 0.0).sources}
        self.assertGreaterEqual(found['source'], DATA - HELD)
        self.assertEqual(case.SIZE, sum(found.values()))
        port.arm('disk0')
        self.rig_.start_target()
        mark = self.rig_.begin_mirror()
        # that of the canary
        self.assertLessEqual(self.rig_.ready(mark), rig.GRANULE)
        self.rig_.finish_mirror(mark)
        self.assert_same(self.rig_)

    def test_written_while_it_is_built(self):
        """Again and again, in a part that the destination has."""
        self.flat()
        stop = threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                number += 1
                self.rig_.io('aio_write', '-q', '-P', number % 250 + 1,
                             number * 7 % 40 * 4096, 4096)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            found = self.build()
            self.rig_.start_target()
            mark = self.rig_.begin_mirror()
        finally:
            stop.set()
            thread.join()
        self.assertEqual('', found.reason)
        self.rig_.io('aio_flush')
        self.rig_.ready(mark)
        self.assertEqual('used', self.rig_.query().state)
        self.rig_.finish_mirror(mark)
        self.assert_same(self.rig_)

    def test_overlay(self):
        """Its base is there; of the top image much is near."""
        base = self.raw('base.img', self.random(seed=2))
        source, target = (self.images.overlay(base, 'raw', name)
                          for name in ('source.img', 'target.img'))
        self.image = disk_objects.DedupImageFile(path=str(target),
                                                 format='qcow2')
        self.backing = [disk_objects.DedupImageFile(path=str(base),
                                                    format='raw')]
        self.rig_ = rig.Rig(
            self, self.binary,
            self.images.disk((base, 'raw'), (source, 'qcow2')),
            self.images.disk((base, 'raw'), (target, 'qcow2')),
            (source, 'qcow2'), (target, 'qcow2'))
        self.rig_.start(target=False)
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
        self.assertGreaterEqual(self.mirror(), DATA)
        self.assert_same(self.rig_)

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
        port = Port(self)
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
        self.assertLess(self.mirror(), case.SIZE - HELD)
        self.assert_same(self.rig_)
        self.assertEqual([], os.listdir(self.directory / 'journals'))

    def test_aborted(self):
        """The task ends soon; nothing is armed."""
        self.flat()
        port = Port(self)
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
