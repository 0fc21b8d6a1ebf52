# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate backups, with a cloud that a test makes up."""

import contextlib
import hashlib
import io
import json
import os
import tempfile
import types
from unittest import mock

from nova_dedup_migrate.backups import api
from nova_dedup_migrate.backups import connection
from nova_dedup_migrate.backups import errors
from nova_dedup_migrate.backups import objects
from nova_dedup_migrate.backups import reader
from nova_dedup_migrate.cmd import clouds
from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import fingerprints as contents
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.swaps import watches
from nova_dedup_migrate.tests import base

VOLUME = '33333333-0000-4000-8000-000000000003'
GOOD = '44444444-0000-4000-8000-000000000004'
BAD = '55555555-0000-4000-8000-000000000005'


class Cloud:
    """What openstack.connect() returns, with one server and volume."""

    def __init__(self):
        self.compute = self.block_storage = self.image = self
        self.volume = types.SimpleNamespace(id=VOLUME, project_id='project')

    def find_server(self, name, all_projects):
        return (types.SimpleNamespace(id='server')
                if name == 'server' else None)

    def find_volume(self, name, all_projects):
        return self.volume if name == 'volume' else None

    def volume_attachments(self, server):
        return [types.SimpleNamespace(volume_id=VOLUME)]

    def get_volume(self, volume_id):
        return self.volume

    def snapshots(self, volume_id, all_projects):
        return [types.SimpleNamespace(
            id='snapshot-%d' % hour, status='available', size=1,
            created_at='2026-01-01T0%d:00:00.000000' % hour)
            for hour in (1, 2)] if volume_id == VOLUME else []

    def images(self, instance_uuid):
        return [types.SimpleNamespace(
            id=name, status='active', created_at='2026-01-01T00:00:00Z',
            size=size, disk_format=kind, container_format='bare')
            for name, kind, size in (('image', 'raw', 1 << 20),
                                     ('packed', 'qcow2', 1 << 20),
                                     ('empty', 'raw', 0))]


class BackupsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.conf = self.directory / 'nova.conf'
        self.conf.write_text('[DEFAULT]\nhost = compute-1\n')
        self.patched(clouds, 'connect', return_value=Cloud())
        self.api = mock.create_autospec(api.BackupAssistAPI, instance=True)
        self.patched(api.BackupAssistAPI, 'from_conf', return_value=self.api)
        self.api.open.return_value = objects.DedupBackupTicket(
            url='https://backup:1', ticket='1' * 64, lifetime=1.0)
        self.api.find.return_value = objects.DedupBackupFindReply(
            now='2026-01-02T00:00:00Z', hosts=['backup-1', 'backup-2'],
            backups=[self.backup(GOOD), self.backup(
                BAD, usable=False, reason='the volume is encrypted')])

    def patched(self, owner, name, **kwargs):
        patch = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patch.stop)
        return patch.start()

    def backup(self, backup_id, **fields):
        return objects.DedupBackup(**{
            'backup_id': backup_id, 'volume_id': VOLUME, 'size': 1 << 30,
            'status': 'available', 'chain_length': 2, 'usable': True,
            'data_timestamp': '2026-01-01T00:00:00Z', **fields})

    def run_command(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with (contextlib.redirect_stdout(out),
              contextlib.redirect_stderr(err)):
            status = main.main(['--config-file', str(self.conf), 'backups',
                                *arguments])
        return status, out.getvalue(), err.getvalue()

    def test_a_server(self):
        status, out, _ = self.run_command('server', '-f', 'json')
        rows = json.loads(out)
        self.assertEqual(0, status)
        self.assertEqual(
            [('backup', GOOD), ('backup', BAD),
             ('volume snapshot', 'snapshot-2'),
             ('volume snapshot', 'snapshot-1'), ('image', 'image'),
             ('image', 'packed'), ('image', 'empty')],
            [(row['kind'], row['id']) for row in rows])
        self.assertEqual(('backup-1, backup-2', 2),
                         (rows[0]['served_by'], rows[0]['copies']))
        self.assertEqual(('the volume is encrypted', 0),
                         (rows[1]['reason'], rows[1]['copies']))
        for row in (*rows[2:4], *rows[5:]):
            self.assertRegex(row['reason'], '^not a source: ')
            self.assertEqual(0, row['copies'])
        self.assertEqual(('', 'glance'), (rows[4]['reason'],
                                          rows[4]['served_by']))
        self.assertEqual(1 << 30, rows[2]['size'])
        self.assertGreater(rows[0]['age'], 0)
        self.assertEqual([
            mock.call('backup-1', '1' * 64), mock.call('backup-2', '1' * 64)],
            self.api.close.mock_calls)
        request, = self.api.find.call_args[0]
        self.assertEqual((VOLUME, 'project', 'compute-1'), (
            request.volume_id, request.project_id, request.host))

    def test_what_is_not_known(self):
        _, out, _ = self.run_command('server')
        self.assertIn('unknown: the volume has not been read here', out)
        self.assertIn('unknown: not indexed', out)

    def test_copies(self):
        """A host with another store, and one without a daemon."""
        def open_backup(host, request):
            if host == 'backup-1':
                raise errors.AssistRefused(host=host, reason='no such file')
            if host == 'backup-3':
                raise errors.AssistUnavailable(host=host, reason='silent')
            return self.api.open.return_value

        self.api.open.side_effect = open_backup
        reply = self.api.find.return_value
        reply.hosts = ['backup-1', 'backup-2', 'backup-3']
        reply.backups = [self.backup(GOOD), self.backup(BAD)]
        _, out, _ = self.run_command('volume', '-f', 'json')
        for row in json.loads(out)[:2]:
            self.assertEqual(('backup-2', 1), (row['served_by'],
                                               row['copies']))
        # One that does not answer is not waited for again.
        self.assertEqual(
            ['backup-1', 'backup-2', 'backup-3', 'backup-1', 'backup-2'],
            [call.args[0] for call in self.api.open.mock_calls])

    def test_no_host_serves_it(self):
        self.api.open.side_effect = errors.AssistUnavailable(
            host='x', reason='silent')
        _, out, _ = self.run_command('volume')
        self.assertIn('unknown: no host serves it', out)

    def test_images_that_are_indexed(self):
        """Of the four blocks of the disk the image has one."""
        self.conf.write_text('[DEFAULT]\ninstances_path = %s\n'
                             '[dedup_migrate]\nindex_path = %s\n' % (
                                 self.directory, self.directory / 'index'))
        image = self.directory / '_base' / hashlib.sha1(b'image').hexdigest()
        disk = self.directory / 'server' / 'disk'
        content = os.urandom(4 * blocks.BLOCK)
        with contextlib.closing(store.Index(
                str(self.directory / 'index'))) as index:
            for path, data in (
                    (disk, content),
                    (image, content[blocks.BLOCK:2 * blocks.BLOCK]
                     + os.urandom(blocks.BLOCK)),
                    (self.directory / 'other', content)):
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(data)
                with open(path, 'rb') as file:
                    found = contents.fingerprint(file.fileno())
                index.add(str(path), 'owner', found.stat, found.digests,
                          found.numbers)
        _, out, _ = self.run_command('server', '-f', 'json')
        rows = {row['id']: row['proves'] for row in json.loads(out)}
        self.assertEqual(25.0, rows['image'])
        self.assertEqual('', rows['packed'])

    def proven(self, content, *words):
        """List a volume whose backup has some content."""
        def open_manifest(source):
            file = tempfile.TemporaryFile()
            for at in range(0, len(content), blocks.BLOCK):
                file.write(blocks.digest(content[at:at + blocks.BLOCK]))
            return file

        self.patched(connection, 'tls_context')
        self.patched(reader.BackupReader, 'open', side_effect=open_manifest)
        with mock.patch.object(reader.BackupReader, 'unit', blocks.BLOCK):
            status, out, _ = self.run_command('volume', *words, '-f', 'json')
        self.assertEqual(0, status)
        return json.loads(out)

    def test_a_volume_and_how_much_is_proven(self):
        content = os.urandom(4 * blocks.BLOCK)
        disk = self.directory / 'disk'
        disk.write_bytes(content[:3 * blocks.BLOCK]
                         + os.urandom(blocks.BLOCK))
        rows = self.proven(content, '--disk', str(disk))
        self.assertEqual(75.0, rows[0]['proves'])
        self.assertEqual('', rows[1]['proves'])

    def test_how_much_is_known_to_be_proven(self):
        """By the fingerprints of this host: two of eight are known."""
        self.conf.write_text(self.conf.read_text() + (
            '[dedup_migrate]\nvolumes_path = %s\n' % self.directory))
        records = watches.Records(str(self.directory / 'watches'))
        guest = mock.Mock()
        guest.watch_disk.return_value = watch = watching.DiskWatch(
            'token', 'vda', 'node', watching.WATCHING, 8 * blocks.BLOCK,
            32768)
        records.begin(guest, 'vda', 'instance', 'vda', VOLUME)
        content = os.urandom(4 * blocks.BLOCK)
        with contextlib.closing(fingerprints.Fingerprints(
                records.fingerprints('instance', 'vda'), watch)) as known:
            for number in (1, 3):
                known.note(number, blocks.digest(
                    content[number * blocks.BLOCK:][:blocks.BLOCK]))
            known.note(2, blocks.digest(b'another'))
        # The backup is of a smaller volume.
        self.assertEqual(25.0, self.proven(content)[0]['proves'])

    def test_nothing_of_that_name(self):
        status, _, err = self.run_command('other')
        self.assertEqual(1, status)
        self.assertIn('there is no server and no volume other', err)
