# SPDX-License-Identifier: Apache-2.0
from lab import disk_table
from lab import migrations
from lab import settings
from nova_dedup_migrate.tests import base

FLAT = settings.Settings('local', disks='auto', flat=True)


def outcome(kind='dedup', mirrored=5_000_000, reason='', compared=1 << 30,
            **values):
    return migrations.Outcome(
        kind, 'compute1', 'compute2', 1.0, 1, 1, 1, 0, 'uuid', disks=[{
            'target': 'vda', 'data': 9_000_000, 'mirrored': mirrored,
            'sources': {'local': 4_000_000}, 'build_seconds': 2.0,
            'reason': reason}] if kind != 'stock' else [],
        compared=compared, **values)


class DiskTableTest(base.TestCase):

    def test_bytes_by_source(self):
        text = disk_table.show([outcome()])
        self.assertEqual(
            ['dedup', 'compute1', 'vda', '9.0', '4.0', '5.0', '2.0'],
            text.splitlines()[2].split())
        self.assertIn('1073.7 MB of disks', text)
        self.assertIn('all equal', text)

    def test_images_that_were_left_out(self):
        found = outcome()
        found.disks[0]['image_store'] = 'image x is qcow2 and not raw'
        self.assertIn('images for disk vda from compute1: image x is qcow2',
                      disk_table.show([found]))

    def test_why_it_was_mirrored(self):
        text = disk_table.show([outcome(mirrored=None, reason='so')])
        self.assertIn('  all  ', text)
        self.assertIn('disk vda from compute1: so', text)

    def test_nothing_to_show(self):
        self.assertEqual('', disk_table.show([outcome('stock',
                                                      compared=0)]))

    def test_differing(self):
        one = outcome(differing=('disk: at 0',))
        self.assertIn('disk: at 0', disk_table.show([one]))
        self.assertEqual(['disk: at 0'],
                         list(disk_table.wrong(one, FLAT)))

    def test_mirrored_without_a_reason(self):
        self.assertIn('does not have the reason', next(disk_table.wrong(
            outcome(mirrored=None), FLAT)))
        self.assertEqual([], list(disk_table.wrong(
            outcome(mirrored=None, reason='so'), FLAT)))

    def test_none_was_built(self):
        ours = [outcome('stock'), outcome(mirrored=None, reason='so')]
        self.assertEqual(['no disk was built: so'],
                         list(disk_table.unbuilt(ours, FLAT)))
        self.assertEqual([], list(disk_table.unbuilt(
            [*ours, outcome()], FLAT)))
        self.assertEqual([], list(disk_table.unbuilt(
            ours, settings.Settings('local', disks='auto'))))
