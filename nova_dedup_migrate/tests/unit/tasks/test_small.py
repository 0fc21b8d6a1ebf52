# SPDX-License-Identifier: Apache-2.0
"""Tasks of a few lines."""

from unittest import mock

from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.tasks import collect
from nova_dedup_migrate.tasks import decide
from nova_dedup_migrate.tasks import gather
from nova_dedup_migrate.tasks import report
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes


class GatherFactsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()

    def test_gathered(self):
        found = fakes.some_facts()
        task = gather.GatherFacts(self.record, lambda: found)
        self.assertIs(found, task.execute())
        self.assertIs(found, self.record.facts)

    def test_failure(self):
        task = gather.GatherFacts(
            self.record, mock.Mock(side_effect=OSError('no')))
        self.assertIsNone(task.execute())
        self.assertEqual(['gathering facts: no'], self.record.warnings)

    def test_revert(self):
        gather.GatherFacts(self.record, None).revert(
            result=None, flow_failures={})


class MakePlanTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()
        self.task = decide.MakePlan(self.record)
        patch = mock.patch.object(choose, 'choose', autospec=True)
        self.choose = patch.start()
        self.addCleanup(patch.stop)

    def test_plan(self):
        self.choose.return_value = fakes.some_plan()
        self.assertIs(self.choose.return_value,
                      self.task.execute(fakes.some_facts()))
        self.assertIs(self.choose.return_value, self.record.plan)
        self.assertEqual('', self.record.reason)

    def test_stock(self):
        self.choose.return_value = fakes.some_plan('stock', 'no hints')
        self.task.execute(fakes.some_facts())
        self.assertEqual('no hints', self.record.reason)

    def test_no_facts(self):
        self.assertIsNone(self.task.execute(None))
        self.choose.assert_not_called()
        self.assertIn('facts', self.record.reason)

    def test_failure(self):
        self.choose.side_effect = ZeroDivisionError
        self.assertIsNone(self.task.execute(fakes.some_facts()))
        self.assertEqual(['planning: ZeroDivisionError'],
                         self.record.warnings)

    def test_revert(self):
        self.task.revert(result=None, flow_failures={})


class CollectTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()
        self.figures = mock.Mock(spec=[])
        self.task = collect.Collect(self.record, self.figures)

    def test_records_were_sent(self):
        self.record.see(fakes.look(record_pages=5))
        self.task.execute()
        self.assertIs(self.figures.return_value, self.record.incoming)

    def test_nothing_to_ask(self):
        for one in (None, fakes.look(), fakes.look(record_pages=0)):
            self.record.latest = one
            self.task.execute()
        self.figures.assert_not_called()

    def test_agent_is_gone(self):
        self.record.see(fakes.look(record_pages=5))
        self.figures.side_effect = OSError('gone')
        self.task.execute()
        self.assertIsNone(self.record.incoming)
        self.assertEqual(1, len(self.record.warnings))

    def test_revert(self):
        self.task.revert(result=None, flow_failures={})


class ReportTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()
        self.keep = mock.Mock(spec=[])

    def test_open(self):
        report.OpenReport(self.record, self.keep).execute()
        self.keep.assert_called_once_with(self.record)
        self.assertIsNone(self.record.outcome)

    def test_revert(self):
        report.OpenReport(self.record, self.keep).revert(
            result=None, flow_failures={})
        self.keep.assert_called_once_with(self.record)
        self.assertEqual('failed', self.record.outcome)

    def test_close(self):
        report.CloseReport(self.record, self.keep).execute()
        self.keep.assert_called_once_with(self.record)

    def test_disk_is_full(self):
        self.keep.side_effect = OSError('full')
        for task in (report.OpenReport(self.record, self.keep),
                     report.CloseReport(self.record, self.keep)):
            task.execute()
            task.revert(result=None, flow_failures={})
        self.assertEqual(3, len(self.record.warnings))
