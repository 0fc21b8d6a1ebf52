# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.tasks import content_index
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes

SETTINGS = content_index.Settings('on', 60.0, 5 << 20, 7 << 20)


def seen(state, **fields):
    return statistics.DedupStatistics(index=statistics.IndexStatistics(
        state=state, pages=100, found_pages=90, bytes=4 << 20,
        read_bytes=1 << 20, memory_bytes=5, **fields))


class IndexContentTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.operation = fakes.operation()
        self.operation.facts = fakes.some_facts()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.guest.dedup_statistics.side_effect = [
            seen('memory'), seen('disks'), seen('done')]
        for name, value in (('_POLL_S', 0.0),):
            patch = mock.patch.object(content_index, name, value)
            patch.start()
            self.addCleanup(patch.stop)
        patch = mock.patch.object(asking, 'index_obstacle', autospec=True,
                                  return_value='')
        self.obstacle = patch.start()
        self.addCleanup(patch.stop)

    def execute(self, settings=SETTINGS):
        content_index.IndexContent(self.operation, self.guest,
                                   settings).execute()
        return self.operation.content_index

    def test_done(self):
        before = self.operation.facts.guest
        found = self.execute()
        self.guest.index_disks.assert_called_once_with(
            ['virtio-disk0'], 5 << 20, 7 << 20)
        self.assertEqual(('done', '', 100, 90, 1 << 20), (
            found.outcome, found.reason, found.pages, found.found_pages,
            found.read_bytes))
        guest = self.operation.facts.guest
        self.assertEqual((before.hint_pages + 90, 90, 90), (
            guest.hint_pages, guest.map_pages, guest.index_pages))
        self.assertEqual([operations.UNDO_MAP], self.operation.durable.undo)

    def test_no_facts(self):
        self.operation.facts = None
        self.assertIsNone(self.execute())

    def test_skipped(self):
        self.obstacle.return_value = 'no use'
        found = self.execute()
        self.assertEqual(('skipped', 'no use'), (found.outcome,
                                                 found.reason))
        self.guest.index_disks.assert_not_called()
        self.assertEqual([], self.operation.durable.undo)

    def test_time_is_over(self):
        """It goes on, for what is migrated first are disks."""
        found = self.execute(content_index.Settings('on', 0.0))
        self.assertEqual('partial', found.outcome)
        self.assertIn('content_index_time', found.reason)
        self.guest.cancel_index.assert_not_called()
        self.assertEqual(90, self.operation.facts.guest.map_pages)

    def test_aborted(self):
        self.operation.durable.requests.append(operations.ABORT)
        self.assertEqual('partial', self.execute().outcome)
        self.guest.cancel_index.assert_called_once_with()

    def test_failed(self):
        self.guest.dedup_statistics.side_effect = [
            seen('failed', reason='disk x cannot be read')]
        found = self.execute()
        self.assertEqual(('partial', 'disk x cannot be read'),
                         (found.outcome, found.reason))

    def test_refused(self):
        self.guest.index_disks.side_effect = errors.QmpError(
            command='x-dedup-index-disks', error_class='',
            description='raise memory')
        found = self.execute()
        self.assertEqual(('refused', 'raise memory'),
                         (found.outcome, found.reason))
        self.assertEqual([], self.operation.warnings)

    def test_qemu_of_an_earlier_release(self):
        self.guest.index_disks.side_effect = errors.DedupNotSupported(
            name='x')
        self.assertEqual('refused', self.execute().outcome)
        self.assertEqual(1, len(self.operation.warnings))
