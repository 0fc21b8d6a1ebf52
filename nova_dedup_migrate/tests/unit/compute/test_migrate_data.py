# SPDX-License-Identifier: Apache-2.0
import json

from nova import objects

from nova_dedup_migrate.compute import migrate_data
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes


class MigrateDataTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.data = objects.LibvirtLiveMigrateData(
            block_migration=True, is_shared_instance_path=False,
            is_shared_block_storage=False,
            target_connect_addr='192.0.2.2',
            old_vol_attachment_ids={'volume': 'old'},
            migration=objects.Migration(uuid=fakes.MIGRATION))

    def kept(self):
        """As it is when it was written and read again."""
        return json.loads(json.dumps(migrate_data.encode(
            self.data, True, {'volume': 'old'})))

    def test_and_back(self):
        kept = self.kept()
        found = migrate_data.decode(kept)
        self.assertFalse(found.is_shared_instance_path)
        self.assertEqual({'volume': 'old'}, found.old_vol_attachment_ids)
        self.assertNotIn('migration', found)
        self.assertEqual({'volume': 'old'}, migrate_data.volumes(kept))
        self.assertTrue(migrate_data.is_block_migration(kept))
        self.assertEqual('192.0.2.2', migrate_data.address(kept))
        self.assertIsNone(migrate_data.address({}))

    def test_credentials_are_not_kept(self):
        self.data.bdms = [objects.LibvirtLiveMigrateBDMInfo(
            serial='volume', bus='virtio', dev='vda', type='disk',
            connection_info_json='{"auth_password": "not for disks"}')]
        self.assertNotIn('not for disks', json.dumps(self.kept()))

    def test_vtpm(self):
        """That there is one is kept, as Nova deletes its secret at the end.

        Its secret is not.
        """
        self._require_vtpm()
        self.data.vtpm_secret_uuid = fakes.UUID
        self.data.vtpm_secret_value_bytes = b'not for disks'
        kept = self.kept()
        self.assertNotIn('not for disks', json.dumps(kept))
        found = migrate_data.decode(kept)
        self.assertTrue(found.has_vtpm)
        self.assertFalse(found.has_vtpm_secret_data)

    def test_no_vtpm(self):
        self._require_vtpm()
        self.assertFalse(migrate_data.decode(self.kept()).has_vtpm)

    def _require_vtpm(self):
        if not hasattr(self.data, 'has_vtpm'):
            self.skipTest('Nova 32 does not migrate instances with a vTPM')

    def test_another_object(self):
        kept = self.kept()
        kept['migrate_data'] = objects.Migration().obj_to_primitive()
        self.assertRaises(ValueError, migrate_data.decode, kept)
