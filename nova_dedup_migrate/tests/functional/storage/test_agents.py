# SPDX-License-Identifier: Apache-2.0
"""Three agents build a disk together, over TLS, without Nova."""

import contextlib
import hashlib
import importlib.util
import os
import threading
import unittest
from unittest import mock

if importlib.util.find_spec('libvirt') is None:
    raise unittest.SkipTest('libvirt-python is not installed')

from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.agent import owners
from nova_dedup_migrate.agent import replicas
from nova_dedup_migrate.engine import cloud
from nova_dedup_migrate.engine import errors as engine_errors
from nova_dedup_migrate.engine import public_images
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.storage.channel import errors as channel_errors
from nova_dedup_migrate.storage.channel import services
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.storage.sources import local
from nova_dedup_migrate.storage.sources import source
from nova_dedup_migrate.tests.functional.storage import world
from nova_dedup_migrate.tests.unit.storage import image_server
from nova_dedup_migrate.tests.unit.storage import memory
from nova_dedup_migrate.tests.unit.storage.channel import certificates

BLOCK = blocks.BLOCK
INSTANCE = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
MIGRATION = '1a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
IMAGE = '2a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
PRIVATE = '3a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'


class AgentsTest(world.Case):
    def setUp(self):
        super().setUp()
        self.authority = certificates.Authority(self.temporary_dir())
        self.indexes, self.channels, self.owners = {}, {}, {}
        for host in ('source', 'destination', 'neighbour'):
            self.indexes[host] = store.Index(str(
                self.directory / host))
            self.addCleanup(self.indexes[host].close)
            self.owners[host] = owners.Owners(mock.Mock(), '/nowhere',
                                              3600.0)
            self.channels[host] = disk_channel.DiskChannel(
                host, '127.0.0.1', 0, self.authority.host(host),
                self.indexes[host], [str(self.directory)], 0.0,
                self.owners[host].allowed)
            self.channels[host].start()
            self.addCleanup(self.channels[host].stop)
        # what a disk of 300 blocks is made of: base, neighbour, new
        self.data = world.content(9, 300)
        self.plain = b''.join(self.data)
        self.hold('destination', 'base', self.data[:150],
                  owners.of_image(IMAGE))
        self.hold('neighbour', 'other', self.data[150:220], 'p1')
        self.disk = memory.Disk(bytearray(self.plain))
        self.proven = []
        self.written = bitmap.Bitmap(-(-len(self.plain) // 65536))
        self.cached = {}
        self.image = self.create('target', 'raw', len(self.plain))
        self.agents = mock.create_autospec(api.AgentAPI, instance=True)
        self.agents.channel_offer.side_effect = (
            lambda ctxt, host, request: self.channels[host].offer(request))
        self.agents.set_public_images.side_effect = (
            lambda ctxt, host, images: self.owners[host].set_public(images))
        self.cloud = mock.create_autospec(cloud.Cloud, instance=True)
        self.images = public_images.PublicImages(
            self.cloud, self.agents, lambda: list(self.owners), 60.0,
            lambda: False)
        self.fillings = self.fillings_()

    def fillings_(self):
        found = fillings.Fillings(
            self.channels['destination'], self.indexes['destination'],
            self.agents, [str(self.directory)],
            str(self.directory / 'journals'), 0, self.program,
            self.cached.get, str(self.directory / 'replicas'))
        found.start()
        self.addCleanup(found.stop)
        return found

    def hold(self, host, name, content, owner):
        path = self.directory / (host + '-' + name)
        path.write_bytes(b''.join(content))
        with path.open('rb') as file:
            found = fingerprints.fingerprint(file.fileno())
        self.indexes[host].add(str(path), owner, found.stat, found.digests,
                               found.numbers)

    def watch(self, scanning=None, send=False):
        def scanned(ranges):
            return scan.scan(self.disk, lambda *span: None, wanted=ranges,
                             granularity=65536)
        self.channels['source'].add_disk(
            MIGRATION, 'vda', services.DiskService(
                len(self.plain), scanning or scanned,
                source.GuestDiskSource(self.disk) if send else None,
                lambda *args: self.proven.append(args),
                lambda: self.written))

    def request(self, **changes):
        return disk_objects.DedupFillRequest(**{
            'instance_uuid': INSTANCE, 'migration_uuid': MIGRATION,
            'project_id': 'p1', 'images': [IMAGE], 'target': 'vda',
            'image': disk_objects.DedupImageFile(path=self.image.path,
                                                 format='raw'),
            'size': len(self.plain), 'watch': 'ab' * 32,
            'source': 'source', 'neighbours': ['neighbour'], **changes})

    def finish(self, store=None, **changes):
        self.fillings.fill({}, self.request(**changes), store=store)
        for _ in range(600):
            reply = self.fillings.filling(disk_objects.DedupFillingRequest(
                migration_uuid=MIGRATION, target='vda', wait=1.0))
            if reply.state != 'running':
                return reply
        self.fail('the disk is not built')

    def bytes(self, reply):
        return {each.name: each.bytes for each in reply.sources}

    def count(self, part):
        return sum(len(data) for data in part if any(data))

    def check(self):
        """Compare what the source was told with the target."""
        (proven, mark), = self.proven
        built = self.content(self.image)
        total = 0
        for offset, length in proven.extents(65536, len(self.plain)):
            self.assertTrue(built[offset:offset + length]
                            == self.plain[offset:offset + length])
            total += length
        self.assertEqual(mark.data, built[mark.offset:mark.offset + 512])
        return total

    def test_together(self):
        self.watch()
        reply = self.finish()
        self.assertEqual(('done', ''), (reply.state, reply.reason))
        zeros = sum(len(data) for data in self.data if not any(data))
        self.assertEqual({'local': self.count(self.data[:150]),
                          'neighbour': self.count(self.data[150:220]),
                          'zero': zeros}, self.bytes(reply))
        self.assertGreater(self.check(), zeros)
        # what was built is indexed without being read
        known = local.LocalSource(self.indexes['destination'],
                                  lambda: ['p1'],
                                  [str(self.directory)])
        wanted = [blocks.Block(blocks.digest(data), 0, len(data))
                  for data in self.data[:220] if any(data)]
        for block, data in zip(wanted[:64], known.read(wanted[:64]),
                               strict=True):
            self.assertEqual(block.digest, blocks.digest(data))
        self.assertEqual([], os.listdir(self.directory / 'journals'))

    def test_blocks_from_the_source(self):
        self.watch(send=True)
        reply = self.finish(source_blocks=True)
        self.assertEqual('done', reply.state)
        # it is used as well for what others are late with
        self.assertGreaterEqual(self.bytes(reply)['source'],
                                self.count(self.data[220:]))
        self.assertEqual(len(self.plain), sum(self.bytes(reply).values()))
        self.assertEqual(len(self.plain) - 65536, self.check())

    def test_image_that_is_not_indexed(self):
        """A cached image of the instance is read where the disk is."""
        path = self.directory / 'cached'
        path.write_bytes(b''.join(self.data[:200]))
        self.cached[IMAGE] = str(path)
        self.indexes['destination'].remove(
            str(self.directory / 'destination-base'))
        self.watch()
        reply = self.finish(neighbours=[])
        self.assertEqual(self.count(self.data[:200]),
                         self.bytes(reply)['image'])
        self.check()

    def stored(self, content):
        """Have an image in the image store."""
        self.server = image_server.Server(self, b''.join(content))
        return image_objects.DedupImageStore(
            endpoint=self.server.endpoint, token=image_server.TOKEN, images=[
                image_objects.DedupStoredImage(
                    image=image_server.IMAGE,
                    size=len(self.server.content))])

    def alone(self, store):
        """Build the disk from zeros and the image store."""
        self.watch()
        reply = self.finish(store, project_id='p2', images=[],
                            neighbours=[])
        self.assertEqual(('done', ''), (reply.state, reply.reason))
        self.check()
        return self.bytes(reply)

    def test_image_store(self):
        """A snapshot of which the guest has rewritten some since."""
        changed = [os.urandom(BLOCK) if 40 <= number < 90 else data
                   for number, data in enumerate(self.data[:250])]
        store = self.stored(changed)
        found = self.alone(store)
        self.assertEqual({'zero', 'image_store'}, set(found))
        self.assertEqual(self.count(self.data[:40] + self.data[90:250]),
                         found['image_store'])

    def test_image_store_ends_in_the_middle(self):
        """The token expires: the rest is left to the mirror."""
        store = self.stored(self.data)
        self.server.fault, self.server.after = 'unauthorized', 2
        found = self.alone(store)
        self.assertLess(found['image_store'], self.count(self.data))
        self.assertLess(len(self.server.ranges), 20)

    def test_image_store_with_other_bytes(self):
        store = self.stored(self.data)
        self.server.fault = 'other_bytes'
        self.assertEqual({'zero'}, set(self.alone(store)))

    def test_cached_image_is_not_read_from_the_store(self):
        path = self.directory / 'cached'
        path.write_bytes(b''.join(self.data[:200]))
        self.cached[image_server.IMAGE] = str(path)
        self.indexes['destination'].remove(
            str(self.directory / 'destination-base'))
        store = self.stored(self.data[:200])
        self.watch()
        reply = self.finish(store, images=[image_server.IMAGE],
                            neighbours=[], project_id='p2')
        self.assertEqual({'zero', 'image'}, set(self.bytes(reply)))
        self.assertEqual([], self.server.ranges)
        self.check()

    def test_other_project(self):
        """Neither the neighbour nor this host shows what it has."""
        self.watch()
        reply = self.finish(project_id='p2', images=[])
        self.assertEqual({'zero'}, set(self.bytes(reply)))
        self.check()

    def test_public_images(self):
        """Those of the engine's list are for all projects, no others."""
        self.hold('neighbour', 'public', self.data[200:250],
                  owners.of_image(IMAGE))
        self.hold('destination', 'private', self.data[250:270],
                  owners.of_image(PRIVATE))
        self.hold('neighbour', 'private', self.data[270:], owners.of_image(
            PRIVATE))
        self.watch()
        for project, listed, found in (
                ('p2', [IMAGE], {
                    'local': self.count(self.data[:150]),
                    'neighbour': self.count(self.data[200:250])}),
                ('p3', [PRIVATE], {
                    'local': self.count(self.data[250:270]),
                    'neighbour': self.count(self.data[270:])}),
                # it was withdrawn
                ('p4', [], {})):
            self.cloud.public_images.return_value = list(listed)
            self.images.send()
            reply = self.finish(project_id=project, images=[])
            self.assertEqual(('done', ''), (reply.state, reply.reason))
            self.assertEqual(
                {'zero': len(self.plain) - self.count(self.data), **found},
                self.bytes(reply))
            self.check()
            self.begin_anew()

    def test_public_images_cannot_be_listed(self):
        """The list before stays, and no other one is made up."""
        self.watch()
        self.cloud.public_images.return_value = [IMAGE]
        self.images.send()
        self.cloud.public_images.side_effect = (
            engine_errors.CloudUnavailable(doing='list', reason='away'))
        self.assertRaises(engine_errors.CloudUnavailable, self.images.send)
        reply = self.finish(project_id='p2', images=[])
        self.assertEqual(self.count(self.data[:150]),
                         self.bytes(reply)['local'])
        self.check()

    def test_withdrawn_while_others_read(self):
        """A connection that was made before does not go on showing it."""
        data = next(filter(any, self.data))
        block = blocks.Block(blocks.digest(data), 0, BLOCK)
        self.owners['destination'].set_public([IMAGE])
        with contextlib.closing(self.channels['neighbour'].connect(
                self.channels['destination'].offer, 'destination',
                migration_uuid=MIGRATION, project_id='p2', images=[],
                target=None)) as channel:
            # not assertEqual: it would print both
            self.assertTrue([data] == channel.read([block]))
            self.owners['destination'].set_public([])
            self.assertEqual([False], channel.have([block]))
            self.assertEqual([None], channel.read([block]))

    def begin_anew(self):
        """Forget the disk that was built, and make another target."""
        self.fillings.abort(MIGRATION)
        self.proven.clear()
        self.indexes['destination'].remove(self.image.path)
        os.unlink(self.image.path)
        self.image = self.create('target', 'raw', len(self.plain))

    def test_connection_breaks(self):
        """The disk is continued, with what was proven."""
        runs = []

        def breaking(ranges):
            runs.append(sum(length for _, length in ranges))
            stream = scan.scan(self.disk, lambda *span: None, wanted=ranges,
                               granularity=65536)
            for number, part in enumerate(stream):
                if len(runs) == 1 and number == 12:
                    # until the destination has proven something
                    self.eventually(
                        lambda: hashlib.sha256(self.content(
                            self.image)).digest() != empty, 'it is filled')
                    for open_one in list(
                            self.channels['source']._server._open):
                        open_one.shutdown(2)
                yield part

        empty = hashlib.sha256(self.content(self.image)).digest()
        self.watch(breaking)
        reply = self.finish()
        self.assertEqual('done', reply.state)
        self.assertEqual(2, len(runs))
        self.assertLess(runs[1], runs[0])
        self.check()

    def test_not_watched(self):
        reply = self.finish()
        self.assertEqual('failed', reply.state)
        self.assertIn('is not watched', reply.reason)
        # it can be begun again
        self.watch()
        self.assertEqual('done', self.finish().state)

    def test_target_replaced_afterwards(self):
        self.watch()
        self.assertEqual('done', self.finish().state)
        os.rename(self.image.path, self.image.path + '.old')
        self.create('target', 'raw', len(self.plain))
        reply = self.fillings.filling(disk_objects.DedupFillingRequest(
            migration_uuid=MIGRATION, target='vda'))
        self.assertEqual('failed', reply.state)
        self.assertIn('has been replaced', reply.reason)

    def test_aborted(self):
        begun, end = [], threading.Event()
        self.addCleanup(end.set)

        def stalled(ranges):
            stream = scan.scan(self.disk, lambda *span: None, wanted=ranges,
                               granularity=65536)
            yield next(stream)
            begun.append(True)
            # the source is silent
            end.wait(60)
            yield from stream

        self.watch(stalled)
        self.fillings.fill({}, self.request())
        self.eventually(lambda: begun, 'the manifest is read')
        self.fillings.abort(MIGRATION)
        self.assertEqual('unknown', self.fillings.filling(
            disk_objects.DedupFillingRequest(
                migration_uuid=MIGRATION, target='vda')).state)
        self.assertEqual([], os.listdir(self.directory / 'journals'))
        self.assertEqual([], self.proven)

    def test_time_is_over(self):
        """While the source is silent: what is proven is sent and used."""
        end = threading.Event()
        self.addCleanup(end.set)

        def stalled(ranges):
            stream = scan.scan(self.disk, lambda *span: None, wanted=ranges,
                               granularity=65536)
            for number, part in enumerate(stream):
                if number == 12:
                    end.wait(60)
                yield part

        empty = self.content(self.image)
        self.watch(stalled)
        self.fillings.fill({}, self.request())
        self.eventually(lambda: self.content(self.image) != empty,
                        'something is written')
        reply = self.finish(seconds=0.0)
        self.assertEqual('done', reply.state)
        self.assertIn('the time for that was over', reply.reason)
        self.assertFalse(end.is_set())
        proven = self.check()
        self.assertGreater(proven, 0)
        self.assertLess(proven, len(self.plain) // 2)
        self.assertEqual([], os.listdir(self.directory / 'journals'))

    def test_more_time(self):
        """A later call gives it time anew."""
        self.watch()
        begun = threading.Event()
        real = scan.scan(self.disk, lambda *span: None, granularity=65536)

        def waiting(ranges):
            begun.wait(20)
            yield from real

        self.watch(waiting)
        self.fillings.fill({}, self.request(seconds=3600.0))
        (filling,) = self.fillings._known.values()
        first = filling._timer
        self.fillings.fill({}, self.request(seconds=1800.0))
        self.assertTrue(first.finished.is_set())
        self.assertEqual(1800.0, filling._timer.interval)
        begun.set()
        reply = self.finish(seconds=1800.0)
        self.assertEqual(('done', ''), (reply.state, reply.reason))
        self.check()

    def test_result_is_sent_again(self):
        """By another connection; nothing is built twice."""
        runs, broken = [], []

        def scanned(ranges):
            runs.append(ranges)
            return scan.scan(self.disk, lambda *span: None, wanted=ranges,
                             granularity=65536)

        def prove(*args):
            if not broken:
                broken.append(True)
                raise channel_errors.ChannelBroken(reason='gone')
            self.proven.append(args)

        self.watch(scanned)
        self.channels['source'].add_disk(MIGRATION, 'vda', (
            services.DiskService(len(self.plain), scanned, None, prove,
                                 lambda: self.written)))
        self.assertEqual('done', self.finish().state)
        self.assertEqual(1, len(runs))
        self.check()

    def test_agent_restarted(self):
        """What was proven before is not fetched again."""
        self.watch()
        self.hold('neighbour', 'all', [], 'p1')
        first = self.finish(neighbours=[])
        self.assertEqual('done', first.state)
        self.proven.clear()
        self.fillings = self.fillings_()
        reply = self.finish(reuse=True)
        self.assertEqual('done', reply.state)
        found = self.bytes(reply)
        self.assertGreater(found['kept'],
                           self.count(self.data[:150]) - 2 * 65536)
        self.check()

    def test_prepared(self):
        """After a replica the source has no block left to send."""
        kept = replicas.Replicas(
            str(self.directory / 'replicas'), 1 << 30, self.fillings,
            self.indexes['destination'], lambda instance: False,
            self.agents, 0.0, lambda: False)
        kept.start()
        self.addCleanup(kept.stop)
        self.watch(send=True)
        kept.prepare({}, replica_objects.DedupPrepareRequest(
            fill=self.request(source_blocks=True), lease=600.0,
            data=len(self.plain)))
        self.eventually(lambda: kept.list().replicas[0].state == 'done',
                        'the replica is built')
        self.fillings.abort(MIGRATION)
        # the guest writes meanwhile
        new = os.urandom(2 * BLOCK)
        self.disk.data[250 * BLOCK:252 * BLOCK] = new
        self.plain = bytes(self.disk.data)
        self.proven.clear()
        reply = self.finish(source_blocks=True, neighbours=[], images=[])
        self.assertEqual('done', reply.state)
        self.assertEqual(len(self.plain), sum(self.bytes(reply).values()))
        found = self.bytes(reply)
        # The replica is in the index, too: whichever is read first.
        self.assertGreater(found.get('local', 0) + found.get('replica', 0),
                           self.count(self.data) // 2)
        self.check()

    def test_outside(self):
        self.watch()
        reply = self.finish(image=disk_objects.DedupImageFile(
            path='/etc/passwd', format='raw'))
        self.assertEqual('failed', reply.state)
        self.assertIn('not below a directory with disks', reply.reason)

    def test_malformed(self):
        self.watch()
        for change in ({'size': 100}, {'granularity': 4096},
                       {'granularity': 3 << 15}):
            reply = self.finish(**change)
            self.assertEqual('failed', reply.state, change)

    def test_no_libnbd(self):
        with mock.patch.object(fillings, 'nbd', None):
            self.assertRaises(errors.FillRefused, self.fillings.fill, {},
                              self.request())
