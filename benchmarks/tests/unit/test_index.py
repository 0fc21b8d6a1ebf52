# SPDX-License-Identifier: Apache-2.0
import importlib.util
import json
import os
import unittest
from unittest import mock

if importlib.util.find_spec('lmdb') is None:
    raise unittest.SkipTest('lmdb is not installed')

from benchmarks import index
from guests import errors
from guests.debian import image
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.tests import base
from testkit import results


class IndexTest(base.TestCase):

    def images(self):
        """Return two disks; the second has the first's data and more."""
        data = os.urandom(2 * blocks.BLOCK)
        for name, content in (('one', data + bytes(2 * blocks.BLOCK)),
                              ('two', bytes(blocks.BLOCK) + data
                               + os.urandom(2 * blocks.BLOCK))):
            path = self.temporary_dir() / name
            path.write_bytes(content)
            yield path

    def test_two_disks(self):
        one, two = self.images()
        found = results.Results('make bench-index')
        with mock.patch.object(image, 'build_plain', return_value=one), \
                mock.patch.object(image, 'build', return_value=two):
            index.comparing(found)
        rows = {row.name: row.value for row in found.rows}
        self.assertEqual(
            (50.0, 20.0, 100.0, 50.0),
            (rows['Debian, packages alone: zeros'],
             rows['Debian, the guest: zeros'],
             rows['Debian, packages alone: data that is in the guest'],
             rows['Debian, the guest: data that is in packages alone']))
        self.assertEqual(0, found.status())

    def test_no_disks(self):
        found = results.Results('make bench-index')
        with mock.patch.object(image, 'build_plain',
                               side_effect=errors.BuildError('no root')):
            index.comparing(found)
        self.assertEqual([('Debian disks', 'no root', False)],
                         [(row.name, row.value, row.ok)
                          for row in found.rows])

    def run_(self, *words):
        top = self.temporary_dir()
        with mock.patch.object(index, 'TOP', top), mock.patch.object(
                index, 'measure', lambda found, quick, note: found.add(
                    'rate', 1.5, 'MB/s', 'any', True)), mock.patch.object(
                index, 'comparing') as comparing, mock.patch(
                'builtins.print'):
            status = index.main(list(words))
        report = json.loads((top / 'build/bench-index/report.json')
                            .read_text())
        return status, report, comparing

    def test_report(self):
        status, report, comparing = self.run_('--quick')
        self.assertEqual(0, status)
        self.assertEqual(['rate'], [row['name'] for row in report['rows']])
        comparing.assert_not_called()

    def test_similarity_and_publish(self):
        there = self.temporary_dir() / 'results'
        _, report, comparing = self.run_('--similarity', '--publish',
                                         str(there))
        comparing.assert_called_once()
        self.assertEqual(
            'make bench-index ARGS="--similarity --publish %s"' % there,
            report['made']['command'])
        self.assertIn('rate  1.5    MB/s  any     yes',
                      (there / 'index.inc').read_text())
