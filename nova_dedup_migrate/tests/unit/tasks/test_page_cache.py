# SPDX-License-Identifier: Apache-2.0
import dataclasses
import errno
import threading
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.tasks import page_cache
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.tasks import fakes

TAKEN = answer.Answer('taken', transport='port', taken_pages=70000)


class ListPageCacheTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.disk = samples.Disk()
        self.operation = fakes.operation(self.disk)
        self.operation.facts = fakes.some_facts()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.loader = mock.create_autospec(loading.PageCacheLoader,
                                          instance=True)
        self.loader.obstacle.return_value = ''
        self.loader.load.return_value = TAKEN
        self.guest.dedup_statistics.return_value = (
            statistics.DedupStatistics(
                hints=statistics.HintStatistics(pages=90000)))
        patch = mock.patch.object(asking, 'obstacle', autospec=True,
                                  return_value='')
        self.obstacle = patch.start()
        self.addCleanup(patch.stop)

    def execute(self, loader=True, limit=60):
        """Return the Facts about the guest."""
        page_cache.ListPageCache(self.operation, self.guest,
                                 self.loader if loader else None,
                                 limit).execute()
        return self.operation.facts.guest

    def test_taken(self):
        guest = self.execute()
        self.loader.load.assert_called_once_with(
            {'virtio-disk0'}, asking.limit(fakes.some_facts(), 60))
        self.assertEqual((90000, 70000), (guest.hint_pages,
                                          guest.map_pages))
        self.assertIs(TAKEN, self.operation.page_cache)
        self.assertEqual([operations.UNDO_MAP], self.operation.durable.undo)
        self.assertEqual([], self.operation.warnings)

    def test_no_facts(self):
        self.operation.facts = None
        page_cache.ListPageCache(self.operation, self.guest, self.loader,
                                 60).execute()
        self.loader.load.assert_not_called()
        self.assertIsNone(self.operation.facts)
        self.assertIsNone(self.operation.page_cache)

    def assert_nothing(self, outcome, reason, **given):
        self.operation.facts = fakes.some_facts()
        guest = self.execute(**given)
        self.assertEqual(0, guest.map_pages)
        self.assertEqual(fakes.some_facts().guest.hint_pages,
                         guest.hint_pages)
        self.assertIn(reason, guest.map_reason)
        self.assertEqual(outcome, self.operation.page_cache.outcome)

    def test_not_listed(self):
        self.assert_nothing('skipped', 'switched off', loader=False)
        self.obstacle.return_value = 'no use'
        self.assert_nothing('skipped', 'no use')
        # nothing has reached QEMU, so there is nothing to undo
        self.assertEqual([], self.operation.durable.undo)
        self.obstacle.return_value = ''
        self.loader.obstacle.return_value = 'no port'
        self.assert_nothing('unavailable', 'no port')
        self.loader.load.assert_not_called()

    def test_undo_log_comes_first(self):
        def ask(usable, limit):
            self.assertEqual([('requested', operations.UNDO_MAP)],
                             self.disk.written)
            return TAKEN

        self.loader.load.side_effect = ask
        self.assertEqual(70000, self.execute().map_pages)

    def test_disk_is_full(self):
        self.disk.error = OSError(errno.ENOSPC, 'no space')
        self.assert_nothing('refused', 'no space')
        self.loader.load.assert_not_called()
        self.loader.obstacle.assert_not_called()
        self.assertEqual([], self.operation.durable.undo)

    def test_what_the_guest_did(self):
        for outcome in (answer.TIMEOUT, answer.REFUSED, answer.UNAVAILABLE):
            self.loader.load.return_value = answer.Answer(outcome, 'it lies')
            self.assert_nothing(outcome, 'it lies')
            # a part of the list may have come before the error
            self.assertEqual([operations.UNDO_MAP],
                             self.operation.durable.undo)
        self.loader.load.return_value = dataclasses.replace(TAKEN,
                                                          taken_pages=0)
        self.assert_nothing('taken', 'lists nothing')

    def test_hangs_beyond_its_limit(self):
        over = threading.Event()
        self.addCleanup(over.set)
        self.loader.load.side_effect = lambda usable, limit: over.wait(60)
        with mock.patch.object(asking, 'limit', return_value=-0.9):
            self.assert_nothing('timeout', 'did not answer')

    def test_failure(self):
        self.loader.load.side_effect = errors.QmpDisconnected(command='x')
        self.assert_nothing('refused', 'connection is closed')
        self.assertEqual(1, len(self.operation.warnings))

    def test_hints_cannot_be_counted(self):
        self.guest.dedup_statistics.side_effect = errors.QmpTimeout(
            command='x', seconds=1)
        self.assertEqual(70000, self.execute().hint_pages)
