# SPDX-License-Identifier: Apache-2.0
import json
import pathlib
import tempfile

from benchmarks import nova_boundary
from nova_dedup_migrate.tests import base
from testkit import results

_GOOD = {'name': 'b', 'said': 'ACTIVE at dest', 'left': [], 'ok': True}
_BAD = {'name': 'a', 'said': 'ERROR at src',
        'left': ['src volumes: 1 instead of 0', 'src claims: 1'],
        'ok': False}


class NovaBoundaryTest(base.TestCase):

    def rows(self, rows, count):
        made = results.Results('make nova-boundary')
        nova_boundary.add_rows(made, rows, count)
        return made.rows

    def test_read_sorts_by_name(self):
        with tempfile.TemporaryDirectory() as directory:
            for row in (_GOOD, _BAD):
                path = pathlib.Path(directory, row['name'] + '.json')
                path.write_text(json.dumps(row))
            self.assertEqual([_BAD, _GOOD],
                             nova_boundary.read(pathlib.Path(directory)))

    def test_text_shows_what_is_left(self):
        self.assertEqual(
            ['NOT  a', 'left: src volumes: 1 instead of 0; src claims: 1',
             'ok   b', 'left: nothing'],
            [line.split('  ACTIVE')[0].split('  ERROR')[0].strip()
             for line in nova_boundary.text([_BAD, _GOOD]).splitlines()])

    def test_rows_of_the_report(self):
        bad, good = self.rows([_BAD, _GOOD], 2)
        self.assertEqual((2, False), (bad.value, bad.ok))
        self.assertEqual((0, True), (good.value, good.ok))

    def test_a_row_without_a_result_is_not_ok(self):
        rows = self.rows([_GOOD], 3)
        self.assertEqual((2, False), (rows[-1].value, rows[-1].ok))

    def test_no_rows_are_not_ok(self):
        self.assertFalse(self.rows([], 0)[-1].ok)
