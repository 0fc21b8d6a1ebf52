# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate backups, with a cloud that a test makes up."""

import contextlib
import io
import json
import os
import tempfile
import types
from unittest import mock

from nova_dedup_migrate.backups import api
from nova_dedup_migrate.backups import connection
from nova_dedup_migrate.backups import objects
from nova_dedup_migrate.backups import reader
from nova_dedup_migrate.cmd import clouds
from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.storage import blocks
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

    def images(self, instance_uuid):
        return [types.SimpleNamespace(
            id='image', status='active', created_at='2026-01-01T00:00:00Z',
            size=1 << 20)]


class BackupsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.conf = self.directory / 'nova.conf'
        self.conf.write_text('[DEFAULT]\nhost = compute-1\n')
        self.patched(clouds, 'connect', return_value=Cloud())
        self.api = mock.create_autospec(api.BackupAssistAPI, instance=True)
        self.patched(api.BackupAssistAPI, 'from_conf', return_value=self.api)
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
        self.assertEqual([GOOD, BAD, 'image'], [row['id'] for row in rows])
        self.assertEqual('backup-1, backup-2', rows[0]['served_by'])
        self.assertEqual('the volume is encrypted', rows[1]['reason'])
        self.assertGreater(rows[0]['age'], 0)
        request, = self.api.find.call_args[0]
        self.assertEqual((VOLUME, 'project', 'compute-1'), (
            request.volume_id, request.project_id, request.host))

    def proven(self, content, *words):
        """List a volume whose backup has some content."""
        def open_manifest(source):
            source.server = 'backup-2'
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
        self.assertEqual('backup-2', rows[0]['served_by'])
        self.assertIsNone(rows[1]['proves'])

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
