# SPDX-License-Identifier: Apache-2.0
"""What an agent does with images of the image store."""

import os
from unittest import mock

from nova_dedup_migrate.agent import stored_images
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import image_store
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.storage import image_server

BLOCK = blocks.BLOCK
OTHER = image_server.IMAGE.replace('2a', '2b', 1)


class StoredImagesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.disk = os.urandom(80 * BLOCK)
        # the guest has rewritten the second half since
        self.server = image_server.Server(
            self, self.disk[:40 * BLOCK] + os.urandom(30 * BLOCK))
        self.cached = {}
        self.images = stored_images.StoredImages(image_store.Tls(),
                                                 self.cached.get)

    def store(self, *images, **changes):
        return image_objects.DedupImageStore(**{
            'endpoint': self.server.endpoint, 'token': image_server.TOKEN,
            'images': [image_objects.DedupStoredImage(
                image=image, size=70 * BLOCK)
                for image in images or (image_server.IMAGE,)], **changes})

    def request(self, *images, count=80, **changes):
        return image_objects.DedupTryImagesRequest(**{
            'store': self.store(*images), 'size': len(self.disk),
            'sample': image_objects.DedupDiskSample(
                digests=[blocks.digest(
                    self.disk[n * BLOCK:(n + 1) * BLOCK]).hex()
                    for n in range(count)],
                offsets=[n * BLOCK for n in range(count)]), **changes})

    def test_sources(self):
        self.assertEqual({}, self.images.sources(None, 1))
        found = self.images.sources(self.store(), len(self.disk))
        source = found[image_server.IMAGE]
        self.addCleanup(source.close)
        self.assertEqual('image_store', source.name)
        block = blocks.Block(b'', 3 * BLOCK, BLOCK)
        self.assertEqual([self.disk[3 * BLOCK:4 * BLOCK]],
                         source.read([block]))

    def test_cached_image(self):
        """It is on this host, so it is not read from the store."""
        self.cached[image_server.IMAGE] = '/base/x'
        self.assertEqual({OTHER}, set(self.images.sources(
            self.store(image_server.IMAGE, OTHER), len(self.disk))))

    def test_try(self):
        reply = self.images.try_(self.request())
        # each third of 80
        self.assertEqual((27, 14, [image_server.IMAGE], ''), (
            reply.tried, reply.found, reply.images, reply.reason))
        self.assertGreater(reply.rate, 1e6)
        read = sum(last - first + 1 for first, last in self.server.ranges)
        self.assertLess(read, 4 << 20)

    def test_nothing_to_try(self):
        reply = self.images.try_(self.request(count=0))
        self.assertEqual((0, 0, [], None), (reply.tried, reply.found,
                                            reply.images, reply.rate))

    def test_image_that_is_gone(self):
        reply = self.images.try_(self.request(OTHER, image_server.IMAGE))
        self.assertEqual((14, [image_server.IMAGE]), (reply.found,
                                                      reply.images))
        self.assertIn('image %s is not read' % OTHER, reply.reason)
        self.assertIn('HTTP 404', reply.reason)

    def test_token_is_not_valid(self):
        self.server.fault = 'unauthorized'
        reply = self.images.try_(self.request())
        self.assertEqual((0, [], None), (reply.found, reply.images,
                                         reply.rate))
        self.assertIn('HTTP 401', reply.reason)
        self.assertNotIn(image_server.TOKEN, reply.reason)

    def test_no_endpoint(self):
        reply = self.images.try_(self.request(store=self.store(
            endpoint='http://h:99999')))
        self.assertEqual(0, reply.found)
        self.assertIn('image_store cannot be used', reply.reason)

    def test_slow(self):
        with mock.patch.object(stored_images, 'PATIENCE', -1.0):
            reply = self.images.try_(self.request())
        self.assertEqual((27, 0), (reply.tried, reply.found))
        self.assertIn('not tried in time', reply.reason)

    def test_hangs(self):
        self.server.fault = 'hangs'
        with mock.patch.object(stored_images, '_TIMEOUT', 0.2):
            reply = self.images.try_(self.request())
        self.assertEqual(0, reply.found)
        self.assertIn('does not answer', reply.reason)

    def test_no_sample_of_the_disk(self):
        for digests, offsets in ((['ab' * 32], []), (['ab'], [0]),
                                 (['x' * 64], [0]), (['ab' * 32], [1]),
                                 (['ab' * 32], [80 * BLOCK])):
            self.assertRaises(ValueError, self.images.try_, self.request(
                sample=image_objects.DedupDiskSample(digests=digests,
                                                     offsets=offsets)))
        self.assertEqual([], self.server.ranges)
