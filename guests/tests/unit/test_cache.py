# SPDX-License-Identifier: Apache-2.0
import os

import fixtures

from guests import cache
from nova_dedup_migrate.tests import base


class CacheTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.root = self.temporary_dir()
        self.useFixture(fixtures.EnvironmentVariable(
            'NOVA_DEDUP_MIGRATE_CACHE', str(self.root)))

    def test_built_once(self):
        calls = []

        def build(work):
            calls.append(work)
            (work / 'x').write_text('x')

        first = cache.entry('kind', 'name', build)
        self.assertEqual(first, cache.entry('kind', 'name', build))
        self.assertEqual(1, len(calls))
        self.assertEqual('x', (first / 'x').read_text())

    def test_failure_leaves_nothing(self):
        def build(work):
            (work / 'half').write_text('')
            raise OSError('disk full')

        self.assertRaises(OSError, cache.entry, 'kind', 'name', build)
        self.assertEqual(['.name.lock'], os.listdir(self.root / 'kind'))

    def test_key_depends_on_content_and_borders(self):
        path = self.root / 'file'
        path.write_text('1')
        keys = {cache.key('a', 'b'), cache.key('ab'), cache.key(b'ab'),
                cache.key('a', [path])}
        path.write_text('2')
        keys.add(cache.key('a', [path]))
        self.assertEqual(5, len(keys))

    def test_what_nobody_asks_for_goes(self):
        def build(work):
            (work / 'x').write_text('x')

        old = [cache.entry('kind', name, build) for name in ('a', 'b')]
        left = self.root / 'kind' / '.c.killed'
        left.mkdir()
        for path in (*old, left):
            os.utime(path, (0, 0))
        cache.entry('other', 'c', build)
        # this one is asked for again
        cache.entry('kind', 'a', build)
        cache.entry('kind', 'c', build)
        self.assertEqual({'a', 'c'}, {
            path.name for path in (self.root / 'kind').iterdir()
            if path.is_dir()})
