# SPDX-License-Identifier: Apache-2.0
"""Ranges of an image, from servers that do not serve them well."""

import io
import os
import ssl
import threading
import time
from unittest import mock

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import fetch
from nova_dedup_migrate.storage import image_store
from nova_dedup_migrate.storage import layers
from nova_dedup_migrate.storage.sources import base as sources
from nova_dedup_migrate.storage.sources import image
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.storage import image_server
from nova_dedup_migrate.tests.unit.storage.channel import certificates
from nova_dedup_migrate.tests.unit.storage.sources import conformance

BLOCK = blocks.BLOCK


class Case(base.TestCase):
    def setUp(self):
        super().setUp()
        self.data = os.urandom(12 * BLOCK + 512)
        self.server = image_server.Server(self, self.data)
        self.source = self.of(self.server)

    def of(self, server, **changes):
        layer = image_store.ImageLayer(**{
            'endpoint': server.endpoint, 'image': image_server.IMAGE,
            'size': len(self.data), 'token': image_server.TOKEN,
            'tls': image_store.Tls(), 'timeout': 0.5, **changes})
        found = image.ImageSource([layer], 1 << 30, name=image_store.NAME)
        self.addCleanup(found.close)
        return found

    def wanted(self, *numbers):
        return [blocks.Block(
            blocks.digest(self.data[n * BLOCK:(n + 1) * BLOCK]), n * BLOCK,
            len(self.data[n * BLOCK:(n + 1) * BLOCK]))
            for n in numbers or range(13)]


class ImageStoreSourceTest(conformance.Conformance, Case):
    def setUp(self):
        super().setUp()
        self.content = {
            n * BLOCK: self.data[n * BLOCK:(n + 1) * BLOCK]
            for n in range(2, 13)}


class AnswersTest(Case):
    def test_every_byte(self):
        self.assertTrue(self.data == b''.join(
            self.source.read(self.wanted())))
        self.assertEqual([(0, len(self.data) - 1)], self.server.ranges)

    def test_what_is_sent(self):
        self.source.read(self.wanted(3, 4, 9))
        self.assertEqual([(3 * BLOCK, 5 * BLOCK - 1),
                          (9 * BLOCK, 10 * BLOCK - 1)], self.server.ranges)
        self.assertEqual(image_server.TOKEN,
                         self.server.headers['X-Auth-Token'])
        self.assertEqual('identity', self.server.headers['Accept-Encoding'])
        self.assertEqual(1, self.server.connections)

    def refused(self, fault, match):
        self.server.fault = fault
        error = self.assertRaises(errors.SourceFailed, self.source.read,
                                  self.wanted(1, 2))
        self.assertRegex(str(error), match)
        self.assertNotIn(image_server.TOKEN, str(error))
        # and the next answer is not mistaken for the rest of this one
        self.server.fault = None
        self.assertTrue(self.data[5 * BLOCK:7 * BLOCK] == b''.join(
            self.source.read(self.wanted(5, 6))), fault)

    def test_refused(self):
        for fault, match in (
                ('whole', 'HTTP 200: it ignores ranges'),
                ('other_range', 'Content-Range .bytes 0-'),
                ('other_size', 'Content-Range'),
                ('no_range', 'Content-Range None'),
                ('short', 'instead of'), ('shorter', 'Content-Length'),
                ('longer', 'Content-Length'),
                ('endless', 'more than the range'),
                ('hangs', 'does not answer'), ('hangs_within', 'timed out'),
                ('unauthorized', 'HTTP 401: the token'),
                ('forbidden', 'HTTP 403'), ('gone', 'HTTP 404'),
                ('no_ranges', 'HTTP 400: the store'),
                ('gzip', 'Content-Encoding .gzip'),
                ('no_http', 'does not answer'),
                ('drops', 'does not answer')):
            self.refused(fault, match)

    def test_redirect_is_not_followed(self):
        """It may lead to a host that must not have the token."""
        other = image_server.Server(self, self.data)
        self.server.elsewhere = '%s/v2/images/%s/file' % (
            other.endpoint, image_server.IMAGE)
        self.refused('redirects', 'HTTP 302')
        self.assertEqual([], other.ranges)

    def test_slow_without_end(self):
        with mock.patch.object(image_store, 'ANSWER', 0.5):
            begun = time.monotonic()
            self.refused('trickles', 'took more than')
            self.assertLess(time.monotonic() - begun, 10)

    def test_without_a_length(self):
        for fault in 'closes', 'chunked':
            self.server.fault = fault
            self.assertTrue(self.data == b''.join(
                self.source.read(self.wanted())), fault)

    def test_idle_connection_was_closed(self):
        """It is made again."""
        self.server.fault = 'closes'
        self.source.read(self.wanted(1))
        self.server.fault = None
        self.source.read(self.wanted(1))
        connection, = self.source._map._layers[0]._all
        connection._socket.shutdown(2)
        self.assertTrue(self.data[:BLOCK] == self.source.read(
            self.wanted(0))[0])
        self.assertEqual(3, self.server.connections)

    def test_beyond_the_image(self):
        block = blocks.Block(b'', 20 * BLOCK, BLOCK)
        self.assertEqual([False], self.source.have([block]))

    def test_other_size(self):
        """Of a server that has another image by now."""
        source = self.of(self.server, size=len(self.data) - 512)
        self.assertRaises(errors.SourceFailed, source.read, self.wanted(0))

    def test_closed_while_it_waits(self):
        source = self.of(self.server, timeout=30.0)
        self.server.fault = 'hangs'
        ended = threading.Event()

        def read():
            self.assertRaises(errors.SourceFailed, source.read,
                              self.wanted(0))
            ended.set()

        threading.Thread(target=read, daemon=True).start()
        self.eventually(lambda: self.server.ranges, 'it is called')
        source.close()
        self.assertTrue(ended.wait(10))
        self.assertRaises(errors.SourceFailed, source.read, self.wanted(0))
        self.assertEqual(1, len(self.server.ranges))

    def test_no_endpoint(self):
        for endpoint in ('ftp://h/', 'http://', 'http://user:pw@h/',
                         'http://h/?x', 'http://h:99999999/', '/etc'):
            error = self.assertRaises(
                errors.SourceFailed, image_store.ImageLayer, endpoint,
                image_server.IMAGE, 1, 'token', image_store.Tls())
            self.assertNotIn('token', str(error))

    def test_proxies_do_not_get_the_token(self):
        other = image_server.Server(self, self.data)
        with mock.patch.dict(os.environ, {
                'http_proxy': other.endpoint, 'HTTP_PROXY': other.endpoint,
                'no_proxy': ''}):
            self.source.read(self.wanted(0))
        self.assertEqual([], other.ranges)


class FetchTest(Case):
    """What else there is serves instead."""

    def setUp(self):
        super().setUp()
        self.other = image.ImageSource(
            [layers.RangeLayer(lambda offset, length: io.BytesIO(
                self.data[offset:offset + length]), len(self.data))],
            len(self.data), name='other',
            cost=sources.Cost(rate=1e3, latency=100.0))

    def fetched(self, fault, after=0):
        self.server.fault, self.server.after = fault, after
        fetcher = fetch.Fetcher([self.source, self.other], 5.0, 2)
        self.addCleanup(fetcher.close)
        names = set()
        for number in range(13):
            block, = self.wanted(number)
            data, used = fetcher.fetch([block])[block.digest]
            self.assertTrue(data == self.data[
                block.offset:block.offset + block.length])
            names.add(used.source.name)
        return names, fetcher.used[0]

    def test_right(self):
        names, used = self.fetched(None)
        self.assertEqual(({'image_store'}, ''), (names, used.left))

    def test_token_expires(self):
        """The source is left, and no call is made any more."""
        names, used = self.fetched('unauthorized', 4)
        self.assertEqual({'image_store', 'other'}, names)
        self.assertIn('HTTP 401', used.left)
        self.assertEqual(4 + fetch.STRIKES, len(self.server.ranges))

    def test_image_is_deleted(self):
        names, used = self.fetched('gone', 4)
        self.assertEqual({'image_store', 'other'}, names)
        self.assertIn('HTTP 404', used.left)

    def test_other_bytes(self):
        """Of an image that is not what it was: the digest refuses them."""
        with mock.patch.object(fetch, 'WRONG', 8):
            names, used = self.fetched('other_bytes', 2)
        self.assertEqual({'image_store', 'other'}, names)
        self.assertIn('were wrong', used.left)


class TlsTest(Case):
    def setUp(self):
        super().setUp()
        self.authority = certificates.Authority(self.temporary_dir())
        self.files = self.authority.host('localhost')
        self.server = image_server.Server(self, self.data,
                                          self.files.context(True))

    def read(self, **files):
        return self.of(self.server, tls=image_store.Tls(**files)).read(
            self.wanted())

    def test_known_authority(self):
        self.assertTrue(self.data == b''.join(self.read(
            cafile=self.files.authority, certfile=self.files.certificate,
            keyfile=self.files.key)))

    def test_another_authority(self):
        other = certificates.Authority(self.temporary_dir(), 'other')
        for files in {'cafile': str(other.path)}, {}:
            error = self.assertRaises(errors.SourceFailed, self.read,
                                      **files)
            self.assertIn('CERTIFICATE_VERIFY_FAILED', str(error))
        self.assertEqual([], self.server.ranges)

    def test_another_host(self):
        files = self.authority.host('glance.example')
        server = image_server.Server(self, self.data, files.context(True))
        source = self.of(server, tls=image_store.Tls(files.authority))
        self.assertRaises(errors.SourceFailed, source.read, self.wanted(0))
        self.assertEqual([], server.ranges)

    def test_insecure(self):
        """[glance] insecure of nova.conf."""
        with mock.patch.object(ssl, 'CERT_REQUIRED', ssl.CERT_NONE):
            self.server = image_server.Server(self, self.data,
                                              self.files.context(True))
        self.assertTrue(self.data == b''.join(self.read(insecure=True)))

    def test_no_such_file(self):
        self.assertRaises(errors.SourceFailed, self.read, cafile='/none')
