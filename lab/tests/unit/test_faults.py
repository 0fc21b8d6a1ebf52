# SPDX-License-Identifier: Apache-2.0
import dataclasses
import signal
from unittest import mock

from lab import errors
from lab import faults
from lab import settings
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


class DiskWriterTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.host = mock.create_autospec(host.Host, instance=True)
        self.host.name = 'compute2'
        self.compute = mock.Mock(spec=['get_server'])
        self.scene = faults.Scene(None, self.compute, 'server', None,
                                  self.host)
        self.processes = [mock.Mock(spec=['pid', 'send'], pid=pid)
                          for pid in (1, 2)]
        patcher = mock.patch.object(
            programs, 'command_line', autospec=True,
            side_effect=lambda pid: [{1: b'/q/qemu-system-x86_64',
                                      2: b'/q/qemu-storage-daemon'}[pid]])
        patcher.start()
        self.addCleanup(patcher.stop)
        self.fault = faults.FAULTS['disk-writer']

    def test_it_is_waited_for(self):
        """And killed, and nothing else."""
        self.host.processes.side_effect = [[], self.processes[:1],
                                           self.processes]
        self.assertEqual('', self.fault.inject(self.scene))
        self.processes[0].send.assert_not_called()
        self.processes[1].send.assert_called_once_with(signal.SIGKILL)
        self.assertTrue(self.fault.has_to_run('', False))

    def test_no_disk_is_written(self):
        self.host.processes.return_value = self.processes[:1]
        self.compute.get_server.return_value.task_state = None
        self.assertEqual('too late', self.fault.inject(self.scene))

    def test_it_does_not_come(self):
        self.host.processes.return_value = self.processes[:1]
        with mock.patch.object(programs, '_APPEARS_S', -1):
            self.assertRaises(errors.LabError, self.fault.inject,
                              self.scene)

    def test_it_fits_where_disks_are_built(self):
        for values, wanted in (
                ({}, False), ({'profile': 'local'}, False),
                ({'profile': 'local', 'disks': 'always'}, True)):
            self.assertEqual(wanted, self.fault.fits(
                settings.Settings(**values)))
