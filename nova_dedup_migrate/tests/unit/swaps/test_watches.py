# SPDX-License-Identifier: Apache-2.0
"""Records of volumes whose writes are recorded."""

from nova_dedup_migrate.backups import objects
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import watches
from nova_dedup_migrate.tests import base

_INSTANCE = '22222222-0000-4000-8000-000000000002'
_VOLUME = '33333333-0000-4000-8000-000000000003'


def backup(volume_id=_VOLUME, **fields):
    return objects.DedupBackup(
        backup_id=_INSTANCE, volume_id=volume_id, status='available',
        size=1 << 30, data_timestamp='2026-01-02T00:00:00Z',
        chain_length=1, usable=True, **fields)


class RecordTest(base.TestCase):

    def test_which_backups_are_not_used(self):
        """Only one of another volume; content decides about the others."""
        record = watches.Record(_INSTANCE, 'vdb', _VOLUME, 't')
        self.assertEqual('', record.refusal(backup()))
        self.assertEqual('', record.refusal(backup(of_snapshot=True)))
        self.assertIn('another volume', record.refusal(backup(_INSTANCE)))

    def test_a_damaged_record_is_none(self):
        directory = self.temporary_dir()
        records = watches.Records(str(directory))
        records.save(watches.Record(_INSTANCE, 'vdb', _VOLUME, 't'))
        path = directory / ('%s.vdb.json' % _INSTANCE)
        good = path.read_text()
        self.assertEqual([(_INSTANCE, 'vdb')], list(records.names()))
        for wrong in ('', '[]', '{}', good[:-5],
                      good.replace('"t"', '7'),
                      good.replace('}', ', "known": []}'),
                      good.replace('vdb', 'vdc')):
            path.write_text(wrong)
            self.assertIsNone(records.load(_INSTANCE, 'vdb'), wrong)
        self.assertRaises(errors.NotFillable, records.load, '../x', 'vdb')
