# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from taskflow import engines

from nova_dedup_migrate.flows import live_migration
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.tasks import fakes


class NovaError(Exception):
    """Stands for whatever Nova raises."""


class LiveMigrationFlowTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.disk = samples.Disk()
        self.operation = fakes.operation(self.disk)
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.guest.events = events.EventLog()
        self.guest.progress.return_value = fakes.look(1, record_pages=4)
        self.calls = mock.Mock(spec=['arm', 'disarm', 'operate',
                                     'collect_facts', 'collect_incoming'])
        self.calls.attach_mock(self.guest.arm_dedup, 'arm')
        self.calls.attach_mock(self.guest.disarm_dedup, 'disarm')
        self.calls.collect_facts.side_effect = fakes.some_facts
        self.calls.operate.side_effect = self.arrive
        patch = mock.patch.object(choose, 'choose', autospec=True,
                                  return_value=fakes.some_plan())
        self.choose = patch.start()
        self.addCleanup(patch.stop)

    def look(self):
        # until the watch has seen it
        self.eventually(lambda: self.operation.latest, 'a look')

    def arrive(self):
        self.look()
        self.operation.finish('completed')

    def run_flow(self, **given):
        live_migration.run(self.operation, live_migration.MigrationPorts(
            guest=self.guest, collect_facts=self.calls.collect_facts,
            operate=self.calls.operate,
            collect_incoming=self.calls.collect_incoming,
            interval=0.001, **given))

    def names(self):
        return [call[0] for call in self.calls.mock_calls]

    def test_all_is_well(self):
        self.run_flow()
        self.assertEqual(['collect_facts', 'arm', 'operate',
                          'collect_incoming'], self.names())
        self.assertIs(self.calls.collect_incoming.return_value,
                      self.operation.incoming)
        self.assertEqual([], self.operation.warnings)
        self.guest.close.assert_called_once_with()

    def test_what_is_written(self):
        self.run_flow()
        self.assertEqual([('preparing',), ('preparing',
                                           operations.UNDO_ARM)],
                         self.disk.written[:2])

    def loader(self):
        """Return one whose guest has listed 7 pages."""
        patch = mock.patch.object(asking, 'obstacle', autospec=True,
                                  return_value='')
        patch.start()
        self.addCleanup(patch.stop)
        made = mock.create_autospec(loading.PageCacheLoader, instance=True)
        made.obstacle.return_value = ''
        made.load.return_value = answer.Answer('taken', taken_pages=7)
        self.guest.dedup_statistics.return_value = (
            statistics.DedupStatistics(
                hints=statistics.HintStatistics(pages=9)))
        self.calls.attach_mock(made.load, 'ask')
        self.calls.attach_mock(self.guest.track_dedup, 'track')
        return made

    def test_the_guest_lists_its_page_cache(self):
        self.run_flow(loader=self.loader())
        self.assertEqual(['collect_facts', 'ask', 'arm', 'operate',
                          'collect_incoming'], self.names())
        guest = self.choose.call_args.args[0].guest
        self.assertEqual((9, 7), (guest.hint_pages, guest.map_pages))

    def test_all_is_undone_if_nova_fails(self):
        self.calls.operate.side_effect = NovaError('x')
        self.assertRaises(NovaError, self.run_flow, loader=self.loader())
        self.assertEqual(['collect_facts', 'ask', 'arm', 'operate',
                          'disarm', 'track'], self.names())
        self.assertEqual([], self.operation.durable.undo)

    def test_cancelled(self):
        def cancelled():
            self.look()
            self.operation.finish('cancelled')

        self.calls.operate.side_effect = cancelled
        self.run_flow()
        self.assertEqual(['collect_facts', 'arm', 'operate',
                          'collect_incoming', 'disarm'], self.names())
        self.assertEqual([], self.operation.durable.undo)

    def test_nova_left_it_to_recovery(self):
        """It is not certain that the guest has stayed, nor that it left."""
        self.calls.operate.side_effect = self.look
        self.run_flow()
        self.assertIsNone(self.operation.outcome)
        self.guest.disarm_dedup.assert_called_once_with()

    def test_nova_fails(self):
        failure = NovaError('x')
        self.calls.operate.side_effect = failure
        raised = self.assertRaises(NovaError, self.run_flow)
        self.assertIs(failure, raised)
        self.assertIsNone(raised.__cause__)
        self.assertIsNone(raised.__context__)
        self.assertEqual(['collect_facts', 'arm', 'operate', 'disarm'],
                         self.names())
        # that is for recovery to find out
        self.assertIsNone(self.operation.outcome)
        self.guest.close.assert_called_once_with()

    def test_nova_is_told_to_stop(self):
        # e.g. the exit of a green thread
        self.calls.operate.side_effect = SystemExit
        self.assertRaises(SystemExit, self.run_flow)
        self.assertEqual(1, self.names().count('operate'))

    def check_stock(self, **given):
        self.guest.progress.return_value = fakes.look(1)
        self.run_flow(**given)
        self.assertEqual(1, self.names().count('operate'))
        self.assertNotIn('collect_incoming', self.names())
        self.assertEqual('completed', self.operation.outcome)

    def test_facts_are_of_no_use(self):
        self.check_stock(reason_for_stock='a stock QEMU')
        self.assertEqual(['operate'], self.names())
        self.assertEqual('a stock QEMU', self.operation.reason)
        self.assertEqual([], self.operation.durable.undo)

    def test_no_facts(self):
        self.calls.collect_facts.side_effect = errors.QmpTimeout(
            command='query-x-dedup', seconds=1)
        self.check_stock()
        self.assertNotIn('arm', self.names())
        self.assertIn('facts', self.operation.reason)

    def test_no_plan(self):
        self.choose.side_effect = ValueError('x')
        self.check_stock()
        self.assertNotIn('arm', self.names())

    def test_stock_is_planned(self):
        self.choose.return_value = fakes.some_plan('stock', 'no agent')
        self.check_stock()
        self.assertNotIn('arm', self.names())
        self.assertEqual('no agent', self.operation.reason)

    def test_arming_fails(self):
        self.guest.arm_dedup.side_effect = errors.QmpTimeout(
            command='x-dedup-arm', seconds=1)
        self.check_stock()
        self.assertIn('armed', self.operation.reason)

    def test_guest_vanishes(self):
        gone = errors.GuestNotRunning(name='x')
        for method in (self.guest.arm_dedup, self.guest.disarm_dedup,
                       self.guest.progress):
            method.side_effect = gone
        self.calls.operate.side_effect = NovaError('x')
        self.assertRaises(NovaError, self.run_flow)
        self.assertEqual([], self.operation.durable.undo)

    def test_disk_is_full(self):
        """What cannot be undone after a crash is not begun."""
        self.disk.error = OSError('full')
        self.check_stock()
        self.assertNotIn('arm', self.names())
        self.assertIn('full', self.operation.reason)

    def test_agent_is_gone_afterwards(self):
        self.calls.collect_incoming.side_effect = OSError('gone')
        self.run_flow()
        self.assertEqual('completed', self.operation.outcome)
        self.assertEqual(1, len(self.operation.warnings))

    def test_events_do_not_end(self):
        self.guest.close.side_effect = OSError('x')
        self.run_flow()
        self.assertEqual(['ending the subscription to events: x'],
                         self.operation.warnings)

    def test_flow_itself_fails_before(self):
        with mock.patch.object(engines, 'run', autospec=True,
                               side_effect=RuntimeError('x')):
            self.calls.operate.side_effect = None
            self.run_flow()
        self.calls.operate.assert_called_once_with()
        self.assertEqual(['running the flow: x'], self.operation.warnings)

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

    def test_flow_itself_fails_while_nova_does(self):
        """Nova's exception is the one that counts."""
        failure = NovaError('x')
        self.calls.operate.side_effect = failure
        run = engines.run

        def fail(*args, **kwargs):
            try:
                run(*args, **kwargs)
            finally:
                raise RuntimeError('y')

        with mock.patch.object(engines, 'run', autospec=True,
                               side_effect=fail):
            self.assertIs(failure, self.assertRaises(NovaError,
                                                     self.run_flow))
        self.calls.operate.assert_called_once_with()
