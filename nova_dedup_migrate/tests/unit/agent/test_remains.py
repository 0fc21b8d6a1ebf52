# SPDX-License-Identifier: Apache-2.0
"""Undefining what a failed migration has left, and nothing else."""

import unittest
from unittest import mock

try:
    import libvirt
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import incoming
from nova_dedup_migrate.agent import remains
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.tests import base

INSTANCE = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
OTHER = '0b1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
MIGRATION = '1a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
XML = '''<domain>
  <uuid>%s</uuid>
  <metadata>%s</metadata>
  <sysinfo type='smbios'><system>
    <entry name='manufacturer'>OpenStack Foundation</entry>
    <entry name='uuid'>%s</entry>
  </system></sysinfo>
</domain>'''
NOVA = ('<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/'
        'nova/1.1"><nova:name>one</nova:name></nova:instance>')


class RemainsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.migrations = incoming.IncomingMigrations()
        self.host = mock.create_autospec(libvirt_host.LibvirtHost,
                                         instance=True)
        self.domain = mock.create_autospec(libvirt.virDomain, instance=True)
        self.host.domain.return_value = self.domain
        self.domain.isActive.return_value = 0
        self.domain.XMLDesc.return_value = XML % (INSTANCE, NOVA, INSTANCE)
        self.state(libvirt.VIR_DOMAIN_SHUTOFF_CRASHED)
        self.remains = remains.Remains(self.host, self.migrations)

    def state(self, reason, state=libvirt.VIR_DOMAIN_SHUTOFF):
        self.domain.state.return_value = [state, reason]

    def announce(self, migration=MIGRATION):
        self.migrations.announce(INSTANCE, migration)

    def forget(self):
        return self.remains.forget(INSTANCE, MIGRATION)

    def refused(self, match):
        error = self.assertRaises(errors.ForgetRefused, self.forget)
        self.assertRegex(str(error), match)
        self.domain.undefineFlags.assert_not_called()

    def test_announced(self):
        self.announce()
        self.domain.XMLDesc.return_value = '<domain/>'
        self.assertTrue(self.forget())
        self.host.domain.assert_called_once_with(INSTANCE, INSTANCE)
        self.domain.undefineFlags.assert_called_once_with(
            libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
            | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM)

    def test_it_is_over_then(self):
        self.announce()
        self.forget()
        self.assertEqual(0, self.migrations.under_way(
            mock.Mock(spec=[], return_value='none')))

    def test_there_is_none(self):
        self.announce()
        self.host.domain.side_effect = hypervisor_errors.GuestNotRunning(
            name=INSTANCE)
        self.assertFalse(self.forget())

    def test_another_migration_was_announced(self):
        self.announce(OTHER)
        self.refused('last one that was announced is ' + OTHER)

    def test_states(self):
        """Every reason for which a domain may be shut off."""
        allowed = {'UNKNOWN', 'DESTROYED', 'CRASHED', 'FAILED'}
        prefix = 'VIR_DOMAIN_SHUTOFF_'
        seen = set()
        for name in vars(libvirt):
            if not name.startswith(prefix):
                continue
            self.announce()
            self.domain.undefineFlags.reset_mock()
            self.state(getattr(libvirt, name))
            reason = name.removeprefix(prefix)
            seen.add(reason)
            if reason in allowed:
                self.assertTrue(self.forget(), reason)
            else:
                self.refused('it is shutoff')
        self.assertLessEqual(allowed | {'SAVED', 'SHUTDOWN', 'MIGRATED'},
                             seen)

    def test_it_runs(self):
        self.announce()
        for state, reason in (
                (libvirt.VIR_DOMAIN_RUNNING,
                 libvirt.VIR_DOMAIN_RUNNING_POSTCOPY),
                (libvirt.VIR_DOMAIN_PAUSED,
                 libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
                (libvirt.VIR_DOMAIN_CRASHED, 0)):
            self.state(reason, state)
            for active in (1, 0):
                self.domain.isActive.return_value = active
                self.refused('it is (running|paused|crashed)')

    def test_it_began_to_run_just_now(self):
        self.announce()
        self.domain.isActive.return_value = 1
        self.refused('it is shutoff')

    def test_the_agent_was_started_again(self):
        self.assertTrue(self.forget())

    def test_not_announced_and_not_of_nova(self):
        for xml in (XML % (INSTANCE, '', INSTANCE),
                    XML % (INSTANCE, NOVA, OTHER),
                    XML % (OTHER, NOVA, INSTANCE),
                    XML % (INSTANCE, NOVA.replace('openstack', 'other'),
                           INSTANCE),
                    '<domain><uuid>%s</uuid></domain>' % INSTANCE):
            self.domain.XMLDesc.return_value = xml
            self.refused('metadata of the domain does not name')

    def test_not_announced_and_saved(self):
        self.state(libvirt.VIR_DOMAIN_SHUTOFF_SAVED)
        self.refused('it is shutoff')

    def test_libvirt_refuses(self):
        self.announce()
        error = libvirt.libvirtError('test')
        error.err = (libvirt.VIR_ERR_OPERATION_INVALID,
                     libvirt.VIR_FROM_QEMU, 'test', 2, '', '', '', -1, -1)
        self.domain.undefineFlags.side_effect = error
        self.assertRaises(hypervisor_errors.HypervisorRefused, self.forget)
