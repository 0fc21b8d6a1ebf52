# SPDX-License-Identifier: Apache-2.0
import importlib.util
import unittest

if not all(map(importlib.util.find_spec, ('cryptography', 'nbd'))):
    raise unittest.SkipTest('cryptography or nbd is not installed')

from benchmarks import disk_moves
from benchmarks import disk_report
from nova_dedup_migrate.tests import base
from testkit import results

MB = 1_000_000


def run(variant, total=10.0, mirrored=100 * MB, manifest=0, repeat=0,
        link=100, guests=1, **given):
    return disk_report.Run(link, guests, variant, repeat, disk_moves.Outcome(
        mirrored=mirrored, manifest=manifest, total=total,
        **{'identical': True, 'written': 2 * MB, 'latency': (0.002, 0.003),
           **given}))


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
        self.assertAlmostEqual(1.5, rows[
            name + "stock: guest's requests against before"].value)

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
            run('stock'), run('full-mig', 30.0, 300 * MB),
            run('selective-mig', 30.0, 300 * MB)))

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
                **given})

        found = disk_moves._sum([
            moved(sources={'zero': 1, 'local': 5}),
            moved(build=5.0, total=6.0, sources={'zero': 2}, reason='why',
                  latency=(None, 0.008))], 70, 7)
        self.assertEqual(disk_moves.Outcome(
            mirrored=70, manifest=7, copied=6, written=8, build=5.0,
            total=6.0, reason='why', sources={'zero': 3, 'local': 5},
            latency=(0.002, 0.006)), found)
        self.assertEqual(77, found.link)
