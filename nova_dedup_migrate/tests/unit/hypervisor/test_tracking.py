# SPDX-License-Identifier: Apache-2.0
import threading
from unittest import mock

from nova_dedup_migrate.compute import tracking
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.tests import base

UUID = '5b4b8b2e-0000-4000-8000-000000000001'


class TrackerTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.state()
        self.wanted = True
        self.busy = False
        self.tracker = tracking.Tracker(self.resolve, lambda uuid: self.busy)
        self.addCleanup(self.tracker.stop)

    def resolve(self, uuid):
        self.assertEqual(UUID, uuid)
        return self.guest, self.wanted

    def state(self, tracking=False, source=None):
        self.guest.dedup_statistics.return_value = statistics.DedupStatistics(
            tracking=tracking, hints=statistics.HintStatistics(),
            source=source)

    def look(self):
        self.tracker.look(UUID)
        self.eventually(lambda: not self.tracker._again, 'a look')

    def test_on(self):
        self.look()
        self.guest.track_dedup.assert_called_once_with(True)

    def test_on_already(self):
        # switching on again would be harmless, off would forget all
        self.state(tracking=True)
        self.look()
        self.guest.track_dedup.assert_not_called()

    def test_off(self):
        self.state(tracking=True)
        self.wanted = False
        self.look()
        self.guest.track_dedup.assert_called_once_with(False)

    def test_off_already(self):
        self.wanted = False
        self.look()
        self.guest.track_dedup.assert_not_called()

    def check_silent(self, error):
        self.guest.dedup_statistics.side_effect = error
        with mock.patch.object(tracking.LOG, 'warning',
                               autospec=True) as warning:
            self.look()
        warning.assert_not_called()

    def test_stock_qemu(self):
        self.check_silent(errors.DedupNotSupported(name='x'))

    def test_gone(self):
        self.check_silent(errors.GuestNotRunning(name='x'))
        self.check_silent(errors.QmpDisconnected(command='x'))

    def test_still_arriving(self):
        self.check_silent(errors.InvalidMigrationState(
            action='look', status='incoming'))

    def test_not_novas(self):
        self.check_silent(LookupError(UUID))

    def test_failure_is_logged_once(self):
        self.guest.track_dedup.side_effect = errors.QmpTimeout(
            command='x-dedup-track', seconds=60)
        with mock.patch.object(tracking.LOG, 'warning',
                               autospec=True) as warning:
            self.look()
            self.look()
        self.assertEqual(1, warning.call_count)

    def test_failure_is_logged_again_after_success(self):
        failure = errors.QmpTimeout(command='x-dedup-track', seconds=60)
        self.guest.track_dedup.side_effect = [failure, None, failure]
        with mock.patch.object(tracking.LOG, 'warning',
                               autospec=True) as warning:
            for _ in range(3):
                self.look()
        self.assertEqual(2, warning.call_count)

    def test_event_meanwhile(self):
        entered, go_on = threading.Event(), threading.Event()

        def hang():
            entered.set()
            self.assertTrue(go_on.wait(30))
            return mock.DEFAULT

        self.guest.dedup_statistics.side_effect = hang
        self.tracker.look(UUID)
        self.assertTrue(entered.wait(30))
        for _ in range(5):
            self.tracker.look(UUID)
        go_on.set()
        self.eventually(lambda: not self.tracker._again, 'two looks')
        self.assertEqual(2, self.guest.dedup_statistics.call_count)

    def test_left_armed(self):
        self.state(tracking=True,
                   source=statistics.SourceStatistics(state='armed'))
        self.look()
        self.guest.disarm_dedup.assert_called_once_with()

    def test_armed_by_us(self):
        self.busy = True
        self.state(tracking=True,
                   source=statistics.SourceStatistics(state='armed'))
        self.look()
        self.guest.disarm_dedup.assert_not_called()

    def test_running_migration_is_left_alone(self):
        self.state(tracking=True,
                   source=statistics.SourceStatistics(state='active'))
        self.look()
        self.guest.disarm_dedup.assert_not_called()

    def test_stopped(self):
        self.tracker.stop()
        self.look()
        self.guest.track_dedup.assert_not_called()
