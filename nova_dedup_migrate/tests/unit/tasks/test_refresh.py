# SPDX-License-Identifier: Apache-2.0
import threading
from unittest import mock

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.tasks import refresh
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes

FIRST = answer.Answer('taken', transport='port', seconds=0.5, taken_pages=7)
AGAIN = answer.Answer('partial', transport='port', seconds=0.5, taken_pages=9)


class RefreshTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.operation = fakes.operation()
        self.operation.page_cache = FIRST
        self.loader = mock.create_autospec(loading.PageCacheLoader,
                                          instance=True)
        self.loader.load.return_value = AGAIN
        self.now = 1000.0
        self.refresh = refresh.Refresh(self.operation, self.loader, 60,
                                       lambda: self.now)
        self.now += 60

    def look(self, progress=None, facts=True, plan=True):
        self.operation.facts = fakes.some_facts() if facts else None
        self.operation.plan = fakes.some_plan() if plan is True else plan
        self.refresh.look(
            progress or fakes.look(0, status='none', record_pages=0))
        if self.refresh._running is not None:
            self.refresh._running.join(30)
        return self.loader.load.call_count

    def test_while_disks_are_copied(self):
        self.assertEqual(1, self.look())
        self.loader.load.assert_called_once_with(
            {'virtio-disk0'}, asking.limit(fakes.some_facts(), 60))
        self.assertEqual(('partial', 9, 2), (
            self.operation.page_cache.outcome,
            self.operation.page_cache.taken_pages,
            self.operation.page_cache.requests))
        # and again, when that has become old
        self.assertEqual(1, self.look())
        self.now += 60
        self.assertEqual(2, self.look())
        self.assertEqual(3, self.operation.page_cache.requests)

    def test_while_memory_is_sent(self):
        self.assertEqual(0, self.look(fakes.look(
            remaining=20 * 10 ** 8, mbps=800.0, record_pages=1)))
        self.assertEqual(1, self.look(fakes.look(
            remaining=60 * 10 ** 8, mbps=800.0, record_pages=1)))
        self.now += 60
        self.assertEqual(2, self.look(fakes.look(
            mbps=0.0, record_pages=1)))

    def test_no_use(self):
        for given in ({'facts': False}, {'plan': None},
                      {'plan': fakes.some_plan('stock')},
                      {'progress': fakes.look(0, status='none')},
                      {'progress': fakes.look(1, 'device', mbps=0.0,
                                              record_pages=1)}):
            self.assertEqual(0, self.look(**given), given)
        for found in (None, answer.Answer('timeout')):
            self.operation.page_cache = found
            self.assertEqual(0, self.look())

    def test_too_early(self):
        self.now -= 50
        self.assertEqual(0, self.look())

    def test_silent_once_silent_always(self):
        self.loader.load.return_value = answer.Answer('timeout', 'it hangs')
        self.look()
        self.now += 600
        self.assertEqual(1, self.look())
        self.assertEqual((FIRST.taken_pages, 1, (
            'listed again: timeout: it hangs',)), (
            self.operation.page_cache.taken_pages,
            self.operation.page_cache.requests,
            self.operation.page_cache.notes))

    def test_the_guest_has_left(self):
        self.loader.load.side_effect = errors.GuestNotRunning(name='x')
        self.look()
        self.now += 600
        self.assertEqual(1, self.look())
        self.assertIs(FIRST, self.operation.page_cache)
        self.assertEqual([], self.operation.warnings)

    def test_one_at_a_time(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        self.loader.load.side_effect = lambda usable, limit: (
            go_on.wait(60), AGAIN)[1]
        nobody = mock.patch.object(threading.Thread, 'join', autospec=True)
        with nobody:
            self.look()
            self.now += 600
            self.assertEqual(1, self.look())
        go_on.set()
