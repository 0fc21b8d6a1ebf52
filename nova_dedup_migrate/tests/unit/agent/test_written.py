# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.agent import written
from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.tests import base


class HistoryTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.history = written.History()

    def windows(self):
        return [(one.seconds, one.bytes, one.most)
                for one in self.history.windows()]

    def test_newest_and_most(self):
        for window, size in (10, 50.0), (1, 30.0), (1, 10.0):
            self.history.add(digests.Written(window, window + 0.1, size))
        self.assertEqual([(1.1, 10.0, 30.0), (10.1, 50.0, 50.0)],
                         self.windows())
        self.assertLess(self.history.windows()[0].age, 60.0)

    def test_only_the_last_ones_are_kept(self):
        for size in 99.0, *(8 * [1.0]):
            self.history.add(digests.Written(1, 1.0, size))
        self.assertEqual([(1.0, 1.0, 1.0)], self.windows())

    def test_nothing(self):
        self.assertEqual([], self.windows())

    def test_each_guest_has_its_own_pages(self):
        self.assertNotEqual(self.history.seed, written.History().seed)
        self.assertLess(self.history.seed, 1 << 63)
