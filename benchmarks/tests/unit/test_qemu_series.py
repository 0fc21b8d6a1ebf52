# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

from benchmarks import qemu_series
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.functional.migration import case

_BINARIES = {(flavour, series): f'/{flavour}-{series}'
             for flavour in ('stock', 'patched', 'faulty')
             for series in ('10.0', '10.2')}


class PairsTest(base.TestCase):

    def environment(self, source, destination):
        return qemu_series.Pair(source, destination, ('one',)).environment(
            _BINARIES)

    def test_faulty(self):
        found = self.environment(('faulty', '10.0'), ('faulty', '10.2'))
        self.assertEqual('/faulty-10.0', found['DEDUP_QEMU_FAULTY'])
        self.assertEqual('/faulty-10.2', found['DEDUP_QEMU_DESTINATION'])

    def test_stock(self):
        for sides in ((('faulty', '10.2'), ('stock', '10.0')),
                      (('stock', '10.0'), ('faulty', '10.2'))):
            found = self.environment(*sides)
            self.assertEqual('/faulty-10.2', found['DEDUP_QEMU_FAULTY'])
            self.assertEqual('/stock-10.0', found['DEDUP_QEMU_STOCK'])
            self.assertEqual('', found['DEDUP_QEMU_DESTINATION'])

    def test_all_tests(self):
        pair = qemu_series.pairs()[0]
        found = pair.environment(_BINARIES)
        for flavour in ('stock', 'patched', 'faulty'):
            self.assertEqual(f'/{flavour}-10.2',
                             found[f'DEDUP_QEMU_{flavour.upper()}'])
            self.assertIn((flavour, '10.2'), pair.sides())
        self.assertEqual('', found['DEDUP_QEMU_DESTINATION'])
        options, number = pair.command()
        self.assertEqual('discover', options[0])
        self.assertGreater(number, 300)

    def test_directions(self):
        names = [pair.name for pair in qemu_series.pairs()]
        self.assertEqual(len(names), len(set(names)))
        for name in ('faulty 10.0 -> faulty 10.2',
                     'faulty 10.2 -> faulty 10.0',
                     'stock 10.0 -> faulty 10.2',
                     'faulty 10.0 -> stock 10.2'):
            self.assertIn(name, names)

    def test_tests_take_this_flavour(self):
        """Else they would run another QEMU, that of the default series."""
        one = case.MigrationCase()
        with mock.patch.object(case.qemus, 'require',
                               side_effect=ValueError) as require:
            self.assertRaises(ValueError, one.setUp)
        self.assertEqual(qemu_series._OURS, require.call_args.args[1])

    def test_tests_exist(self):
        for pair in qemu_series.pairs(quick=True):
            loader = unittest.TestLoader()
            loader.loadTestsFromNames(
                [qemu_series._TESTS + test for test in pair.tests])
            self.assertEqual([], loader.errors)


class CountsTest(base.TestCase):

    def test_failed_and_skipped(self):
        self.assertEqual((7, 3, 1), qemu_series.counts(
            'Ran 7 tests in 1.5s\n\n'
            'FAILED (failures=1, errors=2, skipped=1)\n'))

    def test_passed(self):
        self.assertEqual((1, 0, 0), qemu_series.counts(
            'Ran 1 test in 1.5s\n\nOK\n'))

    def test_nothing(self):
        self.assertEqual((0, 0, 0), qemu_series.counts('boom'))
