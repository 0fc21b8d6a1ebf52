# SPDX-License-Identifier: Apache-2.0
"""Tasks of a few lines."""

import dataclasses
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import working_set
from nova_dedup_migrate.reports import build
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.tasks import collect_facts
from nova_dedup_migrate.tasks import collect_incoming
from nova_dedup_migrate.tasks import frame
from nova_dedup_migrate.tasks import plan
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.tasks import fakes


class TaskCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.disk = samples.Disk()
        self.operation = fakes.operation(self.disk)


class CollectFactsTest(TaskCase):

    def setUp(self):
        super().setUp()
        self.collect = mock.Mock(spec=[])

    def execute(self, *args):
        collect_facts.CollectFacts(self.operation, self.collect,
                                   *args).execute()

    def test_collected(self):
        self.execute()
        self.assertIs(self.collect.return_value, self.operation.facts)
        self.assertEqual('', self.operation.reason)

    def test_of_no_use(self):
        self.execute('a stock QEMU')
        self.collect.assert_not_called()
        self.assertIsNone(self.operation.facts)
        self.assertEqual('a stock QEMU', self.operation.reason)

    def test_failure(self):
        self.collect.side_effect = OSError('no')
        self.execute()
        self.assertIsNone(self.operation.facts)
        self.assertEqual(['collecting facts: no'], self.operation.warnings)


class WorkingSetTest(TaskCase):

    def planned(self, windows):
        known = fakes.some_facts()
        self.operation.facts = dataclasses.replace(
            known, guest=dataclasses.replace(known.guest, windows=windows))
        plan.MakePlan(self.operation).execute()
        return self.operation.working_set

    def test_what_was_measured_and_what_follows(self):
        short, long = (working_set.Window(1.0, 1e6, 2e6, 3.0),
                       working_set.Window(10.0, 4e6, 5e6, 6.0))
        found = self.planned((long, short))
        self.assertEqual((short, long), found.windows)
        self.assertGreater(found.link_rate, 0)
        self.assertTrue(found.converges)
        self.assertGreaterEqual(found.rounds, 1)
        made = codec.decode(codec.encode(build.of_operation(self.operation)))
        self.assertEqual(found, made.working_set)

    def test_not_measured(self):
        self.assertIsNone(self.planned(()))


class MakePlanTest(TaskCase):

    def setUp(self):
        super().setUp()
        self.operation.facts = fakes.some_facts()
        self.task = plan.MakePlan(self.operation)
        patch = mock.patch.object(choose, 'choose', autospec=True)
        self.choose = patch.start()
        self.addCleanup(patch.stop)

    def test_plan(self):
        self.choose.return_value = fakes.some_plan()
        self.task.execute()
        self.choose.assert_called_once_with(self.operation.facts)
        self.assertIs(self.choose.return_value, self.operation.plan)
        self.assertEqual('', self.operation.reason)

    def test_stock(self):
        self.choose.return_value = fakes.some_plan('stock', 'no hints')
        self.task.execute()
        self.assertEqual('no hints', self.operation.reason)

    def test_no_facts(self):
        self.operation.facts = None
        self.task.execute()
        self.choose.assert_not_called()
        self.assertIsNone(self.operation.plan)
        self.assertIn('facts', self.operation.reason)

    def test_failure(self):
        self.choose.side_effect = ZeroDivisionError
        self.task.execute()
        self.assertIsNone(self.operation.plan)
        self.assertEqual(['planning: ZeroDivisionError'],
                         self.operation.warnings)


class CollectIncomingTest(TaskCase):

    def setUp(self):
        super().setUp()
        self.figures = mock.Mock(spec=[])
        self.task = collect_incoming.CollectIncoming(self.operation,
                                                     self.figures)

    def test_records_were_sent(self):
        self.operation.see(fakes.look(record_pages=5))
        self.task.execute()
        self.assertIs(self.figures.return_value, self.operation.incoming)

    def test_nothing_to_collect(self):
        for one in (None, fakes.look(), fakes.look(record_pages=0)):
            self.operation.latest = one
            self.task.execute()
        self.figures.assert_not_called()

    def test_source_ended_before_it_was_read(self):
        """Then the destination alone knows what became of the plan."""
        self.operation.will(operations.UNDO_ARM)
        self.operation.see(fakes.look(0))
        self.operation.finish('completed')
        self.task.execute()
        self.assertIs(self.figures.return_value, self.operation.incoming)

    def test_not_armed(self):
        self.operation.see(fakes.look(0))
        self.operation.finish('completed')
        self.task.execute()
        self.figures.assert_not_called()

    def test_did_not_leave(self):
        self.operation.will(operations.UNDO_ARM)
        self.operation.finish('cancelled')
        self.task.execute()
        self.figures.assert_not_called()

    def test_agent_is_gone(self):
        self.operation.see(fakes.look(record_pages=5))
        self.figures.side_effect = OSError('gone')
        self.task.execute()
        self.assertIsNone(self.operation.incoming)
        self.assertEqual(1, len(self.operation.warnings))


class FrameTest(TaskCase):

    def setUp(self):
        super().setUp()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.open = frame.Open(self.operation, self.guest)
        self.close = frame.Close(self.operation, self.guest)
        self.operation.durable.undo.append(operations.UNDO_ARM)

    def test_open(self):
        self.open.execute()
        self.assertEqual([('preparing', operations.UNDO_ARM)],
                         self.disk.written)
        self.guest.disarm_dedup.assert_not_called()

    def test_disk_is_full(self):
        """Nothing depends on it: the undo log is still empty then."""
        self.disk.error = OSError('full')
        self.open.execute()
        self.assertEqual(1, len(self.operation.warnings))

    def test_revert(self):
        self.open.revert(result=None, flow_failures={})
        self.guest.disarm_dedup.assert_called_once_with()
        self.assertEqual([], self.operation.durable.undo)

    def test_revert_fails(self):
        self.guest.disarm_dedup.side_effect = errors.QmpTimeout(
            command='x-dedup-disarm', seconds=60)
        self.open.revert(result=None, flow_failures={})
        self.assertEqual([operations.UNDO_ARM], self.operation.durable.undo)
        self.assertEqual(1, len(self.operation.warnings))

    def test_stayed(self):
        for outcome in ('cancelled', 'failed', None):
            self.guest.disarm_dedup.reset_mock()
            self.operation.durable.undo = [operations.UNDO_ARM]
            self.operation.outcome = outcome
            self.close.execute()
            self.guest.disarm_dedup.assert_called_once_with()

    def test_left(self):
        self.operation.finish('completed')
        self.close.execute()
        self.guest.disarm_dedup.assert_not_called()

    def test_nothing_was_changed(self):
        self.operation.durable.undo = []
        self.operation.finish('failed')
        self.close.execute()
        self.guest.disarm_dedup.assert_not_called()
