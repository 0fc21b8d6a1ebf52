# SPDX-License-Identifier: Apache-2.0
import threading
import unittest
from unittest import mock

try:
    from nova_dedup_migrate.agent import guest_samples
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

from nova_dedup_migrate import deadline
from nova_dedup_migrate.agent import working_sets
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base


class WorkingSetsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.samples = mock.create_autospec(guest_samples.GuestSamples,
                                            instance=True)
        self.stopping = threading.Event()

    def measured(self, *guests):
        self.samples.recording.return_value = list(guests)
        working_sets.measure(self.samples, self.stopping)
        return sorted(call.args[0]
                      for call in self.samples.measure.call_args_list)

    def test_all_that_record(self):
        self.assertEqual(['a', 'b'], self.measured('a', 'b'))

    def test_none(self):
        self.assertEqual([], self.measured())

    def test_one_fails(self):
        for error in (errors.DedupNotSupported(name='a'),
                      deadline.Late(what='QEMU', seconds=10.0)):
            self.samples.measure.reset_mock()
            self.samples.measure.side_effect = [error, None]
            self.assertEqual(['a', 'b'], self.measured('a', 'b'))

    def test_some_at_a_time(self):
        """A minute each, so not one after the other."""
        both = threading.Barrier(2)
        self.samples.measure.side_effect = lambda *args: both.wait(30)
        self.measured('a', 'b')

    def test_stop_ends_them_at_once(self):
        self.samples.measure.side_effect = lambda uuid, wait: (
            self.stopping.set(), wait(600))
        self.assertEqual(['a'], self.measured('a'))
