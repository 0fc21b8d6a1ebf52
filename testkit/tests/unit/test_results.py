# SPDX-License-Identifier: Apache-2.0
import json

from nova_dedup_migrate.tests import base
from testkit import results


class ResultsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.results = results.Results('make it')

    def test_all_targets_are_met(self):
        self.results.add('time', 1.23456, 's', 'at most 2 s', True)
        self.assertEqual(0, self.results.status())
        self.assertEqual(['time', '1.235', 's', 'at', 'most', '2', 's',
                          'yes'], self.results.text().split('\n')[2].split())

    def test_one_is_not(self):
        self.results.add('time', 1, 's', 'at most 2 s', True)
        self.results.add('outcome', 'lost', '', 'arrived', False)
        self.assertEqual(1, self.results.status())
        self.assertTrue(self.results.text().endswith('NO'))

    def test_nothing_measured_is_no_success(self):
        self.assertEqual(1, self.results.status())

    def test_file(self):
        path = self.temporary_dir() / 'new' / 'report.json'
        self.results.add('outcome', 'lost', '', 'arrived', False)
        self.results.write(path)
        found = json.loads(path.read_text())
        self.assertEqual(
            [{'name': 'outcome', 'value': 'lost', 'unit': '',
              'target': 'arrived', 'ok': False}], found['rows'])
        self.assertEqual('make it', found['made']['command'])
        self.assertEqual({'commit', 'command', 'duration'},
                         set(found['made']))
        self.assertGreaterEqual(found['made']['duration'], 0)
