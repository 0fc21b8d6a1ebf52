# SPDX-License-Identifier: Apache-2.0
import dataclasses
import signal
from unittest import mock

from lab import errors
from lab import faults
from lab.faults import programs
from lab.hosts import host
from nova_dedup_migrate.tests import base


class QemuTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.process = mock.Mock(spec=['send'])
        self.scene = faults.Scene(
            None, None, 'server', None,
            mock.create_autospec(host.Host, instance=True))
        self.scene.destination.name = 'compute2'
        patcher = mock.patch.object(programs, 'qemus', autospec=True)
        self.qemus = patcher.start()
        self.addCleanup(patcher.stop)

    def test_it_is_waited_for(self):
        self.qemus.side_effect = [[], [], [self.process]]
        faults.FAULTS['qemu-destination'].inject(self.scene)
        self.qemus.assert_called_with(self.scene.destination, 'server')
        self.process.send.assert_called_once_with(signal.SIGKILL)

    def test_the_guest_had_arrived(self):
        self.qemus.return_value = [self.process]
        for state, survives, note in (
                ('paused', True, ''), ('running', True, faults.HAD_ARRIVED),
                ('running', False, '')):
            self.scene.destination.run.return_value = mock.Mock(
                stdout=state + '\n')
            fault = dataclasses.replace(faults.FAULTS['qemu-destination'],
                                        survives=survives)
            self.assertEqual(note, fault.inject(self.scene))

    def test_the_guest_had_left(self):
        self.qemus.return_value = []
        fault = faults.FAULTS['qemu-source']
        self.assertTrue(fault.has_to_run(fault.inject(self.scene), False))

    def test_which_instance_has_to_run(self):
        source = faults.FAULTS['qemu-source']
        self.assertFalse(source.has_to_run('', False))
        # it was killed after it had sent everything
        self.assertTrue(source.has_to_run('', True))
        other = faults.FAULTS['qemu-destination']
        self.assertTrue(other.has_to_run('', False))
        self.assertFalse(other.has_to_run(faults.HAD_ARRIVED, True))

    def test_it_does_not_come(self):
        self.qemus.return_value = []
        with mock.patch.object(programs, '_APPEARS_S', -1):
            self.assertRaises(errors.LabError,
                              faults.FAULTS['qemu-destination'].inject,
                              self.scene)
