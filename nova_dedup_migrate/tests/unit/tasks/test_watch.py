# SPDX-License-Identifier: Apache-2.0
import dataclasses
import itertools
import math
import threading
import time
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import downtime_limit
from nova_dedup_migrate.planner import pacing
from nova_dedup_migrate.planner import replan
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tasks import watch
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples
from nova_dedup_migrate.tests.unit.tasks import fakes

GONE = errors.GuestNotRunning(name='x')
PLAN = fakes.some_plan()
STOCK = fakes.some_plan('stock')
TIMEOUT = errors.QmpTimeout(command='query-migrate', seconds=60)


class WatchTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.disk = samples.Disk()
        self.operation = fakes.operation(self.disk)
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.guest.events = events.EventLog()
        self.watch = watch.Watch(self.operation, self.guest, interval=0.001)
        patch = mock.patch.object(replan, 'replan', autospec=True)
        self.replan = patch.start()
        self.replan.return_value = replan.Decision(replan.KEEP)
        self.addCleanup(patch.stop)

    def run_watch(self, *looks, plan=PLAN):
        self.guest.progress.side_effect = looks
        self.operation.facts = fakes.some_facts()
        self.operation.plan = plan
        self.watch.run()

    def test_looks_are_kept(self):
        one, two = fakes.look(1), fakes.look(2)
        self.run_watch(one, two, GONE)
        self.assertEqual([one, two], self.operation.rounds)
        self.assertEqual([], self.operation.warnings)

    def test_libvirt_has_gone(self):
        self.run_watch(*[errors.HypervisorUnavailable(
            uri='qemu:///system', reason='x')] * 5)
        self.assertEqual(1, len(self.operation.warnings))

    def test_single_failures_are_passed_over(self):
        self.run_watch(*[TIMEOUT] * 4, fakes.look(1), *[TIMEOUT] * 4,
                       fakes.look(2), GONE)
        self.assertEqual(2, len(self.operation.rounds))
        self.assertEqual([], self.operation.warnings)

    def test_planner_is_asked_again(self):
        self.run_watch(fakes.look(1, record_pages=3), GONE)
        self.assertEqual(1, self.replan.call_count)
        self.guest.disarm_dedup.assert_not_called()

    def test_stock_is_left_alone(self):
        """Nothing but its progress is of interest."""
        self.replan.return_value = replan.Decision(replan.DISARM, 'x', 7.0)
        self.run_watch(fakes.look(1, reason='x', record_pages=1), GONE,
                       plan=STOCK)
        self.guest.disarm_dedup.assert_not_called()
        self.assertEqual('', self.operation.reason)
        self.assertIsNotNone(self.operation.durable.progress)

    def test_without_a_plan(self):
        self.run_watch(fakes.look(0, record_pages=1), GONE)
        self.run_watch(fakes.look(1, record_pages=1), GONE, plan=None)
        self.replan.assert_not_called()

    def progress(self, *estimate, **look):
        with mock.patch.object(watch.time, 'time', autospec=True,
                               return_value=1800000000.0), \
                mock.patch.object(replan, 'progress', autospec=True,
                                  return_value=estimate) as progress:
            self.run_watch(fakes.look(**look), GONE)
        return progress.call_args.args

    def test_progress(self):
        self.operation.data_remaining = 1 << 29
        plan, facts, seen = self.progress(0.75, 42.5, rounds=1,
                                          remaining=1 << 28)
        self.assertEqual((self.operation.plan, self.operation.facts),
                         (plan, facts))
        self.assertEqual((1 << 28, 1 << 28),
                         (seen.remaining, seen.disk_remaining))
        self.assertEqual(report.Progress(0.75, 42.5, 1800000000.0, 1 << 30,
                                         1 << 28),
                         self.operation.durable.progress)

    def test_progress_goes_on_from_that_of_the_disks(self):
        self.operation.show(report.Progress(0.5, None, 1.0))
        self.progress(0.25, 40.0, rounds=1)
        self.assertEqual(0.625, self.operation.durable.progress.share)

    def test_progress_while_disks_are_copied(self):
        """QEMU's migration of memory has not begun."""
        self.progress(0.1, 4000.0, rounds=0)
        self.assertEqual(4000.0,
                         self.operation.durable.progress.seconds_left)

    def test_progress_without_an_end(self):
        self.progress(0.5, math.inf)
        self.assertIsNone(self.operation.durable.progress.seconds_left)

    def test_disarmed_in_flight(self):
        self.operation.will(operations.UNDO_ARM)
        self.replan.return_value = replan.Decision(replan.DISARM, 'too slow')
        self.run_watch(*[fakes.look(1, record_pages=3)] * 3, GONE)
        self.guest.disarm_dedup.assert_called_once_with()
        self.assertEqual('too slow', self.operation.reason)
        self.assertEqual([], self.operation.durable.undo)

    def test_disarming_fails_at_first(self):
        self.replan.return_value = replan.Decision(replan.DISARM, 'too slow')
        self.guest.disarm_dedup.side_effect = [TIMEOUT, None]
        self.run_watch(*[fakes.look(1, record_pages=3)] * 3, GONE)
        self.assertEqual(2, self.guest.disarm_dedup.call_count)
        self.assertEqual([], self.operation.durable.undo)

    def test_disarming_fails(self):
        self.operation.will(operations.UNDO_ARM)
        self.replan.return_value = replan.Decision(replan.DISARM, 'too slow')
        self.guest.disarm_dedup.side_effect = TIMEOUT
        self.run_watch(*[fakes.look(1, record_pages=3)] * 3, GONE)
        self.assertEqual([operations.UNDO_ARM], self.operation.durable.undo)

    def test_disk_is_full(self):
        """The watch goes on without what it could not write."""
        self.disk.error = OSError('full')
        self.run_watch(fakes.look(1), fakes.look(2), GONE)
        self.assertEqual(2, len(self.operation.rounds))
        self.assertEqual(['writing the operation to disk: full'],
                         self.operation.warnings)

    def test_reason_of_qemu(self):
        self.run_watch(fakes.look(1, reason='no return path'), GONE)
        self.assertEqual('no return path', self.operation.reason)

    def limits(self, *found):
        """Have the planner set these limits."""
        limit = mock.create_autospec(downtime_limit.DowntimeLimit,
                                     instance=True)
        limit.look.side_effect = found
        return mock.patch.object(downtime_limit, 'of_plan', autospec=True,
                                 return_value=limit if found else None)

    def test_rounds_that_lead_no_further(self):
        looks = [dataclasses.replace(fakes.look(number),
                                     expected_downtime_ms=600)
                 for number in range(1, 9)]
        with self.limits(*[None] * 6, 75, None):
            self.run_watch(*looks, GONE)
        self.guest.allow_downtime.assert_called_once_with(75)
        self.assertEqual([], self.operation.warnings)

    def test_downtime_limit_of_an_ordinary_migration(self):
        with self.limits(75):
            self.run_watch(fakes.look(1), GONE, plan=STOCK)
        self.guest.allow_downtime.assert_called_once_with(75)

    def test_downtime_limit_is_novas(self):
        with self.limits():
            self.run_watch(fakes.look(1), GONE)
        with self.limits(75, 75):
            self.run_watch(fakes.look(1), GONE, plan=None)
            self.run_watch(fakes.look(1, status='device'), GONE)
        self.guest.allow_downtime.assert_not_called()

    def paced(self, *looks):
        self.watch = watch.Watch(
            self.operation, self.guest, 0.001,
            rate=pacing.AdaptiveRate(12_500_000, 125_000_000))
        self.run_watch(*looks, GONE, plan=None)
        return [call.args[0] for call in
                self.guest.limit_bandwidth.call_args_list]

    def test_adaptive_rate(self):
        """The first round at the minimum; then faster than the guest."""
        written = dataclasses.replace(fakes.look(2), dirty_pages_per_s=5000)
        self.assertEqual(
            [12_500_000, 5000 * 4096 + pacing.STEP],
            self.paced(fakes.look(0), fakes.look(1), fakes.look(1), written,
                       written))

    def test_adaptive_rate_of_a_guest_that_writes_faster(self):
        written = dataclasses.replace(fakes.look(2),
                                      dirty_pages_per_s=50_000)
        self.assertEqual([12_500_000, 125_000_000],
                         self.paced(fakes.look(1), written))

    def test_rate_is_not_touched_at_the_end(self):
        self.assertEqual([], self.paced(fakes.look(1, status='device')))

    def test_ends_with_the_operation(self):
        looking = threading.Event()

        def look():
            looking.set()
            return fakes.look(1)

        self.guest.progress.side_effect = look
        with self.watch.during():
            self.assertTrue(looking.wait(30))
        names = [thread.name for thread in threading.enumerate()]
        self.assertNotIn('dedup-watch-' + self.operation.instance_uuid, names)

    def test_downtime(self):
        """Also where libvirt has ended QEMU before it could be asked."""
        self.guest.progress.side_effect = GONE
        log = self.guest.events
        # of an earlier attempt
        log.add('STOP', {})
        log.add('MIGRATION', {'status': 'completed'})
        with self.watch.during():
            self.assertIsNone(self.operation.downtime)
        self.assertIsNone(self.operation.downtime)
        with watch.Watch(self.operation, self.guest).during():
            log.add('STOP', {})
            log.add('MIGRATION', {'status': 'completed'})
        self.assertGreaterEqual(self.operation.downtime, 0.0)

    def test_looks_at_an_event(self):
        """The last figures do not wait for the next turn."""
        self.guest.progress.side_effect = [fakes.look(1, mbps=0.0),
                                           fakes.look(2), GONE]
        watcher = watch.Watch(self.operation, self.guest, interval=3600)
        with watcher.during():
            while len(self.operation.rounds) < 1:
                time.sleep(0.01)
            # The guest can cause such events at any rate.
            self.guest.events.add('RTC_CHANGE', {'offset': 1})
            time.sleep(0.2)
            self.assertEqual(1, self.guest.progress.call_count)
            self.guest.events.add('MIGRATION', {'status': 'completed'})
            while len(self.operation.rounds) < 2:
                time.sleep(0.01)
        self.assertEqual(2, self.operation.latest.rounds)

    def test_event_during_a_look(self):
        log = self.guest.events
        looks = iter([fakes.look(1, mbps=0.0), fakes.look(2)])

        def look():
            log.add('MIGRATION', {'status': 'completed'})
            try:
                return next(looks)
            except StopIteration:
                raise GONE from None

        self.guest.progress.side_effect = look
        watcher = watch.Watch(self.operation, self.guest, interval=3600)
        with watcher.during():
            while len(self.operation.rounds) < 2:
                time.sleep(0.01)
        self.assertEqual(2, self.operation.latest.rounds)

    def test_no_events(self):
        del self.guest.events
        self.guest.progress.side_effect = GONE
        with self.watch.during():
            pass
        self.assertIsNone(self.operation.downtime)
        self.assertIn('listening to events', self.operation.warnings[0])

    def test_operation_fails(self):
        self.guest.progress.side_effect = GONE

        def operate():
            with self.watch.during():
                raise KeyError('x')

        self.assertRaises(KeyError, operate)

    def test_no_thread_to_be_had(self):
        done = []
        with mock.patch.object(threading.Thread, 'start', autospec=True,
                               side_effect=RuntimeError('no')):
            with self.watch.during():
                done.append(True)
        self.assertEqual([True], done)
        self.assertEqual(1, len(self.operation.warnings))

    def test_looks_more_often_towards_the_end(self):
        watcher = watch.Watch(self.operation, self.guest, interval=0.5)
        far = fakes.look(remaining=1 << 30)
        near = fakes.look(remaining=20 << 20)
        waits = [watcher._wait(look) for look in (
            far, near, fakes.look(remaining=0),
            fakes.look(status='device'), fakes.look(status='setup'),
            fakes.look(mbps=0.0), fakes.look(status='postcopy-active'))]
        self.assertEqual([0.5, 0.052, 0.03, 0.03, 0.5, 0.5, 0.5],
                         [round(wait, 3) for wait in waits])
        self.assertTrue(all(
            later <= earlier for earlier, later
            in itertools.pairwise(waits[:3])))
