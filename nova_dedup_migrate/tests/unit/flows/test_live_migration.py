# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from taskflow import engines

from nova_dedup_migrate.flows import live_migration
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import ask as pagecache_ask
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes


class NovaError(Exception):
    """Stands for whatever Nova raises."""


class LiveMigrationFlowTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.guest.events = events.EventLog()
        self.guest.progress.return_value = fakes.look(1, record_pages=4)
        self.calls = mock.Mock(spec=['arm', 'disarm', 'operate', 'keep',
                                     'gather', 'collect'])
        self.calls.attach_mock(self.guest.arm_dedup, 'arm')
        self.calls.attach_mock(self.guest.disarm_dedup, 'disarm')
        self.calls.gather.side_effect = fakes.some_facts
        self.calls.operate.side_effect = self.operate
        self.outcomes = []
        self.calls.keep.side_effect = lambda record: self.outcomes.append(
            record.outcome)
        patch = mock.patch.object(choose, 'choose', autospec=True,
                                  return_value=fakes.some_plan())
        self.choose = patch.start()
        self.addCleanup(patch.stop)

    def operate(self):
        # until the watch has seen it
        self.eventually(lambda: self.record.latest, 'a look')

    def run_flow(self, **given):
        live_migration.run(self.record, live_migration.Hands(
            guest=self.guest, gather=self.calls.gather,
            operate=self.calls.operate, collect=self.calls.collect,
            keep=self.calls.keep, interval=0.001, **given))
        self.assertEqual([], self.outcomes[2:])

    def names(self):
        return [call[0] for call in self.calls.mock_calls]

    def test_all_is_well(self):
        self.run_flow()
        self.assertEqual(['keep', 'gather', 'arm', 'operate', 'collect',
                          'keep'], self.names())
        self.assertEqual([None, 'completed'], self.outcomes)
        self.assertIs(self.calls.collect.return_value, self.record.incoming)
        self.assertEqual([], self.record.warnings)
        self.guest.close.assert_called_once_with()

    def asker(self):
        """Return one whose guest has listed 7 pages."""
        patch = mock.patch.object(asking, 'obstacle', autospec=True,
                                  return_value='')
        patch.start()
        self.addCleanup(patch.stop)
        made = mock.create_autospec(pagecache_ask.Asker, instance=True)
        made.obstacle.return_value = ''
        made.ask.return_value = answer.Answer('taken', taken_pages=7)
        self.guest.dedup_statistics.return_value = (
            statistics.DedupStatistics(
                hints=statistics.HintStatistics(pages=9)))
        self.calls.attach_mock(made.ask, 'ask')
        self.calls.attach_mock(self.guest.track_dedup, 'track')
        return made

    def test_the_guest_is_asked(self):
        self.run_flow(asker=self.asker())
        self.assertEqual(['keep', 'gather', 'ask', 'arm', 'operate',
                          'collect', 'keep'], self.names())
        guest = self.choose.call_args.args[0].guest
        self.assertEqual((9, 7), (guest.hint_pages, guest.map_pages))

    def test_what_it_said_is_forgotten(self):
        self.calls.operate.side_effect = NovaError('x')
        self.assertRaises(NovaError, self.run_flow, asker=self.asker())
        self.assertEqual(['keep', 'gather', 'ask', 'arm', 'operate',
                          'disarm', 'track', 'keep'], self.names())

    def test_cancelled(self):
        def cancelled():
            self.operate()
            self.record.finish('cancelled')

        self.calls.operate.side_effect = cancelled
        self.run_flow()
        self.assertEqual(['keep', 'gather', 'arm', 'operate', 'disarm',
                          'collect', 'keep'], self.names())
        self.assertEqual([None, 'cancelled'], self.outcomes)

    def test_nova_fails(self):
        failure = NovaError('x')
        self.calls.operate.side_effect = failure
        raised = self.assertRaises(NovaError, self.run_flow)
        self.assertIs(failure, raised)
        self.assertIsNone(raised.__cause__)
        self.assertIsNone(raised.__context__)
        self.assertEqual(['keep', 'gather', 'arm', 'operate', 'disarm',
                          'keep'], self.names())
        self.assertEqual([None, 'failed'], self.outcomes)

    def test_nova_is_told_to_stop(self):
        # e.g. the exit of a green thread
        self.calls.operate.side_effect = SystemExit
        self.assertRaises(SystemExit, self.run_flow)
        self.assertEqual(1, self.names().count('operate'))

    def check_stock(self):
        self.guest.progress.return_value = fakes.look(1)
        self.run_flow()
        self.assertEqual(1, self.names().count('operate'))
        self.assertNotIn('collect', self.names())
        self.assertEqual('completed', self.record.outcome)

    def test_no_facts(self):
        self.calls.gather.side_effect = errors.QmpTimeout(
            command='query-x-dedup', seconds=1)
        self.check_stock()
        self.assertNotIn('arm', self.names())
        self.assertIn('facts', self.record.reason)

    def test_no_plan(self):
        self.choose.side_effect = ValueError('x')
        self.check_stock()
        self.assertNotIn('arm', self.names())

    def test_stock_is_planned(self):
        self.choose.return_value = fakes.some_plan('stock', 'no agent')
        self.check_stock()
        self.assertNotIn('arm', self.names())
        self.assertEqual('no agent', self.record.reason)

    def test_arming_fails(self):
        self.guest.arm_dedup.side_effect = errors.QmpTimeout(
            command='x-dedup-arm', seconds=1)
        self.check_stock()
        self.assertIn('armed', self.record.reason)

    def test_guest_vanishes(self):
        gone = errors.GuestNotRunning(name='x')
        for method in (self.guest.arm_dedup, self.guest.disarm_dedup,
                       self.guest.progress):
            method.side_effect = gone
        self.calls.operate.side_effect = NovaError('x')
        self.assertRaises(NovaError, self.run_flow)
        self.assertEqual([None, 'failed'], self.outcomes)

    def test_reports_cannot_be_written(self):
        self.calls.keep.side_effect = OSError('full')
        self.check_stock()
        self.assertEqual(2, len(self.record.warnings))

    def test_agent_is_gone_afterwards(self):
        self.calls.collect.side_effect = OSError('gone')
        self.run_flow()
        self.assertEqual('completed', self.record.outcome)
        self.assertEqual(1, len(self.record.warnings))

    def test_flow_itself_fails_before(self):
        with mock.patch.object(engines, 'run', autospec=True,
                               side_effect=RuntimeError('x')):
            self.calls.operate.side_effect = None
            self.run_flow()
        self.calls.operate.assert_called_once_with()

    def test_flow_itself_fails_afterwards(self):
        run = engines.run

        def fail(*args, **kwargs):
            run(*args, **kwargs)
            raise RuntimeError('x')

        with mock.patch.object(engines, 'run', autospec=True,
                               side_effect=fail):
            self.run_flow()
        # never twice
        self.calls.operate.assert_called_once_with()
