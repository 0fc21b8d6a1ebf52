# SPDX-License-Identifier: Apache-2.0
import importlib.util
import json
import subprocess
import unittest
from unittest import mock

if not all(map(importlib.util.find_spec, ('cryptography', 'nbd'))):
    raise unittest.SkipTest('cryptography or nbd is not installed')

from benchmarks import disk_guest
from benchmarks import disk_moves
from benchmarks import disks
from nova_dedup_migrate.tests import base
from testkit import qemus


class ParseTest(base.TestCase):

    def values(self, *words):
        found = disks.parse(list(words))
        return found.mib, found.link, found.guests, found.repeat

    def test_usual(self):
        self.assertEqual((256, (50, 100), None, 2), self.values())

    def cells(self, *words):
        return [(link, guests, len(variants)) for link, guests, variants
                in disks.cells(disks.parse(list(words)))]

    def test_cells(self):
        """Over a slow link only what differs there, unless it is given."""
        self.assertEqual([(50, 1, 3), (100, 1, 8), (100, 2, 8)],
                         self.cells())
        self.assertEqual([(100, 1, 8)], self.cells('--quick'))
        self.assertEqual([(50, 2, 2)], self.cells(
            '--link', '50', '--guests', '2', '--variants', 'stock,kept'))

    def test_quick(self):
        self.assertEqual((128, (100,), (1,), 1), self.values('--quick'))

    def test_given_has_precedence(self):
        self.assertEqual((64, (50,), (2,), 2), self.values(
            '--quick', '--mib', '64', '--link', '50', '--guests', '2',
            '--repeat', '2'))

    def test_malformed(self):
        for words in (['--variants', 'stock,other'], ['--link', '0'],
                      ['--guests', 'x'], ['--mib', '8']):
            with mock.patch('sys.stderr'):
                self.assertRaises(SystemExit, disks.parse, words)


class MainTest(base.TestCase):

    def run_(self, outcomes, *words):
        """Return the exit status and the rows."""
        top = self.temporary_dir()
        self.made = []
        run = mock.Mock(side_effect=outcomes)

        def cell(variant, mib, rate, rewrite, directory, guests, storage):
            self.made.append((variant, mib, rate, rewrite, guests, storage))
            return mock.Mock(run=run)

        with mock.patch.object(disk_moves, 'Cell', cell), mock.patch.object(
                disks, 'TOP', top), mock.patch('builtins.print'):
            status = disks.main(list(words))
        report = json.loads((top / 'build/bench-disks/report.json')
                            .read_text())
        return status, {row['name']: row for row in report['rows']}

    def test_rounds(self):
        outcome = disk_moves.Outcome(mirrored=1, total=1.0, identical=True)
        status, rows = self.run_(
            [outcome] * 8, '--quick', '--repeat', '2', '--guests', '1,2',
            '--variants', 'stock,full-mig', '--storage', '20')
        self.assertEqual(0, status)
        self.assertEqual(
            [('stock', 1), ('full-mig', 1), ('stock', 2), ('full-mig', 2),
             ('full-mig', 1), ('stock', 1), ('full-mig', 2), ('stock', 2)],
            [(one[0], one[4]) for one in self.made])
        self.assertEqual((128, 12_500_000, 16), self.made[0][1:4])
        self.assertEqual(20_000_000, self.made[0][5])
        self.assertEqual(8, rows['runs that ended']['value'])
        self.assertEqual('900 or less', rows['duration']['target'])

    def test_publish(self):
        outcome = disk_moves.Outcome(mirrored=1, total=1.0, identical=True)
        there = self.temporary_dir()
        for outcomes, made in ([[RuntimeError('why')], False],
                               [[outcome], True]):
            self.run_(outcomes, '--quick', '--variants', 'stock',
                      '--publish', str(there / 'results'))
            self.assertEqual(made, (there / 'results/disks.inc').exists())

    def test_a_run_that_fails(self):
        """The rows of those before are there."""
        outcome = disk_moves.Outcome(mirrored=1, total=1.0, identical=True)
        for error in (RuntimeError('why'), KeyboardInterrupt()):
            status, rows = self.run_([outcome, error], '--quick')
            self.assertEqual(1, status)
            self.assertFalse(rows['runs that ended']['ok'])
            self.assertTrue(rows['100 Mbit/s, one guest, stock: runs whose '
                                 'disks are equal']['ok'])


class EqualTest(base.TestCase):

    def setUp(self):
        super().setUp()
        binary = qemus.find('patched', qemus.require(self, 'patched'))
        self.img = qemus.tool(binary, 'qemu-img')
        self.io = qemus.tool(binary, 'qemu-io')
        self.directory = self.temporary_dir()

    def disk(self, name, count):
        """Return images of one disk: each has a part of its own."""
        found = [self.directory / (name + 'raw')]
        found[0].write_bytes(b'base' * (1 << 18))
        for number in range(1, count):
            found.append(self.directory / ('%s%d' % (name, number)))
            subprocess.run([self.img, 'create', '-q', '-f', 'qcow2',
                            found[-1], '1M'], check=True)
            self.write(found[-1], number, number << 16, 1 << 16)
        return found

    def write(self, path, value, offset, length):
        subprocess.run([self.io, '-f', 'qcow2', '-c', 'write -q -P %d %d %d'
                        % (value, offset, length), path], check=True)

    def test_each_layer_is_compared(self):
        for count in (1, 3):
            here, there = self.disk('a', count), self.disk('b', count)
            self.assertTrue(disk_guest.equal(self.img, here, there))
        # In the snapshot, hidden by what was written since.
        self.write(there[1], 9, 3 << 16, 1 << 16)
        self.write(there[2], 3, 3 << 16, 1 << 16)
        self.write(here[2], 3, 3 << 16, 1 << 16)
        self.assertFalse(disk_guest.equal(self.img, here, there))
        there = self.disk('c', 3)
        self.assertFalse(disk_guest.equal(self.img, here, there))
        here = self.disk('d', 3)
        self.assertTrue(disk_guest.equal(self.img, here, there))
        self.write(there[2], 9, (1 << 20) - 512, 512)
        self.assertFalse(disk_guest.equal(self.img, here, there))

    def test_one_byte_of_a_flat_disk(self):
        here, there = self.disk('a', 1), self.disk('b', 1)
        with there[0].open('r+b') as file:
            file.seek(-1, 2)
            file.write(b'x')
        self.assertFalse(disk_guest.equal(self.img, here, there))
