# SPDX-License-Identifier: Apache-2.0
import importlib.util
import json
import unittest

if not all(map(importlib.util.find_spec, ('cryptography', 'nbd'))):
    raise unittest.SkipTest('cryptography or nbd is not installed')

from benchmarks import disk_moves
from benchmarks import disk_report
from benchmarks import disk_summary
from nova_dedup_migrate.planner import disks as planner
from nova_dedup_migrate.tests import base
from testkit import results

MB = 1_000_000
BUILDS = planner.Decision(True, 10.0, 5.0, 1e8)
LEAVES = planner.Decision(False, 10.0, 12.0, 1e8, 'it does not pay')


def run(variant, total=10.0, mirrored=100 * MB, manifest=0, repeat=0,
        link=100, guests=1, **given):
    return disk_report.Run(link, guests, variant, repeat, disk_moves.Outcome(
        mirrored=mirrored, manifest=manifest, total=total,
        **{'identical': True, 'written': 2 * MB, 'latency': (0.002, 0.003),
           'requests': 0.96, 'downtime': 0.05, 'processor': (1.0, 0.5, 2.0),
           'decisions': (BUILDS,) * guests
           if variant in disk_moves.BUILT else (), **given}))


class OrderTest(base.TestCase):

    def test_every_other_round_goes_the_other_way(self):
        found = [disk_report.order(('a', 'b', 'c'), number)
                 for number in range(3)]
        self.assertEqual([('a', 'b', 'c'), ('c', 'b', 'a'), ('a', 'b', 'c')],
                         found)


class AddTest(base.TestCase):

    def rows(self, *runs):
        out = results.Results('make bench-disks')
        disk_report.add(out, runs)
        return {row.name: row for row in out.rows}

    def wrong(self, *runs):
        return [name.removeprefix('100 Mbit/s, one guest, ')
                for name, row in self.rows(*runs).items() if not row.ok]

    def test_targets_that_are_met(self):
        runs = [
            run('stock'), run('full-mig', 20.0, 150 * MB),
            run('selective-mig', 5.0, 3 * MB, copied=90 * MB),
            run('base', 10.0, 24 * MB, MB), run('snapshot', 9.0, 4 * MB, MB),
            run('neighbour', 9.0, 4 * MB, MB,
                sources={'neighbour': 95 * MB}),
            run('kept', 9.0, 2 * MB, 200_000),
            run('prepared', 4.0, 2 * MB, 100_000)]
        self.assertEqual([], self.wrong(*runs))
        rows = self.rows(*runs)
        name = '100 Mbit/s, one guest, '
        self.assertEqual(0.05, rows[
            name + 'snapshot: bytes against stock'].value)
        self.assertEqual(0.45, rows[
            name + 'snapshot: time against full-mig'].value)
        self.assertEqual(1.05, rows[
            name + 'prepared: bytes against written since'].value)
        self.assertEqual(90.0, rows[
            name + 'selective-mig: from the backup server'].value)
        self.assertEqual(95.0, rows[
            name + 'neighbour: from neighbour'].value)
        self.assertEqual(
            [0.96, 1.0, 0.5, 2.0, 5.0, 10.0, 'builds'],
            [rows[name + 'kept: ' + what].value for what in (
                "guest's I/O of before", "processor of the source's QEMU",
                "processor of the destination's QEMU",
                'processor of the agents', 'time, as predicted',
                "stock's time, as predicted", 'the planner')])

    def test_targets_that_are_missed(self):
        self.assertEqual(
            ['base: bytes against stock', 'snapshot: bytes against stock',
             'snapshot: time against stock',
             'kept: bytes against written since',
             'prepared: bytes against written since'],
            self.wrong(
                run('stock'), run('base', 10.0, 26 * MB),
                run('snapshot', 10.1, 5 * MB, 1),
                run('kept', 1.0, 2 * MB, 200_001),
                run('prepared', 1.0, 2 * MB, 200_001)))

    def test_baselines_have_no_target(self):
        self.assertEqual([], self.wrong(
            run('stock', requests=0.5),
            run('full-mig', 30.0, 300 * MB, requests=0.5, downtime=9.0),
            run('selective-mig', 30.0, 300 * MB, requests=0.5)))

    def test_the_guest_is_slowed_down(self):
        """Its median counts, as does that of downtimes."""
        self.assertEqual(
            ["snapshot: guest's I/O of before",
             'snapshot: downtime, more than stock'],
            self.wrong(*(run('stock', downtime=0.1, repeat=repeat)
                         for repeat in range(3)),
                       *(run('snapshot', 9.0, MB, repeat=repeat,
                             requests=requests, downtime=downtime)
                         for repeat, (requests, downtime) in enumerate(
                             ((1.0, 0.1), (0.94, 0.121), (0.94, 0.121))))))
        self.assertEqual([], self.wrong(
            run('stock', downtime=0.1),
            run('snapshot', 9.0, MB, requests=0.95, downtime=0.12)))

    def test_the_planner_would_not_build(self):
        """Then no time is saved nor lost; otherwise it is judged."""
        runs = [run('stock', repeat=0), run('stock', repeat=1),
                run('base', 20.0, MB, repeat=0, decisions=(BUILDS, LEAVES)),
                run('base', 9.0, MB, repeat=1)]
        self.assertEqual([], self.wrong(*runs))
        rows = self.rows(*runs)
        name = '100 Mbit/s, one guest, base: '
        self.assertEqual(
            (0.9, '1 or less in each run'),
            (rows[name + 'time against stock'].value,
             rows[name + 'time against stock'].target))
        self.assertEqual('builds 1 of 2: it does not pay',
                         rows[name + 'the planner'].value)
        rows = self.rows(*runs[:3])
        self.assertNotIn(name + 'time against stock', rows)
        self.assertEqual(
            2.0, rows[name + 'time against stock, left to QEMU'].value)
        self.assertEqual('leaves it to QEMU: it does not pay',
                         rows[name + 'the planner'].value)

    def test_a_disk_differs(self):
        for variant in disk_moves.VARIANTS:
            self.assertEqual(
                ['%s: runs whose disks are equal' % variant],
                self.wrong(run(variant, mirrored=MB, identical=False), run(
                    variant, mirrored=MB, repeat=1)), variant)

    def test_it_was_not_built(self):
        self.assertEqual(['snapshot: taken by the mirror'], self.wrong(
            run('stock'), run('snapshot', 9.0, MB, reason='no space')))

    def test_one_run_is_slower_than_its_neighbour(self):
        # The median of both is the same, and stock is slow once.
        runs = [run('stock', total, repeat=repeat)
                for repeat, total in enumerate((10.0, 20.0, 10.0))]
        runs += [run('snapshot', total, MB, repeat=repeat)
                 for repeat, total in enumerate((5.0, 10.5, 10.5))]
        self.assertEqual(['snapshot: time against stock'], self.wrong(*runs))
        row = self.rows(*runs)['100 Mbit/s, one guest, snapshot: '
                               'time against stock']
        self.assertEqual('0.525 (0.500-1.050)', row.value)

    def test_median_and_spread(self):
        runs = [run('stock', total, repeat=repeat)
                for repeat, total in enumerate((10.0, 30.0, 12.0))]
        self.assertEqual(
            '12.000 (10.000-30.000)',
            self.rows(*runs)['100 Mbit/s, one guest, stock: time'].value)

    def test_cells_are_not_mixed(self):
        rows = self.rows(
            run('stock', 20.0, link=50), run('snapshot', 10.0, MB, link=50),
            run('stock', 10.0, guests=2), run('snapshot', 8.0, MB, guests=2))
        self.assertEqual(0.5, rows[
            '50 Mbit/s, one guest, snapshot: time against stock'].value)
        self.assertEqual(0.8, rows[
            '100 Mbit/s, 2 guests, snapshot: time against stock'].value)

    def test_without_stock_there_is_nothing_to_compare(self):
        rows = self.rows(run('snapshot'))
        self.assertEqual([], [name for name in rows if 'against stock'
                              in name])

    def test_guest_without_requests(self):
        row = self.rows(run('stock', latency=(None, None)))[
            "100 Mbit/s, one guest, stock: guest's requests before"]
        self.assertEqual(('none', True), (row.value, row.ok))

    def test_a_round_that_was_interrupted(self):
        rows = self.rows(run('stock'), run('base', 5.0), run(
            'base', 50.0, repeat=1))
        self.assertEqual(0.5, rows[
            '100 Mbit/s, one guest, base: time against stock'].value)

    def test_summary(self):
        """Ours, and what the papers have for the same cell."""
        runs = [run('stock', 20.0), run('full-mig', 30.0, 150 * MB),
                run('snapshot', 5.0, 4 * MB, MB),
                run('snapshot', 8.0, link=50),
                run('stock', 30.0, guests=2)]
        found = disk_summary.rows(runs)
        self.assertEqual(
            [('100', '1', 'stock', '100.0', '-', '20.0', '-', '1.50', '0.96',
              '50', '3.5', '-'),
             ('100', '1', 'full-mig', '150.0', '-50 %', '30.0', '-50 %',
              '1.00', '0.96', '50', '3.5', '-'),
             ('100', '1', 'snapshot', '5.0', '95 %', '5.0', '75 %', '6.00',
              '0.96', '50', '3.5', 'builds'),
             ('100', '1', 'paper 3: 663 s to 351 s', '-', '-', '-', '-',
              '1.89', '-', '-', '-', '-'),
             ('100', '1', 'paper 4: system of 32 GB', '-', '66 %', '-',
              '59 %', '-', '-', '-', '-', '-')], found[:5])
        self.assertEqual(
            [('50', '1', 'snapshot'), ('50', '1', 'paper 3: 663 s to 351 s'),
             ('50', '1', 'paper 4: over a WAN'), ('100', '2', 'stock'),
             ('100', '2', 'paper 3: 2028 s to 694 s')],
            [row[:3] for row in found[6:]])

    def test_publish(self):
        out = results.Results('make bench-disks')
        runs = [run('stock'), run('snapshot', 5.0)]
        disk_report.add(out, runs)
        directory = self.temporary_dir() / 'new'
        disk_summary.publish(runs, 'make bench-disks', out, directory)
        text = (directory / 'disks.inc').read_text()
        self.assertTrue(text.startswith('Made with::\n\n   make bench-disks'))
        self.assertIn('paper 4: system of 300 GB', text)
        self.assertEqual(len(out.rows), len(json.loads(
            (directory / 'disks.json').read_text())['rows']))

    def test_line(self):
        self.assertEqual(
            '100 Mbit/s, 2 guests, stock: 10.0 s, 100.0 MB on the link, '
            'all bytes equal', disk_report.line(run('stock', guests=2)))
        self.assertIn('DIFFER', disk_report.line(
            run('stock', identical=False)))


class SumTest(base.TestCase):

    def test_guests_at_once(self):
        def moved(**given):
            return disk_moves._Moved(**{
                'build': 1.0, 'total': 2.0, 'copied': 3, 'written': 4,
                'sources': {}, 'reason': '', 'latency': (0.002, 0.004),
                'requests': 1.0, 'downtime': 0.1, 'decision': BUILDS,
                **given})

        found = disk_moves._sum([
            moved(sources={'zero': 1, 'local': 5}),
            moved(build=5.0, total=6.0, sources={'zero': 2}, reason='why',
                  latency=(None, 0.008), requests=0.5, downtime=0.3,
                  decision=None)], 70, 7)
        self.assertEqual(disk_moves.Outcome(
            mirrored=70, manifest=7, copied=6, written=8, build=5.0,
            total=6.0, reason='why', sources={'zero': 3, 'local': 5},
            latency=(0.002, 0.006), requests=0.75, downtime=0.3,
            decisions=(BUILDS,)), found)
        self.assertEqual(77, found.link)
