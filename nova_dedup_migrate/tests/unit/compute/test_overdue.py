# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova import objects
from nova.compute import task_states

from nova_dedup_migrate.compute import overdue
from nova_dedup_migrate.tests import base

UUID = '5b1b2f3a-9f45-4a67-8f6b-1c1a6ed4f1c0'
PATIENCE = overdue.PATIENCE_S


class OverdueTest(base.TestCase):

    def setUp(self):
        super().setUp()
        objects.register_all()
        self.instances = [objects.Instance(uuid=UUID)]
        self.migration = objects.Migration(id=3, uuid='m', status='error')
        self.in_hand = False
        patcher = mock.patch.object(
            objects.InstanceList, 'get_by_filters', autospec=True,
            side_effect=lambda *args, **kwargs: self.instances)
        self.listed = patcher.start()
        self.addCleanup(patcher.stop)
        self.settle = mock.Mock(spec=[])
        self.overdue = overdue.Overdue(
            'here', lambda uuid: self.in_hand and uuid == UUID,
            lambda context, uuid: self.migration, self.settle)

    def settled_after(self, *times):
        """Look at those times; return whether it is settled at the last."""
        for now in times:
            self.settle.assert_not_called()
            self.overdue.look(now)
        if self.settle.called:
            self.settle.assert_called_once_with(self.migration)
        return self.settle.called

    def test_it_does_not_get_on(self):
        self.assertTrue(self.settled_after(5, 5 + PATIENCE))
        self.assertEqual(
            {'host': 'here', 'deleted': False,
             'task_state': task_states.MIGRATING},
            self.listed.call_args.args[1])

    def test_it_has_time(self):
        self.assertFalse(self.settled_after(5, 4 + PATIENCE))

    def test_it_gets_on(self):
        self.settled_after(5, 50)
        self.migration.status = 'running'
        self.assertFalse(self.settled_after(50 + PATIENCE))
        self.assertTrue(self.settled_after(50 + 2 * PATIENCE))

    def test_another_one(self):
        self.settled_after(5)
        self.migration.id = 4
        self.assertFalse(self.settled_after(5 + PATIENCE))

    def test_somebody_is_at_it(self):
        self.in_hand = True
        self.assertFalse(self.settled_after(5, 5 + PATIENCE))

    def test_somebody_was_at_it_meanwhile(self):
        self.settled_after(5)
        self.in_hand = True
        self.settled_after(50)
        self.in_hand = False
        self.assertFalse(self.settled_after(5 + PATIENCE))

    def test_it_migrates_no_more(self):
        self.settled_after(5)
        found, self.instances = self.instances, []
        self.settled_after(50)
        self.instances = found
        self.assertFalse(self.settled_after(5 + PATIENCE))

    def test_no_migration_from_here(self):
        self.migration = None
        self.assertFalse(self.settled_after(5, 5 + PATIENCE))

    def test_the_destination_prepares_itself(self):
        long = overdue.CONF.long_rpc_timeout
        for self.migration.status in ('accepted', 'preparing'):
            self.settle.reset_mock()
            self.assertFalse(self.settled_after(0, PATIENCE, long))
            self.assertTrue(self.settled_after(long + PATIENCE))

    def test_it_is_begun_once(self):
        self.assertTrue(self.settled_after(5, 5 + PATIENCE))
        self.overdue.look(6 + PATIENCE)
        self.settle.assert_called_once_with(self.migration)

    def test_it_looks_until_it_is_stopped(self):
        def look(now):
            if len(looks.mock_calls) == 1:
                raise OSError('away')
            self.overdue.stop()

        with mock.patch.object(overdue, 'LOOK_S', 0), mock.patch.object(
                self.overdue, 'look', side_effect=look) as looks:
            self.overdue.start()
            self.eventually(lambda: len(looks.mock_calls) == 2, 'it looks')
