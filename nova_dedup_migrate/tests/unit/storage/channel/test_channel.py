# SPDX-License-Identifier: Apache-2.0
"""Both ends of the data channel over real TLS on the loopback interface."""

import io
import os
import random
import socket
import ssl
import threading

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import canary
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage import manifest
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.storage.channel import client
from nova_dedup_migrate.storage.channel import errors
from nova_dedup_migrate.storage.channel import frames
from nova_dedup_migrate.storage.channel import limiter
from nova_dedup_migrate.storage.channel import server
from nova_dedup_migrate.storage.channel import services
from nova_dedup_migrate.storage.channel import tickets
from nova_dedup_migrate.storage.channel import tls
from nova_dedup_migrate.storage.sources import neighbour
from nova_dedup_migrate.storage.sources import source
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.storage import memory
from nova_dedup_migrate.tests.unit.storage.channel import certificates
from nova_dedup_migrate.tests.unit.storage.sources import conformance
from nova_dedup_migrate.tests.unit.storage.sources import test_sources

BLOCK = blocks.BLOCK
MIGRATION = '1a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'


class ChannelCase(base.TestCase):
    def setUp(self):
        super().setUp()
        self.authority = certificates.Authority(self.temporary_dir())
        self.server = server.Server(
            '127.0.0.1', 0, self.authority.host('Compute1'),
            limiter.Limiter(0))
        self.addCleanup(self.server.close)
        self.certificates = self.authority.host('compute2')

    def offer(self, service, host='compute2'):
        return client.Offer('Compute1', '127.0.0.1', self.server.port,
                            self.server.tickets.issue(host, MIGRATION,
                                                      service))

    def connect(self, service, **options):
        channel = client.Channel(self.offer(service, **options),
                                 self.certificates)
        self.addCleanup(channel.close)
        return channel


class NeighbourSourceTest(conformance.Conformance, ChannelCase):
    def setUp(self):
        super().setUp()
        self.content = test_sources.random_content()
        self.behind = source.GuestDiskSource(memory.Disk(
            test_sources.disk_of(self.content)))
        self.service = services.BlockService(self.behind)
        self.source = neighbour.NeighbourSource(
            lambda: self.connect(self.service))
        self.addCleanup(self.source.close)

    def test_neither_end_waits_for_acknowledgements(self):
        channel = self.connect(self.service)
        for end in (channel._socket, *self.server._open):
            self.assertTrue(end.getsockopt(socket.IPPROTO_TCP,
                                           socket.TCP_NODELAY), end)

    def test_connected_again(self):
        """A connection that breaks costs one call."""
        self.source.read(self.wanted())
        for connection in list(self.server._open):
            connection.shutdown(socket.SHUT_RDWR)
        self.assertRaises(storage_errors.SourceFailed, self.source.read,
                          self.wanted())
        self.assertTrue(list(self.content.values())
                        == self.source.read(self.wanted()))

    def test_closed(self):
        self.source.close()
        self.assertRaises(storage_errors.SourceFailed, self.source.have,
                          self.wanted())

    def test_failure_is_told(self):
        self.behind._disk.bad = [3 * BLOCK]
        error = self.assertRaises(storage_errors.SourceFailed,
                                  self.source.read, self.wanted())
        self.assertIn('agent of Compute1 refuses', str(error))
        # the connection stays
        self.assertEqual([True] * 6, self.source.have(self.wanted()))

    def test_wrong_content_is_not_sent(self):
        wanted = self.wanted()
        wanted[0] = blocks.Block(blocks.digest(b'x'), *[
            getattr(wanted[0], name) for name in ('offset', 'length')])
        self.assertIsNone(self.source.read(wanted)[0])


class SourceSourceTest(conformance.Conformance, ChannelCase):
    def setUp(self):
        super().setUp()
        self.content = test_sources.random_content()
        disk = memory.Disk(test_sources.disk_of(self.content))
        self.source = source.SourceSource(lambda: self.connect(
            services.DiskService(len(disk.data), None,
                                 source.GuestDiskSource(disk), None,
                                 None)))
        self.addCleanup(self.source.close)


class DiskServiceTest(ChannelCase):
    def setUp(self):
        super().setUp()
        self.data = bytearray(os.urandom(200 * BLOCK))
        self.disk = memory.Disk(self.data)
        self.proven = []
        self.channel = self.connect(services.DiskService(
            len(self.data),
            lambda ranges: scan.scan(self.disk, lambda *span: None,
                                     wanted=ranges),
            None, lambda *args: self.proven.append(args),
            lambda: self.written))

    def test_written(self):
        self.written = bitmap.Bitmap(frames.MAX_PART * 24)
        self.written.set(1000, frames.MAX_PART * 16)
        found = self.channel.written(self.written.size)
        self.assertEqual(bytes(self.written), bytes(found))
        # one of another disk
        for size in (self.written.size - 1, 8, self.written.size + 9):
            self.assertRaises(errors.ChannelBroken, self.channel.written,
                              size)
            if size == 8:
                break

    def test_manifest(self):
        wanted = bitmap.Bitmap(200)
        wanted.set(20, 100)
        for _ in range(2):
            found = {}
            for record in manifest.parse(self.channel.manifest(wanted),
                                         len(self.data), wanted):
                found.update((block.offset, block.digest)
                             for block in record.blocks(len(self.data)))
            self.assertEqual([n * BLOCK for n in range(20, 120)],
                             sorted(found))
            for offset, digest in found.items():
                self.assertEqual(digest, blocks.digest(
                    self.data[offset:offset + BLOCK]))

    def test_disk_is_gone(self):
        """An error within the manifest arrives."""
        self.disk.bad, self.disk.ready = [100 * BLOCK], False
        wanted = bitmap.Bitmap(200)
        wanted.set(0, 200)
        read = self.channel.manifest(wanted)
        error = self.assertRaises(
            storage_errors.DiskUnreadable, list,
            manifest.parse(read, len(self.data)))
        self.assertIn('Compute1', str(error))
        # which is complete without its end
        self.channel.proven(bitmap.Bitmap(200), canary.Canary(
            0, bytes(512)))

    def test_ended(self):
        """By another thread, while its answer is waited for."""
        wanted = bitmap.Bitmap(200)
        wanted.set(0, 200)
        read = self.channel.manifest(wanted)
        read(24)
        self.channel.end()
        # what has arrived is still decrypted
        error = self.assertRaises(errors.ChannelBroken, list,
                                  iter(lambda: read(1), b''))
        self.assertIn('closed', str(error))

    def test_of_another_disk(self):
        read = self.channel.manifest(bitmap.Bitmap(100))
        self.assertRaises(errors.ChannelBroken, read, 1)

    def test_proven(self):
        proven = bitmap.Bitmap(100)
        proven.set(3, 50)
        mark = canary.Canary(0, os.urandom(512))
        self.channel.proven(proven, mark)
        (found, other), = self.proven
        self.assertEqual((bytes(proven), 100), (bytes(found), found.size))
        self.assertEqual(mark, other)

    def test_blocks_are_not_sent(self):
        self.assertRaises(errors.ChannelRefused, self.channel.have,
                          [blocks.Block(b'x' * 32, 0, BLOCK)])


class AuthenticationTest(ChannelCase):
    def setUp(self):
        super().setUp()
        self.service = services.BlockService(source.GuestDiskSource(
            memory.Disk(bytearray(BLOCK))))

    def refused(self, offer, with_certificates=None, match=''):
        error = self.assertRaises(
            errors.ChannelError, client.Channel, offer,
            with_certificates or self.certificates)
        self.assertIn(match, str(error))

    def test_ticket_is_good_once(self):
        offer = self.offer(self.service)
        channel = client.Channel(offer, self.certificates)
        self.addCleanup(channel.close)
        self.refused(offer, match='not known, or was used')

    def test_ticket_of_another_host(self):
        self.refused(self.offer(self.service, host='compute3'),
                     match='it is for host compute3')

    def test_forged_ticket(self):
        offer = self.offer(self.service)
        self.refused(client.Offer(offer.host, offer.address, offer.port,
                                  os.urandom(32)), match='not known')

    def test_revoked(self):
        offer = self.offer(self.service)
        self.server.tickets.revoke(MIGRATION)
        self.refused(offer, match='not known')

    def test_client_of_another_authority(self):
        other = certificates.Authority(self.temporary_dir(), 'other')
        stranger = other.host('compute2')
        mixed = tls.Certificates(self.certificates.authority,
                                 stranger.certificate, stranger.key)
        self.refused(self.offer(self.service), mixed)

    def test_server_of_another_authority(self):
        other = certificates.Authority(self.temporary_dir(), 'other')
        self.refused(self.offer(self.service), other.host('compute2'),
                     match='certificate verify failed')

    def test_server_with_another_name(self):
        offer = self.offer(self.service)
        self.refused(client.Offer('compute9', offer.address, offer.port,
                                  offer.ticket),
                     match='certificate is not valid')

    def test_client_without_certificate(self):
        offer = self.offer(self.service)
        context = ssl.create_default_context(
            cafile=self.certificates.authority)
        with socket.create_connection(('127.0.0.1', offer.port)) as plain, \
                context.wrap_socket(plain, server_hostname='Compute1'
                                    ) as secure:
            secure.settimeout(20)
            self.assertRaises((OSError, AssertionError), self._hello,
                              secure, offer)
        # nothing was used up
        self.connect(self.service).close()

    def _hello(self, secure, offer):
        secure.sendall(frames.MAGIC + offer.ticket)
        self.assertTrue(secure.recv(5))

    def test_no_certificates(self):
        missing = tls.Certificates('/none', '/none', '/none')
        self.assertRaises(errors.NoCertificates, missing.context, True)


class TicketsTest(base.TestCase):
    def test_too_old(self):
        now = [0.0]
        issued = tickets.Tickets(lambda: now[0])
        ticket = issued.issue('a', MIGRATION, None)
        now[0] = tickets.LIFETIME
        self.assertRaises(errors.TicketRefused, issued.take, ticket, {'a'})

    def test_too_many(self):
        now = [0.0]
        issued = tickets.Tickets(lambda: now[0])
        for _ in range(tickets.MAX_TICKETS):
            issued.issue('a', MIGRATION, None)
        self.assertRaises(errors.TicketRefused, issued.issue, 'a',
                          MIGRATION, None)
        now[0] = tickets.LIFETIME
        issued.issue('a', MIGRATION, None)


class FuzzTest(ChannelCase):
    """A peer with a ticket that sends anything."""

    def test_frames(self):
        for seed in range(400):
            rng = random.Random(seed)
            kind = rng.choice((*frames.REQUESTS, rng.randrange(256)))
            payload = rng.randbytes(rng.randrange(200))
            length = rng.choice((len(payload), rng.randrange(2 ** 32)))
            data = io.BytesIO(frames.HEADER.pack(length, kind) + payload)

            def receive(count, data=data):
                # a frame that is read has to be within its limit
                self.assertLessEqual(count, max(frames.LIMITS.values()))
                found = data.read(count)
                if len(found) != count:
                    raise errors.ChannelBroken(reason='end')
                return found
            try:
                kind, payload = frames.read(receive, frames.REQUESTS)
            except errors.ChannelBroken:
                continue
            for unpack in (frames.unpack_blocks, frames.unpack_bitmap,
                           frames.unpack_proven,
                           lambda data: frames.unpack_content(data, 3)):
                try:
                    unpack(payload)
                except errors.ChannelBroken:
                    pass

    def test_tickets(self):
        """Whatever is sent instead of a ticket, the server goes on."""
        context = self.certificates.context(server=False)
        for seed in range(8):
            rng = random.Random(seed)
            with socket.create_connection(
                    ('127.0.0.1', self.server.port)) as plain, \
                    context.wrap_socket(plain, server_hostname='Compute1'
                                        ) as secure:
                secure.settimeout(20)
                secure.sendall(rng.choice((b'', frames.MAGIC))
                               + rng.randbytes(rng.randrange(40, 60)))
                try:
                    while secure.recv(4096):
                        pass
                except OSError:
                    pass
        self.test_good_ticket_afterwards()

    def test_good_ticket_afterwards(self):
        service = services.BlockService(source.GuestDiskSource(
            memory.Disk(bytearray(BLOCK))))
        channel = self.connect(service)
        self.assertEqual([True], channel.have(
            [blocks.Block(blocks.ZERO_DIGEST, 0, BLOCK)]))

    def test_answer_of_another_length(self):
        class Short(services.Service):
            def answer(self, kind, payload):
                yield b'\1'

        channel = self.connect(Short())
        two = [blocks.Block(b'x' * 32, 0, BLOCK)] * 2
        self.assertRaises(errors.ChannelBroken, channel.have, two)
        self.assertRaises(errors.ChannelBroken, channel.read, two)


class LimiterTest(base.TestCase):
    def test_shared(self):
        now, slept = [0.0], []
        limit = limiter.Limiter(100.0, lambda: now[0], slept.append)
        limit(50)
        limit(100)
        limit(10)
        self.assertEqual([0.5, 1.5], slept)
        now[0] = 60.0
        limit(10)
        self.assertEqual(2, len(slept))

    def test_none(self):
        limiter.Limiter(0.0, sleep=self.fail)(10 ** 9)


class CloseTest(ChannelCase):
    def test_ends_connections(self):
        class Hanging(services.Service):
            def answer(self, kind, payload):
                begun.set()
                end.wait(30)
                yield b''

        begun, end = threading.Event(), threading.Event()
        self.addCleanup(end.set)
        channel = self.connect(Hanging())
        failures = []

        def call():
            try:
                channel.have([])
            except errors.ChannelBroken as error:
                failures.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        self.assertTrue(begun.wait(20))
        self.server.close()
        thread.join(20)
        self.assertEqual(1, len(failures))
