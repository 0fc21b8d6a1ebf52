# SPDX-License-Identifier: Apache-2.0
from benchmarks import lister
from nova_dedup_migrate.tests import base
from testkit import results


def listed(seconds=0.2, coverage=0.99, wrong=0):
    return lister.Listed(seconds, 0.1, 1 << 30, 2000, 1000, 1, 1, coverage,
                         wrong)


class JudgeTest(base.TestCase):

    def missed(self, *listings):
        report = results.Results('x')
        lister.judge({'ext4': list(listings)}, report)
        return [row.name for row in report.rows if not row.ok]

    def test_targets(self):
        """Medians count, and every wrong page."""
        self.assertEqual([], self.missed(listed(), listed(9.0, 0.1),
                                         listed()))
        self.assertEqual(['ext4: for a GiB'], self.missed(listed(0.26)))
        self.assertEqual(['ext4: coverage'],
                         self.missed(listed(coverage=0.94)))
        self.assertEqual(['ext4: wrong pages'],
                         self.missed(listed(), listed(wrong=1), listed()))
