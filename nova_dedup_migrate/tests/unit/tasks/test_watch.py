# SPDX-License-Identifier: Apache-2.0
import dataclasses
import itertools
import threading
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.planner import downtime_limit
from nova_dedup_migrate.planner import replan
from nova_dedup_migrate.tasks import watch
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes

GONE = errors.GuestNotRunning(name='x')
TIMEOUT = errors.QmpTimeout(command='query-migrate', seconds=60)


class WatchTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.guest.events = events.EventLog()
        self.watch = watch.Watch(self.record, self.guest, interval=0.001)
        patch = mock.patch.object(replan, 'replan', autospec=True)
        self.replan = patch.start()
        self.replan.return_value = replan.Decision(replan.KEEP)
        self.addCleanup(patch.stop)

    def run_watch(self, *looks, plan=True):
        self.guest.progress.side_effect = looks
        self.watch.run(fakes.some_facts(),
                       fakes.some_plan() if plan else None)

    def test_looks_are_kept(self):
        one, two = fakes.look(1), fakes.look(2)
        self.run_watch(one, two, GONE)
        self.assertEqual([one, two], self.record.rounds)
        self.assertEqual([], self.record.warnings)

    def test_libvirt_has_gone(self):
        self.run_watch(*[errors.HypervisorUnavailable(
            uri='qemu:///system', reason='x')] * 5)
        self.assertEqual(1, len(self.record.warnings))

    def test_single_failures_are_passed_over(self):
        self.run_watch(*[TIMEOUT] * 4, fakes.look(1), *[TIMEOUT] * 4,
                       fakes.look(2), GONE)
        self.assertEqual(2, len(self.record.rounds))
        self.assertEqual([], self.record.warnings)

    def test_planner_is_asked_again(self):
        self.run_watch(fakes.look(1, record_pages=3), GONE)
        self.assertEqual(1, self.replan.call_count)
        self.guest.disarm_dedup.assert_not_called()

    def test_planner_is_not_asked_about_stock(self):
        self.run_watch(fakes.look(1), fakes.look(0, record_pages=1), GONE)
        self.run_watch(fakes.look(1, record_pages=1), GONE, plan=False)
        self.replan.assert_not_called()

    def test_disarmed_in_flight(self):
        self.replan.return_value = replan.Decision(replan.DISARM, 'too slow')
        self.run_watch(*[fakes.look(1, record_pages=3)] * 3, GONE)
        self.guest.disarm_dedup.assert_called_once_with()
        self.assertEqual('too slow', self.record.reason)

    def test_disarming_fails_at_first(self):
        self.replan.return_value = replan.Decision(replan.DISARM, 'too slow')
        self.guest.disarm_dedup.side_effect = [TIMEOUT, None]
        self.run_watch(*[fakes.look(1, record_pages=3)] * 3, GONE)
        self.assertEqual(2, self.guest.disarm_dedup.call_count)

    def test_reason_of_qemu(self):
        self.run_watch(fakes.look(1, reason='no return path'), GONE)
        self.assertEqual('no return path', self.record.reason)

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
        self.assertEqual([], self.record.warnings)

    def test_downtime_limit_of_an_ordinary_migration(self):
        self.guest.progress.side_effect = [fakes.look(1), GONE]
        with self.limits(75):
            self.watch.run(fakes.some_facts(), fakes.some_plan('stock'))
        self.guest.allow_downtime.assert_called_once_with(75)

    def test_downtime_limit_is_novas(self):
        with self.limits():
            self.run_watch(fakes.look(1), GONE)
        with self.limits(75, 75):
            self.run_watch(fakes.look(1), GONE, plan=False)
            self.run_watch(fakes.look(1, status='device'), GONE)
        self.guest.allow_downtime.assert_not_called()

    def test_ends_with_the_operation(self):
        looking = threading.Event()

        def look():
            looking.set()
            return fakes.look(1)

        self.guest.progress.side_effect = look
        with self.watch.during(None, None):
            self.assertTrue(looking.wait(30))
        names = [thread.name for thread in threading.enumerate()]
        self.assertNotIn('dedup-watch-' + self.record.instance_uuid, names)

    def test_pause(self):
        """Also where libvirt has ended QEMU before it could be asked."""
        self.guest.progress.side_effect = GONE
        log = self.guest.events
        # of an earlier attempt
        log.add('STOP', {})
        log.add('MIGRATION', {'status': 'completed'})
        with self.watch.during(None, None):
            self.assertIsNone(self.record.pause)
        self.assertIsNone(self.record.pause)
        with watch.Watch(self.record, self.guest).during(None, None):
            log.add('STOP', {})
            log.add('MIGRATION', {'status': 'completed'})
        self.assertGreaterEqual(self.record.pause, 0.0)

    def test_no_events(self):
        del self.guest.events
        self.guest.progress.side_effect = GONE
        with self.watch.during(None, None):
            pass
        self.assertIsNone(self.record.pause)
        self.assertIn('listening to events', self.record.warnings[0])

    def test_operation_fails(self):
        self.guest.progress.side_effect = GONE

        def operate():
            with self.watch.during(None, None):
                raise KeyError('x')

        self.assertRaises(KeyError, operate)

    def test_no_thread_to_be_had(self):
        done = []
        with mock.patch.object(threading.Thread, 'start', autospec=True,
                               side_effect=RuntimeError('no')):
            with self.watch.during(None, None):
                done.append(True)
        self.assertEqual([True], done)
        self.assertEqual(1, len(self.record.warnings))

    def test_looks_more_often_towards_the_end(self):
        watcher = watch.Watch(self.record, self.guest, interval=0.5)
        far = fakes.look(remaining=1 << 30)
        near = fakes.look(remaining=20 << 20)
        pauses = [watcher._pause(look) for look in (
            far, near, fakes.look(remaining=0),
            fakes.look(status='device'), fakes.look(status='setup'),
            fakes.look(mbps=0.0), fakes.look(status='postcopy-active'))]
        self.assertEqual([0.5, 0.052, 0.03, 0.03, 0.5, 0.5, 0.5],
                         [round(pause, 3) for pause in pauses])
        self.assertTrue(all(
            later <= earlier for earlier, later
            in itertools.pairwise(pauses[:3])))
