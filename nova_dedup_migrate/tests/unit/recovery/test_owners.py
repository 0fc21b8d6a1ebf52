# SPDX-License-Identifier: Apache-2.0
import contextlib
import threading

from nova_dedup_migrate.recovery import owners
from nova_dedup_migrate.tests import base

A, B = 'instance a', 'instance b'


class OwnersTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.queue = set()
        self.owners = owners.Owners(lambda uuid: uuid in self.queue)

    def test_nobody(self):
        self.assertEqual('', self.owners.owner(A))

    def test_claim(self):
        with self.owners.claim(A, owners.SESSION) as mine:
            self.assertTrue(mine)
            self.assertEqual(owners.SESSION, self.owners.owner(A))
            self.assertEqual('', self.owners.owner(B))
        self.assertEqual('', self.owners.owner(A))

    def test_claimed_by_another(self):
        with self.owners.claim(A, owners.SESSION):
            for owner in (owners.RECOVERY, owners.SESSION):
                with self.owners.claim(A, owner) as mine:
                    self.assertFalse(mine)
                # and that has not released it
                self.assertEqual(owners.SESSION, self.owners.owner(A))

    def test_other_instances_are_free(self):
        with self.owners.claim(A, owners.SESSION):
            with self.owners.claim(B, owners.RECOVERY) as mine:
                self.assertTrue(mine)

    def test_released_after_an_error(self):
        def fail():
            with self.owners.claim(A, owners.SESSION):
                raise KeyError('x')

        self.assertRaises(KeyError, fail)
        self.assertEqual('', self.owners.owner(A))

    def test_novas_queue(self):
        self.queue.add(A)
        self.assertEqual(owners.NOVA, self.owners.owner(A))
        self.assertEqual('', self.owners.owner(B))

    def test_a_claim_counts_for_more_than_the_queue(self):
        self.queue.add(A)
        with self.owners.claim(A, owners.SESSION) as mine:
            self.assertTrue(mine)
            self.assertEqual(owners.SESSION, self.owners.owner(A))

    def test_own_claim_does_not_count(self):
        with self.owners.claim(A, owners.RECOVERY):
            self.assertEqual('', self.owners.owner(A, owners.RECOVERY))
            self.assertEqual(owners.RECOVERY,
                             self.owners.owner(A, owners.SESSION))

    def test_own_claim_does_not_hide_the_queue(self):
        """Recovery must not settle a request that Nova still has."""
        self.queue.add(A)
        with self.owners.claim(A, owners.RECOVERY):
            self.assertEqual(owners.NOVA,
                             self.owners.owner(A, owners.RECOVERY))

    def test_wait(self):
        """A new request waits until recovery has settled the old one."""
        holding, waiting = threading.Event(), threading.Event()
        release = threading.Event()
        self.addCleanup(release.set)
        order = []

        def recover():
            with self.owners.claim(A, owners.RECOVERY):
                holding.set()
                release.wait(30)
                order.append(owners.RECOVERY)

        def migrate():
            with self.owners.claim(A, owners.SESSION, 30) as mine:
                order.append((owners.SESSION, mine))

        wait_for = self.owners._released.wait_for

        def seen(*args):
            waiting.set()
            return wait_for(*args)

        first = threading.Thread(target=recover)
        first.start()
        self.assertTrue(holding.wait(30))
        self.owners._released.wait_for = seen
        second = threading.Thread(target=migrate)
        second.start()
        self.assertTrue(waiting.wait(30))
        release.set()
        for thread in (first, second):
            thread.join(30)
        self.assertEqual([owners.RECOVERY, (owners.SESSION, True)], order)
        self.assertEqual('', self.owners.owner(A))

    def test_one_at_a_time(self):
        """However many threads want an instance."""
        inside, most = [], []

        def work():
            with self.owners.claim(A, owners.SESSION, 30) as mine:
                self.assertTrue(mine)
                inside.append(1)
                most.append(len(inside))
                inside.pop()

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        self.assertEqual(16 * [1], most)

    def test_nothing_is_kept(self):
        with contextlib.ExitStack() as stack:
            for number in range(5):
                stack.enter_context(self.owners.claim(str(number),
                                                      owners.SESSION))
        self.assertEqual({}, self.owners._owners)
