# SPDX-License-Identifier: Apache-2.0
from benchmarks import cells
from benchmarks import paper
from benchmarks import runner
from benchmarks import shared_storage
from guests.errors import GuestError
from nova_dedup_migrate.tests import base


class CellsTest(base.TestCase):

    def test_all_can_be_run(self):
        for cell in cells.full() + cells.quick():
            cell.options.guest_workload()
            for variant in cell.variants:
                cell.options_of(variant).migration()

    def test_names_are_unique(self):
        for every in (cells.full(), cells.quick()):
            names = [cell.name for cell in every]
            self.assertEqual(len(set(names)), len(names))

    def test_the_papers_grid_and_applications(self):
        every = cells.full()
        grid = {(c.row, c.column) for c in every if c.group == 'grid'}
        for rate in ('unlimited', '200/500', '100/500', '100/250', '50/500'):
            for share in (10, 35, 60, 85):
                self.assertIn((f'{share} %', rate), grid)
        found = {c.row for c in every if c.group == 'applications'}
        self.assertEqual(set(paper.APPLICATIONS), found)

    def test_each_reference_is_a_variant(self):
        for cell in cells.full():
            names = [variant.name for variant in cell.variants]
            for variant in cell.variants:
                self.assertIn(variant.reference, names)

    def test_order_alternates(self):
        cell = cells.quick()[0]
        order = [(task.repeat, task.variant.name)
                 for task in runner.tasks([cell], 2)]
        self.assertEqual([(0, 'stock'), (0, 'dedup'),
                          (1, 'dedup'), (1, 'stock')], order)

    def test_choice(self):
        def choose(*words):
            return shared_storage.chosen_cells(
                runner.parser(shared_storage.SharedStorage()).parse_args(
                    words))

        self.assertEqual(24, len(choose('--groups', 'grid')))
        self.assertEqual(6, len(choose('--only', '^grid: 85')))
        self.assertEqual([], choose('--only', 'nothing'))
        for words in (['--groups', 'x'], ['--only', '(']):
            self.assertRaises(ValueError, choose, *words)
        self.assertRaises(GuestError, choose, '--memory', '64')
