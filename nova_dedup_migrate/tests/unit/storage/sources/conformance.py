# SPDX-License-Identifier: Apache-2.0
"""What each source of blocks has to do.

A subclass sets up self.source, which has the blocks of self.content (a
dict of offset -> bytes) and no others.
"""

import concurrent.futures
import os

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.sources import base


class Conformance:
    """Mixed into a test case."""

    def wanted(self):
        return [blocks.Block(blocks.digest(data), offset, len(data))
                for offset, data in self.content.items()]

    def stranger(self):
        """A block that no source has, beyond the end of every disk."""
        return blocks.Block(blocks.digest(os.urandom(8)),
                            blocks.MAX_SIZE - blocks.BLOCK, blocks.BLOCK)

    def test_is_described(self):
        self.assertIsInstance(self.source, base.Source)
        self.assertTrue(self.source.name.isidentifier())
        self.assertGreater(self.source.cost.rate, 0)
        self.assertGreaterEqual(self.source.cost.latency, 0)

    def test_has_and_returns_each(self):
        wanted = self.wanted()
        self.assertGreater(len(wanted), 1)
        self.assertEqual([True] * len(wanted), self.source.have(wanted))
        self.assertTrue(list(self.content.values())
                        == self.source.read(wanted))

    def test_any_order(self):
        wanted = self.wanted()[::-1]
        wanted.insert(1, wanted[0])
        self.assertTrue([self.content[block.offset] for block in wanted]
                        == self.source.read(wanted))

    def test_has_no_other(self):
        wanted = self.wanted()
        wanted.insert(1, self.stranger())
        self.assertFalse(self.source.have(wanted)[1])
        found = self.source.read(wanted)
        self.assertIsNone(found[1])
        self.assertEqual(len(wanted) - 1, sum(
            data is not None for data in found))

    def test_nothing(self):
        self.assertEqual([], self.source.have([]))
        self.assertEqual([], self.source.read([]))

    def test_most_blocks(self):
        wanted = (self.wanted() * base.MAX_BLOCKS)[:base.MAX_BLOCKS]
        self.assertEqual([True] * len(wanted), self.source.have(wanted))
        self.assertNotIn(None, self.source.read(wanted))

    def test_threads(self):
        wanted = self.wanted()
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for found in pool.map(lambda _: self.source.read(wanted),
                                  range(24)):
                self.assertTrue(list(self.content.values()) == found)

    def test_closed_twice(self):
        self.source.close()
        self.source.close()
