# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import survey
from nova_dedup_migrate.tests import base

MIB = 1 << 20


class SurveyTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.guest.dirty_rate.return_value = 3 * MIB
        self.guest.memory_in_use.return_value = self.in_use = (
            sampling.InUse(1e8, 1e6, 1000))
        self.guest.disk_bytes_written.side_effect = [5000, 9000]
        self.guest.dedup_statistics.return_value = statistics.DedupStatistics(
            hints=statistics.HintStatistics(pages=7))
        self.guest.sample_hints.return_value = self.disk_hints = (
            statistics.DiskHints('virtio-disk0', 7, 7, 6),)

    def test_all(self):
        found = survey.survey(self.guest, 2)
        self.guest.dirty_rate.assert_called_once_with(2)
        self.guest.memory_in_use.assert_called_once_with()
        # QEMU rounds down
        self.assertEqual(3.5 * MIB, found.dirty_rate)
        self.assertGreater(found.disk_write_rate, 0)
        self.assertIs(self.in_use, found.in_use)
        self.assertEqual(7, found.hints.pages)
        self.assertEqual(self.disk_hints, found.disk_hints)
        self.assertEqual((), found.warnings)

    def test_idle(self):
        self.guest.dirty_rate.return_value = 0
        rate = survey.survey(self.guest).dirty_rate
        self.assertTrue(0 < rate < MIB / 2, rate)

    def test_paused(self):
        found = survey.survey(self.guest, running=False)
        self.assertEqual((0.0, 0.0), (found.dirty_rate,
                                      found.disk_write_rate))
        self.assertIs(self.in_use, found.in_use)
        self.guest.dirty_rate.assert_not_called()
        self.guest.disk_bytes_written.assert_not_called()

    def test_stock(self):
        stock = errors.DedupNotSupported(name='x')
        self.guest.dedup_statistics.side_effect = stock
        self.guest.memory_in_use.side_effect = stock
        found = survey.survey(self.guest)
        self.assertEqual((None, None, None, ()), (
            found.hints, found.disk_hints, found.in_use, found.warnings))
        self.guest.sample_hints.assert_not_called()

    def test_nothing_was_recorded(self):
        self.guest.dedup_statistics.return_value = (
            statistics.DedupStatistics())
        self.assertEqual((), survey.survey(self.guest).disk_hints)
        self.guest.sample_hints.assert_not_called()

    def test_qemu_of_an_older_release(self):
        self.guest.sample_hints.side_effect = errors.DedupNotSupported(
            name='x')
        found = survey.survey(self.guest)
        self.assertEqual((7, None, ()), (found.hints.pages, found.disk_hints,
                                         found.warnings))

    def test_hints_that_cannot_be_sampled(self):
        failure = errors.QmpTimeout(command='x', seconds=1)
        self.guest.sample_hints.side_effect = failure
        found = survey.survey(self.guest)
        self.assertIsNone(found.disk_hints)
        self.assertEqual((('sampling hints', failure),), found.warnings)

    def test_one_that_fails_leaves_the_others(self):
        failure = errors.QmpTimeout(command='x', seconds=1)
        for method, field, what in (
                ('dirty_rate', 'dirty_rate', 'measuring the dirty rate'),
                ('memory_in_use', 'in_use', 'sampling memory'),
                ('disk_bytes_written', 'disk_write_rate',
                 'measuring disk writes')):
            with mock.patch.object(self.guest, method,
                                   side_effect=failure):
                self.guest.disk_bytes_written.side_effect = [0, 1]
                if method == 'disk_bytes_written':
                    self.guest.disk_bytes_written.side_effect = failure
                found = survey.survey(self.guest)
            self.assertEqual(((what, failure),), found.warnings)
            for name in ('dirty_rate', 'in_use', 'disk_write_rate',
                         'hints'):
                self.assertEqual(name == field,
                                 getattr(found, name) is None, name)

    def test_counter_that_went_back(self):
        self.guest.disk_bytes_written.side_effect = [9000, 5000]
        self.assertIsNone(survey.survey(self.guest).disk_write_rate)

    def test_guest_that_is_gone(self):
        for method in ('dirty_rate', 'memory_in_use', 'disk_bytes_written'):
            with mock.patch.object(
                    self.guest, method,
                    side_effect=errors.GuestNotRunning(name='x')):
                self.assertRaises(errors.GuestNotRunning, survey.survey,
                                  self.guest)
