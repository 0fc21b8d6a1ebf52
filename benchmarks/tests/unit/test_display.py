# SPDX-License-Identifier: Apache-2.0
import io

from benchmarks import display
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.tests import base


class DisplayTest(base.TestCase):

    def now(self, **fields):
        fields = {'status': 'active', 'rounds': 2, 'mbps': 99.6,
                  'pages': progress.PagePaths(512, 1024, 256),
                  'eta_s': 7.4, **fields}
        return progress.Progress(**fields)

    def test_line(self):
        self.assertEqual(
            'dedup   3.1 s  ETA 7 s    round 2    37.5 MB   100 Mbit/s  '
            'MiB: peer 2, storage 1, zero 4',
            display.line('dedup', 3.1, 37_500_000, self.now()))

    def test_unknown_eta(self):
        self.assertIn('  ETA ?  ', display.line('stock', 1, 1,
                                                self.now(eta_s=None)))

    def test_plain_output_is_rare_but_complete(self):
        out = io.StringIO()
        show = display.Display('stock', out)
        for _ in range(20):
            show.show(1.0, 1, self.now())
        show.show(2.0, 1, self.now(status='completed'))
        lines = out.getvalue().splitlines()
        self.assertEqual(2, len(lines))
        self.assertIn('completed', lines[-1])
        self.assertNotIn('\r', out.getvalue())
