# SPDX-License-Identifier: Apache-2.0
"""Answers to surveys, and what happens in the background."""

import threading
import time
import unittest
from unittest import mock

try:
    from nova_dedup_migrate.agent import guest_samples
    from nova_dedup_migrate.agent import surveys
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import sampling
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import survey
from nova_dedup_migrate.planner import working_set
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.tests import base

UUID = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
FOUND = survey.Survey(
    dirty_rate=5.0, disk_write_rate=6.0,
    in_use=sampling.InUse(bytes=7e6, error=8.0, pages=9),
    hints=statistics.HintStatistics(pages=30, map_pages=20),
    disk_hints=(statistics.DiskHints('/machine/a', 25, 10, 9),
                statistics.DiskHints('/machine/b', 5, 2, 0)))


class SurveysTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.samples = mock.create_autospec(guest_samples.GuestSamples,
                                            instance=True)
        self.links = mock.create_autospec(link_rates.LinkRates,
                                          instance=True)
        self.links.rate.return_value = link_rates.LinkRate(1e7, 3.0)
        self.samples.windows.return_value = ()
        self.samples.recording.return_value = []
        self.found(FOUND)

    def found(self, found, age=0.0):
        self.samples.sample.return_value = (guest_samples.Sample(
            time.monotonic() - age, found), '')

    def surveys(self, interval=0.0, enabled=True):
        made = surveys.Surveys(self.samples, self.links, interval, enabled)
        self.addCleanup(made.stop)
        return made

    def reply(self, destination='compute2', budget=8.0, **kwargs):
        return self.surveys(**kwargs).reply(
            {}, survey_objects.DedupSurveyRequest(
                instance_uuid=UUID, destination=destination, max_age=60.0,
                budget=budget))

    def test_figures(self):
        self.found(FOUND, age=50.0)
        reply = self.reply()
        self.assertEqual((True, 5.0, 6.0, 7e6, 8.0, 30, 20), (
            reply.known, reply.dirty_rate, reply.disk_write_rate,
            reply.in_use, reply.in_use_error, reply.hint_pages,
            reply.map_pages))
        self.assertTrue(50.0 <= reply.age < 60.0)
        self.assertEqual(
            [('/machine/a', 25, 10, 9), ('/machine/b', 5, 2, 0)],
            [(each.device, each.pages, each.sampled, each.valid)
             for each in reply.hints])
        self.assertEqual((1e7, 3.0), (reply.link_rate, reply.link_age))
        self.samples.sample.assert_called_once_with(UUID, 60.0, 8.0)
        self.links.rate.assert_called_once_with({}, 'compute2', 8.0)

    def test_windows(self):
        self.samples.windows.return_value = (
            working_set.Window(1.0, 5.0, 6.0, 7.0),
            working_set.Window(10.0, 15.0, 16.0, 17.0))
        self.assertEqual(
            [(1.0, 5.0, 6.0, 7.0), (10.0, 15.0, 16.0, 17.0)],
            [(one.seconds, one.bytes, one.most, one.age)
             for one in self.reply().windows])
        self.samples.windows.assert_called_once_with(UUID)

    def test_figures_that_were_not_to_be_had(self):
        self.found(survey.Survey())
        reply = self.reply()
        self.assertTrue(reply.known)
        self.assertEqual((None, None, None, None, [], 0), (
            reply.dirty_rate, reply.disk_write_rate, reply.in_use,
            reply.in_use_error, reply.hints, reply.hint_pages))

    def test_hints_of_a_hostile_qemu(self):
        self.found(survey.Survey(disk_hints=(
            statistics.DiskHints('a\n', 1), statistics.DiskHints('x' * 600, 1),
            statistics.DiskHints('good', 2)) + tuple(
                statistics.DiskHints('many', 1) for _ in range(500))))
        reply = self.reply()
        self.assertEqual('good', reply.hints[0].device)
        self.assertLessEqual(len(reply.hints), objects.MAX_DISKS)

    def test_no_sample(self):
        """The link is known all the same."""
        self.samples.sample.return_value = (None, 'it\nis gone')
        reply = self.reply()
        self.assertEqual((False, 'it?is gone', 1e7),
                         (reply.known, reply.reason, reply.link_rate))

    def test_no_destination(self):
        reply = self.reply(destination=None)
        self.assertIsNone(reply.link_rate)
        self.links.rate.assert_not_called()

    def test_link_is_not_known(self):
        self.links.rate.return_value = link_rates.LinkRate(None, None, 'why')
        reply = self.reply()
        self.assertEqual((None, None, 'why'), (
            reply.link_rate, reply.link_age, reply.link_reason))

    def test_link_hangs(self):
        done = threading.Event()
        self.addCleanup(done.set)
        self.links.rate.side_effect = lambda *args: done.wait(30)
        self.links.last.return_value = link_rates.LinkRate(4.0, 99.0, 'late')
        self.assertEqual(4.0, self.reply(budget=0.01).link_rate)

    def test_guest_and_link_at_the_same_time(self):
        both = threading.Barrier(2)
        sample = self.samples.sample.return_value

        def wait(*args):
            both.wait(30)
            return sample

        self.samples.sample.side_effect = wait
        self.links.rate.side_effect = lambda *args: both.wait(
            30) and link_rates.LinkRate(1.0, 0.0) or link_rates.LinkRate(
                1.0, 0.0)
        self.assertEqual(1.0, self.reply(budget=60.0).link_rate)

    def test_host_that_does_not_take_part(self):
        reply = self.reply(enabled=False)
        self.assertFalse(reply.known)
        self.assertIn('enabled is off', reply.reason)
        self.samples.sample.assert_not_called()
        self.links.rate.assert_not_called()

    def test_background(self):
        """Whatever fails, it goes on until it is stopped."""
        swept = []

        def sweep(is_over):
            swept.append(is_over())
            if len(swept) == 1:
                raise errors.HypervisorUnavailable(uri='x', reason='y')
            if len(swept) == 2:
                raise ZeroDivisionError

        self.samples.sweep.side_effect = sweep
        made = self.surveys(interval=0.001)
        made.start()
        self.eventually(lambda: self.links.refresh.call_count > 1,
                        'it goes on')
        made.stop()
        for thread in made._threads:
            thread.join(30)
            self.assertFalse(thread.is_alive())
        self.assertEqual({False}, set(swept[:3]))

    def test_no_sample_waits_for_a_working_set(self):
        self.samples.recording.return_value = [UUID]
        begun = threading.Event()
        self.samples.measure.side_effect = lambda uuid, wait: (
            begun.set(), wait(600))
        made = self.surveys(interval=0.001)
        made.start()
        self.assertTrue(begun.wait(30))
        before = self.samples.sweep.call_count
        self.eventually(lambda: self.samples.sweep.call_count > before + 2,
                        'sweeps go on')
        self.assertEqual(1, self.samples.measure.call_count)

    def test_no_background(self):
        for kwargs in ({'interval': 0.0},
                       {'interval': 0.001, 'enabled': False}):
            made = self.surveys(**kwargs)
            made.start()
            self.assertFalse(any(thread.is_alive()
                                 for thread in made._threads))
