# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate swap list."""

import contextlib
import dataclasses
import io
import json

from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.tests import base

INSTANCE = '22222222-0000-4000-8000-000000000002'


class SwapListTest(base.TestCase):

    def test_the_newest_comes_first(self):
        directory = self.temporary_dir()
        store = operations.SwapOperations(str(directory / 'swaps'))
        store.begin(operations.Swap(INSTANCE, 'vda', 'old', 'new', '/x',
                                    began=1e9))
        store.note(operations.Swap(
            INSTANCE, 'vdb', 'old', 'new', '/x', began=2e9, seconds=3.0,
            size=30, sources={'backup': 6, 'agents': 4, 'zero': 15,
                              'volume': 5}, outcome='filled'))
        # Something else of an administrator's.
        (directory / 'swaps/x.json').write_text('{"disk": 1}')
        # One of an earlier release.
        (directory / 'swaps/y.json').write_text(json.dumps({
            **dataclasses.asdict(operations.Swap(
                INSTANCE, 'vdc', 'old', 'new', '/x')), 'sampled': 7}))
        conf = directory / 'nova.conf'
        conf.write_text('[dedup_migrate]\nvolumes_path = %s\n' % directory)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            status = main.main(['--config-file', str(conf), 'swap', 'list',
                                '-f', 'json'])
        self.assertEqual(0, status)
        rows = json.loads(out.getvalue())
        self.assertEqual(['vdb', 'vda', 'vdc'], [row['disk'] for row in rows])
        self.assertEqual((30, 6, 4, 15, 5), tuple(
            rows[0][name] for name in ('size', 'from_backup', 'from_agents',
                                       'zeros', 'from_volume')))
        self.assertIsNone(rows[1]['from_backup'])
