# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import disks as planner_disks
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.tasks import fill_disks
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.tasks import fakes

GIB = 1 << 30


def watched(**given):
    return watch_objects.DedupWatchReply(**{
        'state': 'watching', 'size': 2 * GIB, 'granularity': 32768,
        'watch': 'ab' * 32, 'data': GIB, **given})


def filling(state='done', **given):
    return disk_objects.DedupFillingReply(state=state, **given)


class FillDisksTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.prepare()

    def prepare(self):
        self.disk = samples.Disk()
        self.operation = fakes.operation(self.disk)
        self.port = mock.create_autospec(fill_disks.DiskPort, instance=True)
        self.port.targets.return_value = ['vda']
        self.port.watch.side_effect = lambda target: watched()
        self.port.facts.return_value = planner_disks.DiskFacts(
            GIB, 100, 100, link_rate=12.5e6)
        self.port.state.side_effect = [
            filling('running', done=1, total=4),
            filling(sources=[disk_objects.DedupSourceBytes(
                name='local', bytes=77)], done=4, total=4, seconds=3.0)]
        self.port.arm.return_value = watched(state='armed', proven=GIB)
        self.now = 0.0

    def clock(self):
        self.now += 1.0
        return self.now

    def run_task(self, seconds=60.0, port=None):
        fill_disks.FillDisks(self.operation, port or self.port, seconds,
                             clock=self.clock,
                             sleep=lambda _: None).execute()

    def names(self):
        return [call[0] for call in self.port.mock_calls]

    def reports(self):
        return {disk.target: disk for disk in self.operation.disks}

    def test_built(self):
        self.run_task()
        self.assertEqual(['targets', 'watch', 'facts', 'build', 'state',
                          'state', 'arm'], self.names())
        found = self.reports()['vda']
        self.assertEqual((2 * GIB, GIB, {'local': 77}, 3.0, ''),
                         (found.size, found.data, found.sources,
                          found.build_seconds, found.reason))
        self.assertEqual([operations.UNDO_DISKS],
                         self.operation.durable.undo)
        self.assertEqual(0.5, self.operation.durable.progress.share)

    def test_written_before_it_watches(self):
        """What cannot be undone after a crash is not begun."""
        self.disk.error = OSError('full')
        self.run_task()
        self.assertEqual(['targets'], self.names())

    def test_nothing_to_build(self):
        self.port.targets.return_value = []
        self.run_task()
        self.assertEqual([], self.operation.durable.undo)
        fill_disks.FillDisks(self.operation, None).execute()

    def test_does_not_pay(self):
        self.port.facts.return_value = planner_disks.DiskFacts(
            GIB, 100, 0, link_rate=12.5e6)
        self.run_task()
        self.assertEqual(['targets', 'watch', 'facts', 'release'],
                         self.names())
        self.assertIn('near the destination', self.reports()['vda'].reason)
        self.assertEqual([], self.operation.warnings)

    def test_fails(self):
        """The next disk is built all the same."""
        self.port.targets.return_value = ['vda', 'vdb']
        self.port.state.side_effect = [
            filling('failed', reason='no room'), filling()]
        self.run_task()
        self.assertEqual('no room', self.reports()['vda'].reason)
        self.assertEqual('', self.reports()['vdb'].reason)
        self.port.abort.assert_called_once_with()
        self.port.release.assert_called_once_with('vda')
        self.port.arm.assert_called_once_with('vdb')

    def test_agent_is_gone(self):
        gone = errors.AgentUnavailable('there', 'no answer')
        for method in ('targets', 'watch', 'facts', 'build', 'arm', 'abort',
                       'release'):
            with self.subTest(method):
                self.prepare()
                getattr(self.port, method).side_effect = gone
                self.run_task()
                if method in ('watch', 'facts', 'build', 'arm'):
                    self.assertIn('no answer', self.reports()['vda'].reason)
                self.assertEqual([], self.operation.durable.requests)

    def test_agent_is_restarted(self):
        """It continues, and is given time to come back."""
        gone = errors.AgentUnavailable('there', 'no answer')
        self.port.state.side_effect = [
            filling('running'), gone, filling('unknown'), filling()]
        self.port.build.side_effect = [None, gone, gone, None, None]
        self.run_task()
        self.assertEqual(5, self.port.build.call_count)
        self.port.abort.assert_not_called()
        self.port.arm.assert_called_once_with('vda')
        self.assertEqual('', self.reports()['vda'].reason)

    def test_agent_is_lost_again_and_again(self):
        self.port.state.side_effect = lambda *args: filling('unknown')
        self.run_task()
        self.assertIn('was lost 4 times', self.reports()['vda'].reason)
        self.port.abort.assert_called_once_with()
        self.port.arm.assert_not_called()

    def test_agent_may_still_write(self):
        """A mirror must not begin then, so Nova rolls back."""
        gone = errors.AgentUnavailable('there', 'no answer')
        self.port.targets.return_value = ['vda', 'vdb']
        self.port.state.side_effect = gone
        self.port.build.side_effect = [None, *[gone] * 99]
        self.port.abort.side_effect = gone
        self.run_task()
        self.assertEqual([operations.ABORT],
                         self.operation.durable.requests)
        self.assertEqual(['vda'], list(self.reports()))
        self.assertIn('did not confirm', self.reports()['vda'].reason)
        self.port.release.assert_not_called()

    def test_agent_refuses(self):
        self.port.build.side_effect = errors.AgentRefused(
            'there', 'no room', 'FillRefused')
        self.run_task()
        self.assertEqual(1, self.port.build.call_count)
        self.port.abort.assert_called_once_with()
        self.assertEqual([], self.operation.durable.requests)

    def test_late(self):
        self.port.state.side_effect = lambda *args: filling('running')
        self.run_task(seconds=10.0)
        self.assertIn('disk_time', self.reports()['vda'].reason)
        self.port.abort.assert_called_once_with()

    def test_aborted(self):
        """At the next look; no disk follows."""
        self.port.targets.return_value = ['vda', 'vdb']

        def state(target, wait):
            self.operation.durable.requests.append(operations.ABORT)
            return filling('running')

        self.port.state.side_effect = state
        self.run_task()
        self.assertEqual(['vda'], list(self.reports()))
        self.port.abort.assert_called_once_with()
        self.port.arm.assert_not_called()
        # the target may have been written to; Nova removes it
        self.port.release.assert_not_called()
        self.assertEqual([], self.operation.warnings)

    def test_revert(self):
        task = fill_disks.FillDisks(self.operation, self.port)
        task.revert()
        self.port.abort.assert_not_called()
        self.run_task()
        task.revert()
        self.port.abort.assert_called_once_with()
        self.port.forget.assert_called_once_with()

    def test_looks_until_all_mirrors_have_begun(self):
        self.run_task()
        look = fill_disks.DiskLook(self.operation, self.port)
        self.port.used.return_value = {}
        look.look()
        self.port.used.return_value = {'vda': (4711, '')}
        look.look()
        look.look()
        self.assertEqual(2, self.port.used.call_count)
        self.assertEqual(4711, self.reports()['vda'].mirrored)

    def test_mirror_has_doubts(self):
        self.run_task()
        self.port.used.return_value = {'vda': (None, 'it was resized')}
        fill_disks.DiskLook(self.operation, self.port).look()
        self.assertEqual('it was resized', self.reports()['vda'].reason)

    def test_forgotten_at_the_end(self):
        """By both, even if one is gone."""
        for abort in None, errors.AgentUnavailable('there', 'no answer'):
            self.prepare()
            self.run_task()
            self.port.abort.side_effect = abort
            fill_disks.CollectDisks(self.operation, self.port).execute()
            self.port.abort.assert_called_once_with()
            self.port.forget.assert_called_once_with()
