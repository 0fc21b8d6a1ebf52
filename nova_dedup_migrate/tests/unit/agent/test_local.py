# SPDX-License-Identifier: Apache-2.0
"""What is asked of libvirt."""

import importlib.util
import threading
from unittest import mock

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base

if importlib.util.find_spec('libvirt') is not None:
    import libvirt

    from nova_dedup_migrate.agent import local
else:
    local = None


def libvirt_error(code):
    error = libvirt.libvirtError('test')
    error.err = (code, libvirt.VIR_FROM_QEMU, 'test', 2, '', '', '', -1, -1)
    return error


CAPABILITIES = '''<capabilities>
  <host><cpu><arch>x86_64</arch></cpu></host>
  <guest><os_type>hvm</os_type>
    <arch name='i686'><emulator>/usr/bin/qemu-i386</emulator></arch></guest>
  <guest><os_type>hvm</os_type>
    <arch name='x86_64'><emulator>/usr/bin/qemu-x86</emulator>
      <domain type='qemu'/>
      <domain type='kvm'><emulator>/usr/bin/qemu-kvm</emulator></domain>
    </arch></guest>
  <guest><os_type>xen</os_type>
    <arch name='x86_64'><emulator>/usr/bin/xen</emulator></arch></guest>
</capabilities>'''


class LocalTest(base.TestCase):
    def setUp(self):
        super().setUp()
        if local is None:
            self.skipTest('libvirt-python is not installed')
        patcher = mock.patch.object(local.libvirt_host, 'LibvirtHost',
                                    autospec=True)
        self.host = patcher.start().return_value
        self.addCleanup(patcher.stop)
        self.connection = mock.create_autospec(libvirt.virConnect,
                                               instance=True)
        self.host.connection = self.connection
        self.host.uri = 'qemu:///system'
        self.local = local.LocalLibvirt('qemu:///system', mock.sentinel.event)

    def test_emulators(self):
        self.connection.getCapabilities.return_value = CAPABILITIES
        self.assertEqual(['/usr/bin/qemu-x86', '/usr/bin/qemu-kvm',
                          '/usr/bin/qemu-i386'], self.local.emulators())

    def test_libvirt_is_gone(self):
        self.connection.getCapabilities.side_effect = libvirt.libvirtError(
            'gone')
        self.assertRaises(errors.HypervisorUnavailable,
                          self.local.emulators)

    def test_secret(self):
        secret = self.connection.secretLookupByUUIDString.return_value
        secret.value.return_value = b'\x01\x02'
        self.assertEqual(b'\x01\x02', self.local.ceph_key('uuid'))
        self.connection.secretLookupByUUIDString.assert_called_once_with(
            'uuid')

    def test_guest_state(self):
        domain = self.host.domain.return_value = mock.create_autospec(
            libvirt.virDomain, instance=True)
        for active, state, job, expected in (
                (False, (libvirt.VIR_DOMAIN_SHUTOFF, 1), None, 'none'),
                (True, (libvirt.VIR_DOMAIN_RUNNING,
                        libvirt.VIR_DOMAIN_RUNNING_MIGRATED), None, 'here'),
                (True, (libvirt.VIR_DOMAIN_PAUSED,
                        libvirt.VIR_DOMAIN_PAUSED_USER), None, 'here'),
                (True, (libvirt.VIR_DOMAIN_PAUSED,
                        libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
                 libvirt_error(libvirt.VIR_ERR_OPERATION_UNSUPPORTED),
                 'arriving')):
            domain.isActive.return_value = active
            domain.state.return_value = list(state)
            domain.jobStats.side_effect = job
            domain.ID.return_value = 1 if active else -1
            self.assertEqual(expected, self.local.guest_state('uuid'))
        self.host.domain.assert_called_with('uuid', 'uuid')

    def test_guest_state_of_a_guest_that_is_not_known(self):
        self.host.domain.side_effect = errors.GuestNotRunning(name='uuid')
        self.assertEqual('none', self.local.guest_state('uuid'))

    def test_guest_state_without_libvirt(self):
        self.host.domain.side_effect = errors.HypervisorUnavailable(
            uri='x', reason='y')
        self.assertRaises(errors.HypervisorUnavailable,
                          self.local.guest_state, 'uuid')

    def test_guest(self):
        domain = self.host.domain.return_value = mock.create_autospec(
            libvirt.virDomain, instance=True)
        domain.isActive.return_value = 1
        domain.state.return_value = [libvirt.VIR_DOMAIN_PAUSED,
                                     libvirt.VIR_DOMAIN_PAUSED_POSTCOPY]
        for number, expected in ((7, 7), (-1, None)):
            domain.ID.return_value = number
            self.assertEqual(
                local.Presence('none', expected, 'paused (postcopy)'),
                self.local.guest('uuid'))

    def jobs(self, *jobs):
        domains = []
        for job in jobs:
            domain = mock.create_autospec(libvirt.virDomain, instance=True)
            domain.jobStats.side_effect = [job]
            domains.append(domain)
        self.connection.listAllDomains.return_value = domains
        return self.local.is_busy()

    def test_is_busy(self):
        none = {'type': libvirt.VIR_DOMAIN_JOB_NONE}
        self.assertFalse(self.jobs())
        self.assertFalse(self.jobs(
            none, {}, libvirt_error(libvirt.VIR_ERR_NO_DOMAIN)))
        self.assertTrue(self.jobs(
            none, {'type': libvirt.VIR_DOMAIN_JOB_UNBOUNDED}))
        # of a destination libvirt has no statistics
        self.assertTrue(self.jobs(
            none, libvirt_error(libvirt.VIR_ERR_OPERATION_UNSUPPORTED)))

    def test_is_busy_without_libvirt(self):
        self.connection.listAllDomains.side_effect = libvirt_error(
            libvirt.VIR_ERR_NO_CONNECT)
        self.assertTrue(self.local.is_busy())

    def test_libvirt_hangs(self):
        done = threading.Event()
        self.addCleanup(done.set)
        self.connection.listAllDomains.side_effect = (
            lambda flags: done.wait(30))
        self.host.domain.side_effect = lambda *args: done.wait(30)
        with mock.patch.object(local, '_AT_ONCE', 0.01):
            self.assertTrue(self.local.is_busy())
            self.assertRaises(errors.HypervisorUnavailable,
                              self.local.guest_state_at_once, 'uuid')

    def test_subscribes_when_libvirt_is_there(self):
        self.host.subscribe.side_effect = [
            errors.HypervisorUnavailable(uri='x', reason='y'), None]
        with mock.patch.object(local, 'INTERVAL', 0.001):
            self.local.start()
            self.eventually(lambda: self.host.subscribe.call_count == 2,
                            'it subscribes')
            self.local.stop()
        self.host.subscribe.assert_called_with(mock.sentinel.event)
        self.host.close.assert_called_once_with()

    def test_connects_again(self):
        looks = []
        back = mock.Mock(spec=[])
        self.local.when_back(back)

        def connection(host):
            looks.append(host)
            if len(looks) == 2:
                raise errors.HypervisorUnavailable(uri='x', reason='y')
            return self.connection

        with mock.patch.object(type(self.host), 'connection',
                               property(connection), create=True), \
                mock.patch.object(local, 'INTERVAL', 0.001):
            self.local.start()
            self.eventually(lambda: len(looks) > 3, 'it goes on')
            self.local.stop()
        back.assert_called_once_with()
        self.host.subscribe.assert_called_once_with(mock.sentinel.event)
