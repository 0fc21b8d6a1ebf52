# SPDX-License-Identifier: Apache-2.0
import unittest
from unittest import mock

try:
    import libvirt
    import libvirt_qemu
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.tests import base

UUID = 'c5c3b5a0-5d2c-4d8e-9d86-1b4a2b8d7f00'


class LibvirtHostTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.register = self.patch(libvirt_qemu, 'qemuMonitorEventRegister',
                                   return_value=1)
        self.deregister = self.patch(
            libvirt_qemu, 'qemuMonitorEventDeregister')
        self.patch(libvirt_host, '_start_event_loop')
        self.connections = []
        self.open = self.patch(libvirt, 'open', side_effect=self.connect)
        self.domain = mock.create_autospec(libvirt.virDomain, instance=True)
        self.domain.UUIDString.return_value = UUID
        self.seen = []

    def patch(self, *args, **kwargs):
        patcher = mock.patch.object(*args, autospec=True, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def connect(self, uri=None):
        connection = mock.create_autospec(libvirt.virConnect, instance=True)
        connection.isAlive.return_value = 1
        connection.getURI.return_value = 'qemu:///system'
        self.connections.append(connection)
        return connection

    def see(self, *event):
        self.seen.append(event)

    def emit(self, name, details):
        callback = self.register.call_args.args[3]
        callback(self.connections[-1], self.domain, name, 1, 2, details,
                 None)

    def test_connects_once_and_again_when_lost(self):
        host = libvirt_host.LibvirtHost('qemu:///system')
        self.assertIs(host.connection, host.connection)
        self.assertEqual(1, len(self.connections))
        host.subscribe(self.see)
        self.assertEqual(1, self.register.call_count)
        self.connections[0].isAlive.return_value = 0
        again = host.connection
        self.assertIs(self.connections[1], again)
        self.assertEqual(2, self.register.call_count)
        self.assertIs(self.connections[1],
                      self.register.call_args.args[0])

    def test_no_libvirtd(self):
        self.open.side_effect = libvirt.libvirtError('no')
        host = libvirt_host.LibvirtHost('qemu:///system')
        error = self.assertRaises(errors.HypervisorUnavailable,
                                  host.subscribe, self.see)
        self.assertEqual('qemu:///system', error.uri)

    def test_events(self):
        host = libvirt_host.LibvirtHost('qemu:///system')
        end = host.subscribe(self.see)
        self.emit('STOP', None)
        self.emit('JOB', '{"id": 1}')
        # hostile ones
        self.emit('BAD', '{')
        self.emit('LIST', '[]')
        self.emit('LONG', ' ' * (libvirt_host.MAX_EVENT + 1))
        self.emit('DEEP', '[' * 100000)
        self.assertEqual(
            [(UUID, 'STOP', {}), (UUID, 'JOB', {'id': 1}),
             (UUID, 'BAD', {}), (UUID, 'LONG', {}), (UUID, 'DEEP', {})],
            self.seen)
        end()
        self.emit('STOP', None)
        self.assertEqual(5, len(self.seen))

    def test_end_of_a_guest(self):
        host = libvirt_host.LibvirtHost('qemu:///system')
        host.subscribe(self.see)
        call = self.connections[0].domainEventRegisterAny.call_args
        callback = call.args[2]
        for event in (libvirt.VIR_DOMAIN_EVENT_STARTED,
                      libvirt.VIR_DOMAIN_EVENT_STOPPED):
            callback(self.connections[0], self.domain, event, 0, None)
        self.assertEqual([(UUID, None, None)], self.seen)

    def test_connection_of_another_program_stays(self):
        connection = self.domain.connect.return_value = self.connect()
        host = libvirt_host.LibvirtHost.of(self.domain)
        host.subscribe(self.see)
        # of the one guest, as that program has subscribed to all
        self.assertEqual(
            (connection, self.domain), self.register.call_args.args[:2])
        self.assertIs(self.domain,
                      connection.domainEventRegisterAny.call_args.args[0])
        host.close()
        self.deregister.assert_called_once_with(connection, 1)
        connection.close.assert_not_called()
        self.open.assert_not_called()

    def test_subscription_that_fails_halfway(self):
        connection = self.domain.connect.return_value = self.connect()
        host = libvirt_host.LibvirtHost.of(self.domain)
        connection.domainEventRegisterAny.side_effect = libvirt.libvirtError(
            'event callback already tracked')
        self.assertRaises(errors.HypervisorRefused, host.subscribe, self.see)
        self.deregister.assert_called_once_with(connection, 1)
        connection.domainEventRegisterAny.side_effect = None
        host.subscribe(self.see)
        self.emit('STOP', None)
        self.assertEqual(1, len(self.seen))

    def test_unknown_guest(self):
        host = libvirt_host.LibvirtHost('qemu:///system')
        self.assertIsNotNone(host.connection)
        error = libvirt.libvirtError('no')
        error.err = (libvirt.VIR_ERR_NO_DOMAIN, 0, 'no', 0, '', '', '', 0, 0)
        self.connections[0].lookupByUUIDString.side_effect = error
        self.assertRaises(errors.GuestNotRunning, host.domain, UUID, 'one')
