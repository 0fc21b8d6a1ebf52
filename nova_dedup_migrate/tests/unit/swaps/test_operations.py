# SPDX-License-Identifier: Apache-2.0
"""The records of swaps, and requests to end one."""

import dataclasses
import json
import os

from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.tests import base

SWAP = operations.Swap('instance', 'vdb', 'old', 'new', '')


class OperationsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir() / 'swaps'
        self.kept = operations.SwapOperations(str(self.directory))

    def test_written_and_read(self):
        swap = dataclasses.replace(SWAP, sources={'backup': 3}, done=5)
        self.kept.write(swap)
        self.assertEqual(swap, self.kept.load('instance', 'vdb'))
        self.assertEqual([swap], list(self.kept.unfinished()))
        self.kept.end(swap, 'settled')
        self.assertEqual([], list(self.kept.unfinished()))
        self.assertEqual('settled',
                         self.kept.load('instance', 'vdb').outcome)
        self.assertIsNone(self.kept.load('instance', 'vda'))

    def test_one_of_an_earlier_release(self):
        self.directory.mkdir()
        fields = dataclasses.asdict(SWAP)
        for name in 'done', 'total':
            del fields[name]
        (self.directory / 'instance.vdb.json').write_text(json.dumps(
            {**fields, 'phase': 'copying'}))
        (found,) = self.kept.unfinished()
        self.assertEqual((operations.COPYING, 0), (found.phase, found.done))

    def test_under_way(self):
        for phase, is_so in ((operations.BEGUN, True),
                             (operations.PIVOTING, True),
                             (operations.PIVOTED, False),
                             (operations.ENDED, False)):
            swap = dataclasses.replace(SWAP, phase=phase)
            self.assertIs(is_so, swap.under_way)
            self.assertFalse(
                dataclasses.replace(swap, outcome='failed').under_way)

    def test_a_request_is_for_one_swap(self):
        self.kept.write(SWAP)
        self.assertFalse(self.kept.is_abort_requested(SWAP))
        for _ in range(2):
            self.kept.request_abort(SWAP)
            self.assertTrue(self.kept.is_abort_requested(SWAP))
        self.assertFalse(self.kept.is_abort_requested(
            dataclasses.replace(SWAP, new_volume='newer')))
        # It is none of the records.
        self.assertEqual([SWAP], list(self.kept.swaps()))
        self.kept.end(SWAP, '')
        self.assertFalse(self.kept.is_abort_requested(SWAP))

    def test_no_link_is_followed(self):
        self.kept.write(SWAP)
        other = self.temporary_dir() / 'precious'
        other.write_text('precious')
        os.symlink(other, self.directory / 'instance.vdb.abort')
        self.kept.request_abort(SWAP)
        self.assertEqual('precious', other.read_text())
        self.assertTrue(self.kept.is_abort_requested(SWAP))
