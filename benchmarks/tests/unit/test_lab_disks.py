# SPDX-License-Identifier: Apache-2.0
import importlib.util
import unittest

if importlib.util.find_spec('openstack') is None:
    raise unittest.SkipTest('openstacksdk is not installed')

from benchmarks import lab_disks
from lab import migrations
from nova_dedup_migrate.tests import base
from testkit import results


def variant(disk=500, seconds=60.0, mirrored=1, **values):
    disks = [] if mirrored is False else [{
        'target': 'vda', 'mirrored': mirrored, 'build_seconds': 3.0,
        'sources': {'local': 7_000_000},
        'reason': '' if mirrored is not None else 'it does not pay'}]
    return lab_disks.Variant([migrations.Outcome(
        'dedup', 'one', 'two', seconds, disk + 100, 50, 1, 0, 'uuid',
        memory_bytes=100, disks=disks, **{'compared': 1 << 30, **values})])


class JudgeTest(base.TestCase):

    def wrong(self, **found):
        rows = results.Results('x')
        lab_disks.judge({'stock': variant(mirrored=False),
                         'stock-overlay': variant(600, mirrored=False),
                         **found}, rows)
        return [row.name for row in rows.rows if not row.ok]

    def test_right(self):
        self.assertEqual([], self.wrong(
            base=variant(100, 30.0), prepared=variant(10, 20.0),
            overlay=variant(500, 50.0, mirrored=None)))

    def test_too_many_bytes_and_too_slow(self):
        self.assertEqual(['base: disk on the link', 'base: time'],
                         self.wrong(base=variant(500, 60.0)))

    def test_a_disk_differs(self):
        self.assertEqual(
            ['base: bytes of disks that were compared'],
            self.wrong(base=variant(1, 1.0, differing=('at 0',))))
        self.assertEqual(
            ['base: bytes of disks that were compared'],
            self.wrong(base=variant(1, 1.0, compared=0)))

    def test_the_planner_is_wrong(self):
        self.assertEqual(['overlay: disk on the link', 'overlay: time'],
                         self.wrong(overlay=variant(700)))
        self.assertEqual(['base: built'],
                         self.wrong(base=variant(1, 1.0, mirrored=None)))

    def test_sources(self):
        rows = results.Results('x')
        found = variant(1, 1.0)
        found.prepared = [(4.0, 2_000_000), (6.0, 4_000_000)]
        lab_disks.judge({'prepared': found}, rows)
        values = {row.name: row.value for row in rows.rows}
        self.assertEqual((5.0, 3.0, 7.0), (
            values['prepared: preparing'],
            values['prepared: preparing, on the link'],
            values['prepared: from local']))
