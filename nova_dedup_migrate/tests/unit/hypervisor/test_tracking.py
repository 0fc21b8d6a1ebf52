# SPDX-License-Identifier: Apache-2.0
import threading
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import tracking
from nova_dedup_migrate.tests import base

UUID = '5b4b8b2e-0000-4000-8000-000000000001'
OTHER = '5b4b8b2e-0000-4000-8000-000000000002'


class TrackerTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.state()
        self.wanted = True
        self.resolved = []
        self.tracker = tracking.Tracker(self.resolve)
        self.addCleanup(self.tracker.stop)

    def resolve(self, uuid, wanted):
        self.resolved.append((uuid, wanted))
        return self.guest, self.wanted if wanted is None else wanted

    def state(self, tracking=False):
        self.guest.dedup_statistics.return_value = statistics.DedupStatistics(
            tracking=tracking, hints=statistics.HintStatistics())

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

    def test_an_event_is_not_what_was_known(self):
        """The first look has what is known; the next one reads anew."""
        entered, go_on = threading.Event(), threading.Event()
        self.addCleanup(go_on.set)

        def hang():
            entered.set()
            go_on.wait(30)
            return mock.DEFAULT

        self.guest.dedup_statistics.side_effect = hang
        self.tracker.look(UUID, False)
        self.assertTrue(entered.wait(30))
        self.tracker.look(UUID)
        go_on.set()
        self.eventually(lambda: not self.tracker._again, 'two looks')
        self.assertEqual([(UUID, False), (UUID, None)], self.resolved)

    def look_at_all(self, wanted):
        self.tracker.look_at_all([UUID, OTHER], wanted)
        self.eventually(lambda: len(self.resolved) >= 2
                        and not self.tracker._again, 'two looks')

    def test_all(self):
        """Of those that run already it is known at once what is wanted."""
        known = mock.Mock(spec=[], return_value={UUID: True})
        self.look_at_all(known)
        known.assert_called_once_with()
        self.assertEqual({(UUID, True), (OTHER, False)},
                         set(self.resolved))
        self.guest.track_dedup.assert_called_once_with(True)

    def test_all_without_the_database(self):
        known = mock.Mock(spec=[], side_effect=OSError('no database'))
        with mock.patch.object(tracking.LOG, 'warning',
                               autospec=True) as warning:
            self.tracker.look_at_all([UUID], known)
            self.eventually(lambda: warning.called, 'a warning')
        self.assertEqual([], self.resolved)

    def test_stopped(self):
        self.tracker.stop()
        self.look()
        self.guest.track_dedup.assert_not_called()
