# SPDX-License-Identifier: Apache-2.0
from benchmarks import volume_report
from nova_dedup_migrate.tests import base
from testkit import results

MIB = 1 << 20


def run(way, seconds, read=100 * MIB, count=1, link=1000, repeat=0,
        guests=1.0, neighbour=1.0):
    filled = (None, None) if way == 'full' else (1.0, 0.9)
    return volume_report.Run(link, count, way, repeat, volume_report.Moved(
        seconds, 0.5, read, guests, *filled, neighbour, 1.5, 50 * MIB,
        60 * MIB, 0))


class VolumeReportTest(base.TestCase):

    def rows(self, *runs):
        out = results.Results('make bench-volumes')
        volume_report.add(out, runs)
        return {row.name: row for row in out.rows}

    def test_targets_that_are_met(self):
        rows = self.rows(
            run('full', 20.0), run('selective', 10.0),
            run('ours', 5.0, 10 * MIB, guests=0.95, neighbour=0.98))
        self.assertEqual([], [row for row in rows.values() if not row.ok])
        name = '1000 Mbit/s, one VM: '
        self.assertEqual(4.0, rows[name + 'faster than full'].value)
        self.assertEqual('4 or more', rows[name + 'faster than full'].target)
        self.assertEqual(0.1, rows[name + 'read against full'].value)
        self.assertEqual(4.0, rows['slowest of ours: faster than full'].value)
        self.assertEqual(0.95, rows[name + "guest's I/O against full"].value)
        self.assertEqual(3, rows['copies compared'].value)

    def test_targets_that_are_missed(self):
        rows = self.rows(
            run('full', 20.0), run('selective', 10.0),
            run('ours', 5.1, 11 * MIB, guests=0.94, neighbour=0.97))
        self.assertEqual(
            {'1000 Mbit/s, one VM: ' + name for name in (
                'faster than full', 'read against full',
                "guest's I/O of before", "neighbour's I/O of before")},
            {row.name for row in rows.values() if not row.ok})

    def test_two_at_once_have_another_target(self):
        rows = self.rows(*(run(way, seconds, MIB, count=2) for way, seconds
                           in (('full', 20.0), ('ours', 4.0))))
        row = rows['1000 Mbit/s, two VMs: faster than full']
        self.assertEqual(('6 or more', False), (row.target, row.ok))

    def test_a_move_that_is_slower_is_noticed_among_others(self):
        rows = self.rows(*(
            run(way, seconds, 1 + 99 * (way == 'full'), repeat=repeat)
            for repeat, ours in enumerate((4.0, 21.0, 4.0))
            for way, seconds in (('full', 20.0), ('selective', 22.0),
                                 ('ours', ours))))
        self.assertEqual(
            ['slowest of ours: faster than full'],
            [row.name for row in rows.values() if not row.ok])

    def test_a_copy_of_all_that_leaves_no_io(self):
        rows = self.rows(run('full', 20.0, guests=0.0), run('ours', 1.0, 1))
        self.assertEqual(
            '-', rows["1000 Mbit/s, one VM: guest's I/O against full"].value)

    def test_repeats_have_a_median_and_a_spread(self):
        rows = self.rows(*(
            run(way, seconds, 1 + (way == 'full'), repeat=repeat)
            for repeat, times in enumerate(((20, 5), (30, 5), (10, 5)))
            for way, seconds in zip(('full', 'ours'), times, strict=True)))
        self.assertEqual('20.00 (10.00-30.00)',
                         rows['1000 Mbit/s, one VM, full: time'].value)
        row = rows['1000 Mbit/s, one VM: faster than full']
        self.assertEqual(('4.00 (2.00-6.00)', True), (row.value, row.ok))

    def test_table(self):
        text = volume_report.show([run('full', 20.0), run('ours', 5.0)])
        self.assertEqual(4, len(text.splitlines()))
        self.assertIn('time 5 s', volume_report.line(run('ours', 5.0)))
