# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import disks as planner_disks
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.tasks import disk_port
from nova_dedup_migrate.tasks import fill_disks
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.tasks import fakes

GIB = 1 << 30
#: Seconds of copying one over the link of these tests.
STOCK = GIB / 12.5e6


def watched(**given):
    return watch_objects.DedupWatchReply(**{
        'state': 'watching', 'size': 2 * GIB, 'granularity': 32768,
        'watch': 'ab' * 32, 'data': GIB, **given})


def filling(state='done', local=0, zero=0, **given):
    return disk_objects.DedupFillingReply(state=state, sources=[
        disk_objects.DedupSourceBytes(name=name, bytes=count)
        for name, count in (('local', local), ('zero', zero)) if count],
        **given)


class FillDisksTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.prepare()

    def prepare(self):
        self.disk = samples.Disk()
        self.operation = fakes.operation(self.disk)
        self.port = mock.create_autospec(disk_port.DiskPort, instance=True)
        self.port.targets.return_value = ['vda']
        self.port.watch.side_effect = lambda target: watched()
        self.port.facts.return_value = planner_disks.DiskFacts(
            GIB, 100, 100, link_rate=12.5e6)
        self.states(filling('running', done=1, total=4),
                    filling(local=77, done=4, total=4, seconds=3.0))
        self.port.arm.return_value = watched(state='armed', proven=GIB)
        self.now = 0.0

    def states(self, *found):
        """Have a disk go through these; the last one stays."""
        left = list(found)
        self.port.state.side_effect = lambda target, wait: (
            self.answer(left.pop(0) if len(left) > 1 else left[0]))

    def answer(self, found):
        if isinstance(found, Exception):
            raise found
        return found

    def clock(self):
        self.now += 1.0
        return self.now

    def run_task(self, seconds=60.0, **options):
        fill_disks.FillDisks(self.operation, self.port, seconds,
                             clock=self.clock, sleep=lambda _: None,
                             **options).execute()

    def seconds(self):
        """Return (target, seconds) of each call that gives a disk time."""
        return [(call.args[0], call.args[2])
                for call in self.port.build.mock_calls]

    def names(self):
        return [call[0] for call in self.port.mock_calls]

    def reports(self):
        return {disk.target: disk for disk in self.operation.disks}

    def test_built(self):
        self.run_task()
        self.assertEqual(['targets', 'watch', 'facts', 'build', 'state',
                          'show', 'state', 'show', 'state', 'arm'],
                         self.names())
        found = self.reports()['vda']
        self.assertEqual((2 * GIB, GIB, {'local': 77}, 3.0, GIB, ''),
                         (found.size, found.data, found.sources,
                          found.build_seconds, found.proven, found.reason))
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
        self.states(filling('failed', reason='no room'), filling())
        self.run_task()
        self.assertEqual('no room', self.reports()['vda'].reason)
        self.assertEqual('', self.reports()['vdb'].reason)
        # which would have vdb forgotten as well
        self.port.abort.assert_not_called()
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
        self.states(filling('running'), gone, filling('unknown'), filling())
        self.port.build.side_effect = [None, gone, gone, None, None]
        self.run_task()
        self.assertEqual(5, self.port.build.call_count)
        self.port.abort.assert_not_called()
        self.port.arm.assert_called_once_with('vda')
        self.assertEqual('', self.reports()['vda'].reason)

    def test_agent_is_lost_again_and_again(self):
        self.states(filling('unknown'))
        self.run_task()
        self.assertIn('was lost 4 times', self.reports()['vda'].reason)
        self.port.abort.assert_called_once_with()
        self.port.arm.assert_not_called()

    def test_agent_may_still_write(self):
        """A mirror must not begin then, so Nova rolls back."""
        gone = errors.AgentUnavailable('there', 'no answer')
        self.port.targets.return_value = ['vda', 'vdb']
        self.states(gone)
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
        self.port.abort.assert_not_called()
        self.port.release.assert_called_once_with('vda')
        self.assertEqual([], self.operation.durable.requests)

    def test_time_is_over(self):
        """What is proven by then is used, and the report says so."""
        self.states(filling('running'), filling(reason='time was over'))
        self.run_task()
        self.port.arm.assert_called_once_with('vda')
        self.assertEqual('time was over. 1.1 GB of 2.1 GB are proven; the '
                         'rest is mirrored', self.reports()['vda'].reason)
        self.assertEqual(GIB, self.reports()['vda'].proven)
        self.assertEqual([], self.operation.warnings)

    def test_it_does_not_end(self):
        """Disks that are built are armed before all are forgotten."""
        self.port.targets.return_value = ['vda', 'vdb', 'vdc']
        self.port.state.side_effect = lambda target, wait: filling(
            'done' if target == 'vda' else 'running')
        self.run_task(seconds=10.0)
        self.assertIn('did not end in time', self.reports()['vdb'].reason)
        self.assertIn('was stopped', self.reports()['vdc'].reason)
        self.port.arm.assert_called_once_with('vda')
        self.port.abort.assert_called_once_with()
        self.assertLess(self.names().index('arm'),
                        self.names().index('abort'))
        self.assertEqual(2, self.port.watch.call_count)

    def test_checked_before_the_mirrors_begin(self):
        """All of them, when the last one is built."""
        self.port.targets.return_value = ['vda', 'vdb', 'vdc']
        left = {'vda': [filling(), filling('failed', reason='replaced')],
                'vdb': [filling('running'), filling(), filling()],
                'vdc': [filling(), errors.AgentUnavailable('there', 'gone')]}
        self.port.state.side_effect = (
            lambda target, wait: self.answer(left[target].pop(0)))
        self.run_task()
        self.port.arm.assert_called_once_with('vdb')
        self.assertEqual(
            ['state', 'release', 'state', 'arm', 'state', 'release'],
            [name for name in self.names() if name != 'show'][-6:])
        found = self.reports()
        self.assertEqual(('replaced', None),
                         (found['vda'].reason, found['vda'].proven))
        self.assertEqual(('', GIB),
                         (found['vdb'].reason, found['vdb'].proven))
        self.assertIn('gone', found['vdc'].reason)
        # nobody writes to them any more
        self.port.abort.assert_not_called()
        self.assertEqual([], self.operation.durable.requests)

    def test_no_longer_than_copying(self):
        """Nor than disk_time; what is built in any case has all of that."""
        longest = 1.1 * STOCK + planner_disks.LEAST
        for seconds, always, expected in (
                (3600.0, False, longest), (60.0, False, 60.0),
                (3600.0, True, 3600.0)):
            with self.subTest((seconds, always)):
                self.prepare()
                self.run_task(seconds, always=always)
                ((_, given),) = self.seconds()
                self.assertAlmostEqual(expected, given, delta=5)

    def test_disk_time_is_shared(self):
        self.port.targets.return_value = ['vda', 'vdb', 'vdc']
        self.states(*[filling('running')] * 50, filling())
        self.run_task(seconds=70.0, always=True)
        self.assertLess(self.seconds()[1][1], 20.0)
        self.now = 0.0
        self.states(*[filling('running')] * 80, filling())
        self.run_task(seconds=70.0, always=True)
        self.assertIn('was over before', self.reports()['vdb'].reason)

    def slow(self, *rates, looks=40):
        """Have disks proven with so many bytes a look, then be done."""
        disks = {'vd' + name: [looks, rate, 0]
                 for name, rate in zip('abc', rates, strict=False)}

        def state(target, wait):
            disk = disks[target]
            disk[0] -= 1
            disk[2] += disk[1]
            return filling('running' if disk[0] > 0 else 'done',
                           local=int(disk[2]), zero=GIB)

        def build(target, watch, seconds):
            if not seconds:
                disks[target][0] = 1

        self.port.targets.return_value = list(disks)
        self.port.state.side_effect = state
        self.port.build.side_effect = build
        self.run_task(3600.0)

    def ended(self):
        return [target for target, seconds in self.seconds() if not seconds]

    def test_slower_than_the_link(self):
        """It ends as soon as it takes much longer than copying would."""
        self.slow(1e6)
        self.assertEqual(['vda'], self.ended())
        self.port.arm.assert_called_once_with('vda')
        # each look takes two seconds of this clock
        self.assertLess(self.now, (0.1 * STOCK + planner_disks.LEAST) * 1.4)

    def test_as_fast_as_the_link(self):
        self.slow(25e6)
        self.assertEqual([], self.ended())

    def test_slow_is_good_enough(self):
        self.port.facts.return_value = planner_disks.DiskFacts(
            GIB, 100, 0, link_rate=12.5e6)
        self.states(*[filling('running')] * 100, filling())
        self.run_task(3600.0, always=True)
        self.assertEqual([], self.ended())

    def test_time_in_vain_is_shared(self):
        """What one disk has taken the others do not have."""
        self.slow(20.5e6, 20.5e6)
        self.assertEqual(['vdb'], self.ended())

    def test_restarted_agent_counts_anew(self):
        """That is not taken for slowness."""
        self.states(*[filling('running', local=number * 25_000_000)
                      for number in range(40)], filling('unknown'),
                    *[filling('running')] * 5, filling())
        self.run_task(3600.0)
        self.assertEqual([], self.ended())
        self.assertEqual(2, self.port.build.call_count)

    def test_agent_is_gone_when_it_is_to_end(self):
        gone = errors.AgentUnavailable('there', 'no answer')
        self.states(*[filling('running')] * 40, filling())
        self.port.build.side_effect = [None, gone, None, None]
        self.run_task(3600.0)
        self.assertEqual(['vda', 'vda'], self.ended())
        self.port.arm.assert_called_once_with('vda')

    def test_progress(self):
        """Of all disks; what holds nothing would not be copied."""
        self.port.targets.return_value = ['vda', 'vdb']
        self.states(filling('running', local=77, zero=999, done=1, total=2),
                    filling(local=GIB + 1, done=2, total=2),
                    filling('running', local=5, done=1, total=2),
                    filling(local=9, done=2, total=2))
        seen = []
        with mock.patch.object(
                operations.Operation, 'show', autospec=True,
                side_effect=lambda _, shown: seen.append(shown)):
            self.run_task()
        self.assertEqual([0.125, 0.25, 0.375, 0.5],
                         [shown.share for shown in seen])
        figures = [(GIB, GIB - 77), (GIB, 0), (2 * GIB, GIB - 5),
                   (2 * GIB, GIB - 9)]
        self.assertEqual(figures, [(shown.disk_total, shown.disk_remaining)
                                   for shown in seen])
        self.assertEqual(figures, [call.args for call
                                   in self.port.show.mock_calls])

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
