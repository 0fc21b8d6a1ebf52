# SPDX-License-Identifier: Apache-2.0
"""Sources that are cheap, dear, wrong, late or gone."""

import os
import threading

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import fetch
from nova_dedup_migrate.storage.sources import base as sources
from nova_dedup_migrate.tests import base

BLOCK = blocks.BLOCK


class Fake(sources.Source):
    """Has the content; behave() may change an answer."""

    def __init__(self, content, name='fake', rate=1e9, latency=0.0,
                 behave=lambda data: data):
        self.name = name
        self.cost = sources.Cost(rate, latency)
        self.content = {blocks.digest(data): data for data in content}
        self.behave = behave
        self.reads = 0
        self.closed = False

    def have(self, wanted):
        return [block.digest in self.content for block in wanted]

    def read(self, wanted):
        self.reads += 1
        return self.behave([self.content.get(block.digest)
                            for block in wanted])

    def close(self):
        self.closed = True


class FetchTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.data = [os.urandom(BLOCK) for _ in range(8)]
        self.wanted = [blocks.Block(blocks.digest(data), n * BLOCK, BLOCK)
                       for n, data in enumerate(self.data)]

    def fetcher(self, *used, stall=30.0):
        found = fetch.Fetcher(used, stall, 2)
        self.addCleanup(found.close)
        return found

    def fetch(self, fetcher):
        """Return the name of each block's source."""
        found = fetcher.fetch(self.wanted)
        for block, data in zip(self.wanted, self.data, strict=True):
            if block.digest in found:
                self.assertTrue(data == found[block.digest][0])
        return [found[block.digest][1].source.name
                if block.digest in found else None
                for block in self.wanted]

    def test_the_cheapest_that_has_it(self):
        fetcher = self.fetcher(
            Fake(self.data, 'dear', latency=5.0),
            Fake(self.data[:3], 'cheap'))
        self.assertEqual(3 * ['cheap'] + 5 * ['dear'], self.fetch(fetcher))

    def test_none_has_it(self):
        self.assertEqual(8 * [None], self.fetch(self.fetcher(Fake([]))))

    def test_a_block_twice_is_read_once(self):
        one = Fake(self.data)
        seen = []
        one.behave = lambda data: seen.extend(data) or data
        self.fetcher(one).fetch(self.wanted * 3)
        self.assertEqual(8, len(seen))

    def _bad(self, behave, calls=1):
        bad = Fake(self.data, 'bad', behave=behave)
        fetcher = self.fetcher(bad, Fake(self.data, 'good', latency=9.0))
        for _ in range(calls):
            self.assertNotIn(None, self.fetch(fetcher))
        return bad, fetcher

    def test_other_bytes(self):
        bad, fetcher = self._bad(lambda data: [b'x' * BLOCK] * len(data), 20)
        self.assertIn('were wrong', fetcher.used[0].left)
        self.assertLess(bad.reads, 12)

    def test_short_bytes(self):
        self._bad(lambda data: [each[:-1] for each in data])

    def test_fewer_blocks(self):
        _, fetcher = self._bad(lambda data: data[:2])
        self.assertEqual('', fetcher.used[0].left)

    def test_more_blocks(self):
        self._bad(lambda data: data + data)

    def test_fails(self):
        def fail(data):
            raise errors.SourceFailed(name='bad', reason='it is away')

        bad, fetcher = self._bad(fail, 6)
        self.assertEqual(fetch.STRIKES, bad.reads)
        self.assertIn('it is away', fetcher.used[0].left)

    def test_error_of_python(self):
        bad, _ = self._bad(lambda data: 1 / 0, 6)
        self.assertEqual(fetch.STRIKES, bad.reads)

    def test_hangs(self):
        """A call that hangs is left; the next source has the block."""
        end = threading.Event()
        self.addCleanup(end.set)
        bad = Fake(self.data, 'bad', behave=lambda data: end.wait(60) and [])
        fetcher = self.fetcher(bad, Fake(self.data, 'good', latency=9.0),
                               stall=0.05)
        fetcher.used[1]._stall = 30.0
        for _ in range(6):
            self.assertEqual(8 * ['good'], self.fetch(fetcher))
        self.assertLessEqual(bad.reads, fetch.STRIKES)
        self.assertIn('source bad', fetcher.used[0].left)

    def test_busy_source_is_passed(self):
        """Another thread's read makes a source dearer."""
        fetcher = self.fetcher(Fake(self.data, 'a', rate=1e6),
                               Fake(self.data, 'b', rate=0.9e6))
        self.assertEqual(8 * ['a'], self.fetch(fetcher))
        fetcher = self.fetcher(Fake(self.data, 'a', rate=1e6),
                               Fake(self.data, 'b', rate=0.9e6))
        fetcher.used[0]._busy = 1 << 20
        self.assertEqual(8 * ['b'], self.fetch(fetcher))

    def test_closes_all(self):
        one, two = Fake([]), Fake([])
        one.close = lambda: 1 / 0
        fetch.Fetcher([one, two], 1.0, 1).close()
        self.assertTrue(two.closed)
