# SPDX-License-Identifier: Apache-2.0
"""Daemons that serve real backups to real clients over TLS."""

import hashlib
import os
import socket
import ssl
import time
from unittest import mock

from cinder import objects
from oslo_config import cfg
import oslo_messaging as messaging

from cinder_backup_assist import conf as options
from cinder_backup_assist.service import daemon
from cinder_backup_assist.service import session
from cinder_backup_assist.tests import certificates
from cinder_backup_assist.tests.cinder_functional import real_backups
from nova_dedup_migrate.backups import api
from nova_dedup_migrate.backups import connection
from nova_dedup_migrate.backups import errors
from nova_dedup_migrate.backups import frames
from nova_dedup_migrate.backups import objects as backup_objects
from nova_dedup_migrate.backups import reader
from nova_dedup_migrate.conf import dedup_migrate

HOST = 'compute-1'


class ServiceTestCase(real_backups.BackupTestCase):

    def setUp(self):
        super().setUp()
        self.directory = os.path.dirname(self.store)
        self.authority = certificates.Authority(self.directory)
        options.register_opts(cfg.CONF)
        certificate, key = self.authority.issue('backup-1')
        for name, value in (
                ('certificate', certificate), ('certificate_key', key),
                ('ca_certificate', self.authority.certificate),
                ('listen_address', '127.0.0.1'), ('port', 0),
                ('advertised_address', '127.0.0.1'), ('idle_time', 10),
                ('ticket_lifetime', 60), ('connections', 4)):
            self.override_config(name, value, 'backup_assist')
        self.transport = messaging.get_rpc_transport(cfg.CONF, 'fake://')
        self.addCleanup(self.transport.cleanup)
        self.api = api.BackupAssistAPI(self.transport)

    def start_daemon(self, host='backup-1'):
        """Start a daemon beside a cinder-backup of a host."""
        self.override_config('host', host)
        service = objects.Service(
            self.context, host=host, binary='cinder-backup',
            topic='cinder-backup', report_count=1, disabled=False)
        service.create()
        service.report_count = 2
        service.save()
        found = daemon.AssistDaemon(cfg.CONF, self.transport)
        self.addCleanup(found.stop)
        found.start()
        self.assertTrue(found.wait_ready(30))
        return found

    def tls(self, host=HOST, authority=None):
        conf = cfg.ConfigOpts()
        dedup_migrate.register_opts(conf)
        conf([])
        certificate, key = (authority or self.authority).issue(host)
        for name, value in (
                ('backup_certificate', certificate),
                ('backup_certificate_key', key),
                ('backup_ca_certificate', self.authority.certificate)):
            conf.set_override(name, value, 'dedup_migrate')
        return connection.tls_context(conf)

    def reader(self, volume_id, host=HOST, project=real_backups.PROJECT):
        found = reader.BackupReader(self.api, self.tls(host), host,
                                    volume_id, project)
        self.addCleanup(found.close)
        return found

    def open(self, backup, host=HOST, project=real_backups.PROJECT,
             volume_id=None, server='backup-1'):
        return self.api.open(server, backup_objects.DedupBackupOpenRequest(
            backup_id=backup.id, volume_id=volume_id or backup.volume_id,
            project_id=project, host=host))

    def connect(self, ticket, **arguments):
        found = connection.Connection('backup-1', ticket,
                                      self.tls(**arguments))
        self.addCleanup(found.close)
        return found

    def find(self, volume_id, project=real_backups.PROJECT):
        return self.api.find(backup_objects.DedupBackupFindRequest(
            volume_id=volume_id, project_id=project, host=HOST))

    def fill(self, found, size):
        """Return the volume as it is read; what is missing is X."""
        result = bytearray(size)
        for frame in found.stream([(0, size)]):
            result[frame.offset:frame.offset + frame.length] = (
                frame.data if frame.kind == frames.DATA
                else b'X' * frame.length)
        return bytes(result)

    def eventually(self, condition):
        end = time.monotonic() + 30
        while not condition():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)


class ReadTest(ServiceTestCase):

    def test_a_volume_is_read_from_the_newest_backup(self):
        backups, contents = self.chain()
        found = self.start_daemon()
        read = self.reader(backups[0].volume_id)
        with read.open() as manifest:
            digests = manifest.seek(0) or manifest.read()
        self.assertEqual(backups[-1].id, read.backup.backup_id)
        self.assertEqual(4, read.backup.chain_length)
        self.assertEqual(len(contents[-1]), read.size)
        self.assertEqual(b''.join(
            hashlib.sha256(contents[-1][at:at + self.unit]).digest()
            for at in range(0, read.size, self.unit)), digests)
        self.assertTrue(contents[-1] == self.fill(read, read.size))
        read.close()
        self.eventually(lambda: not found._metrics.value('connections'))
        self.assertEqual(1, found._metrics.value('sessions_total'))
        self.assertEqual(0, found._tickets.count())

    def test_many_requests_over_one_connection(self):
        backups, contents = self.chain()
        self.start_daemon()
        read = self.reader(backups[0].volume_id)
        read.open().close()
        found = bytearray(read.size)
        for start in range(0, read.size, 5 * self.unit):
            length = min(5 * self.unit, read.size - start)
            for frame in read.stream([(start, length)]):
                found[frame.offset:frame.offset + frame.length] = frame.data
        self.assertTrue(contents[-1] == bytes(found))

    def test_no_answer_waits_for_acknowledgements(self):
        backups, _ = self.chain()
        started = self.start_daemon()
        self.reader(backups[0].volume_id).open().close()
        (accepted,) = started.web._open
        self.assertEqual(1, accepted.getsockopt(socket.IPPROTO_TCP,
                                                socket.TCP_NODELAY))

    def test_a_daemon_that_dies_is_left_for_another(self):
        backups, contents = self.chain(size=6 << 20)
        first = self.start_daemon('backup-1')
        second = self.start_daemon('backup-2')
        by_host = {'backup-1': first, 'backup-2': second}
        read = self.reader(backups[0].volume_id)
        read.open().close()
        used = read.server
        result = bytearray(read.size)
        for number, frame in enumerate(read.stream([(0, read.size)])):
            result[frame.offset:frame.offset + frame.length] = frame.data
            if number == 1:
                by_host[used].web.stop()
        self.assertNotEqual(used, read.server)
        self.assertTrue(contents[-1] == bytes(result))

    def test_no_daemon_is_left(self):
        backups, _ = self.chain(size=6 << 20)
        found = self.start_daemon()
        read = self.reader(backups[0].volume_id)
        read.open().close()
        stream = read.stream([(0, read.size)])
        next(stream)
        found.web.stop()
        self.assertRaises(errors.NoBackup, list, stream)

    def test_the_least_busy_daemon_is_used(self):
        backups, _ = self.chain(increments=0)
        self.start_daemon('backup-1')
        self.start_daemon('backup-2')
        for _ in range(2):
            self.open(backups[0], server='backup-1')
        read = self.reader(backups[0].volume_id)
        read.open().close()
        self.assertEqual('backup-2', read.server)

    def test_what_is_sent_is_compressed(self):
        text = b'%d\n' * self.unit
        content = (text * (1 + (2 << 20) // len(text)))[:2 << 20]
        volume = self.make_volume()
        backup = self.back_up(volume, content)
        metrics = self.start_daemon()._metrics
        found = self.connect(self.open(backup))
        found.manifest().close()
        self.assertTrue(content == self.fill(found, len(content)))
        sent = metrics.value('sent_bytes_total')
        self.assertEqual(len(content), sent)
        compressed = metrics.value('stream_bytes_total')
        self.assertLess(compressed, sent / 10)
        # A client of an older release.
        del found._headers['Accept-Encoding']
        self.assertTrue(content == self.fill(found, len(content)))
        self.assertLess(sent, metrics.value('stream_bytes_total')
                        - compressed)

    def test_metrics(self):
        backups, _ = self.chain(increments=0)
        self.start_daemon()
        found = self.connect(self.open(backups[0]))
        found.manifest().close()
        answer = found._request('GET', '/metrics')
        self.assertIn(b'cinder_backup_assist_sessions_total 1\n',
                      answer.read())


class TicketTest(ServiceTestCase):

    def setUp(self):
        super().setUp()
        backups, _ = self.chain(increments=0)
        self.backup, = backups
        self.daemon = self.start_daemon()

    def refused(self, function, pattern='the ticket is refused'):
        error = self.assertRaises(errors.AssistRefused, function)
        self.assertRegex(str(error), pattern)

    def test_tickets_used_twice_stolen_and_expired(self):
        ticket = self.open(self.backup)
        self.refused(self.connect(ticket, host='compute-2').manifest,
                     'another host')
        self.connect(ticket).manifest().close()
        self.refused(self.connect(ticket).manifest)
        self.assertEqual(
            2, self.daemon._metrics.value('tickets_refused_total'))
        ticket = self.open(self.backup)
        with mock.patch.object(
                self.daemon._tickets, '_clock',
                lambda: time.monotonic() + 61):
            self.refused(self.connect(ticket).manifest, 'expired')

    def test_close_ends_the_connection(self):
        ticket = self.open(self.backup)
        self.assertTrue(self.api.close('backup-1', ticket.ticket))
        self.assertFalse(self.api.close('backup-1', ticket.ticket))
        self.refused(self.connect(ticket).manifest)
        ticket = self.open(self.backup)
        found = self.connect(ticket)
        found.manifest().close()
        self.assertTrue(self.api.close('backup-1', ticket.ticket))
        self.assertRaises(errors.AssistUnavailable, list,
                          found.stream([(0, self.unit)]))

    def test_no_ticket(self):
        ticket = self.open(self.backup)
        found = self.connect(ticket)
        found._headers = {}
        self.refused(found.manifest, 'there is none')
        found._headers = {'Authorization': 'Ticket ' + 'f' * 64}
        self.refused(found.manifest, 'unknown')

    def test_clients_that_are_not_ours(self):
        other = os.path.join(self.directory, 'other')
        os.mkdir(other)
        found = self.connect(self.open(self.backup),
                             authority=certificates.Authority(other))
        self.assertRaises(errors.AssistUnavailable, found.manifest)
        context = self.tls()
        context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
        context.maximum_version = ssl.TLSVersion.TLSv1_1
        found = connection.Connection('backup-1', self.open(self.backup),
                                      context)
        self.assertRaises(errors.AssistUnavailable, found.manifest)
        for data in (b'GET /v1/manifest HTTP/1.1\r\n\r\n', b'\x00' * 1000):
            with socket.create_connection(
                    ('127.0.0.1', self.daemon.web.port)) as plain:
                plain.sendall(data)
                self.assertNotIn(b'200', self.drained(plain))

    def drained(self, plain):
        plain.settimeout(30)
        data = b''
        try:
            while more := plain.recv(4096):
                data += more
        except ConnectionError:
            pass
        return data

    def test_requests_that_are_malformed(self):
        for body in (b'', b'x', b'x' * 17, frames.pack_extents([(0, 0)]),
                     frames.pack_extents([(1, self.unit)]),
                     frames.pack_extents([(0, 2 ** 64 - 1)]),
                     frames.pack_extents([(2 ** 63, 2 ** 63)]),
                     frames.pack_extents([(self.unit, self.unit),
                                          (0, self.unit)])):
            found = self.connect(self.open(self.backup))
            found.manifest().close()
            self.refused(
                lambda found=found, body=body: found._request(
                    'POST', '/v1/stream', body), 'the request is refused')
            found.close()
            self.eventually(lambda: not self.daemon._tickets.count())
        found = self.connect(self.open(self.backup))
        found.manifest().close()
        found._headers['Content-Length'] = str(1 << 40)
        self.refused(lambda: found._request('POST', '/v1/stream', b''),
                     'Content-Length')

    def test_an_error_of_the_daemon_ends_the_connection(self):
        with mock.patch.object(session.Session, 'frames', autospec=True,
                               side_effect=RuntimeError):
            found = self.connect(self.open(self.backup))
            found.manifest().close()
            self.assertRaises(errors.AssistUnavailable, list,
                              found.stream([(0, self.unit)]))
        self.eventually(lambda: not self.daemon._tickets.count())

    def test_what_is_refused_on_the_bus(self):
        self.refused(lambda: self.open(self.backup, project='f' * 32),
                     'another project')
        os.rename(self.store, self.store + '.away')
        self.refused(lambda: self.open(self.backup), 'cannot be read')
        os.rename(self.store + '.away', self.store)
        for _ in range(4):
            self.open(self.backup)
        self.refused(lambda: self.open(self.backup), 'is busy')


class PolicyTest(ServiceTestCase):

    def test_policy_forbids(self):
        backups, _ = self.chain(increments=0)
        path = os.path.join(self.directory, 'backup_assist_policy.yaml')
        with open(path, 'w') as file:
            file.write('"backup_assist:open": "host:compute-2"\n')
        with mock.patch('cinder_backup_assist.policy.FILE', path):
            self.start_daemon()
        error = self.assertRaises(errors.AssistRefused, self.open,
                                  backups[0])
        self.assertIn('the policy', str(error))
        self.open(backups[0], host='compute-2')
