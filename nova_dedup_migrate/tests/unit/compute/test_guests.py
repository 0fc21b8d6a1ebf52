# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import libvirt
from nova import exception
from nova import objects
from nova.virt.libvirt import guest as libvirt_guest
from nova.virt.libvirt import host as libvirt_host

from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base

UUID = '22222222-0000-4000-8000-000000000002'


class OpenGuestTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.host = mock.create_autospec(libvirt_host.Host, instance=True)
        self.instance = objects.Instance(uuid=UUID)
        self.domains = [self.domain(), self.domain()]
        self.host.get_guest.side_effect = [
            libvirt_guest.Guest(domain) for domain in self.domains]

    @staticmethod
    def domain():
        domain = mock.create_autospec(libvirt.virDomain, instance=True)
        domain.UUIDString.return_value = UUID
        domain.name.return_value = 'instance-1'
        connection = domain.connect.return_value = mock.create_autospec(
            libvirt.virConnect, instance=True)
        connection.isAlive.return_value = 1
        return domain

    def open(self):
        return guests.open_guest(self.host, self.instance)

    def lose(self):
        guest = self.open()
        self.domains[0].connect().isAlive.return_value = 0
        return guest

    def test_the_domain_nova_found(self):
        guest = self.open()
        self.assertEqual(UUID, guest.uuid)
        self.assertIs(self.domains[0], guest.domain())
        self.host.get_guest.assert_called_once_with(self.instance)

    def test_libvirtd_was_started_again(self):
        guest = self.lose()
        self.assertIs(self.domains[1], guest.domain())
        self.assertIs(self.domains[1], guest.domain())
        self.assertEqual(2, self.host.get_guest.call_count)

    def test_libvirtd_is_away(self):
        guest = self.lose()
        self.host.get_guest.side_effect = exception.HypervisorUnavailable()
        self.assertRaises(errors.HypervisorUnavailable, guest.domain)

    def test_the_guest_is_gone(self):
        guest = self.lose()
        self.host.get_guest.side_effect = exception.InstanceNotFound(
            instance_id=UUID)
        self.assertRaises(errors.GuestNotRunning, guest.domain)

    def test_there_is_none(self):
        self.host.get_guest.side_effect = exception.InstanceNotFound(
            instance_id=UUID)
        self.assertRaises(LookupError, self.open)
