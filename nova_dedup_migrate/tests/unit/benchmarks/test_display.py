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
            'dedup   3.1 s  round 2  link   37.5 MB   100 Mbit/s  '
            'MiB: peer 2, storage 1, zero 4  ETA 7 s',
            display.line('dedup', 3.1, 37_500_000, self.now()))

    def test_unknown_eta(self):
        self.assertTrue(display.line('stock', 1, 1,
                                     self.now(eta_s=None)).endswith('ETA ?'))

    def test_plain_output_is_rare_but_complete(self):
        out = io.StringIO()
        show = display.Display('stock', out)
        for _ in range(20):
            show.show(1.0, 1, self.now())
        show.show(2.0, 1, self.now(status='completed'))
        lines = out.getvalue().splitlines()
        self.assertEqual(2, len(lines))
        self.assertTrue(lines[-1].endswith('completed'))
        self.assertNotIn('\r', out.getvalue())
