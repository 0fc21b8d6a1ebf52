# SPDX-License-Identifier: Apache-2.0
import ipaddress
import pathlib
import types
from unittest import mock

from lab import client
from lab import cloud as clouds
from lab import errors
from lab import instances
from lab import settings
from lab.hosts import network
from lab.services import instance_network
from nova_dedup_migrate.tests import base


class TestAddress(base.TestCase):

    def setUp(self):
        super().setUp()
        self.connection = mock.MagicMock()
        self.connection.network.ports.return_value = [
            types.SimpleNamespace(mac_address='fa:16:3e:00:34:56')]
        patch = mock.patch.object(client, 'connect', autospec=True,
                                  return_value=self.connection)
        patch.start()
        self.addCleanup(patch.stop)
        self.cloud = clouds.Cloud('none', self.temporary_dir(),
                                  settings.Settings())
        self.cloud.lab = types.SimpleNamespace(networks={
            clouds.INSTANCES: types.SimpleNamespace(bridge='lab-none-3')})
        self.table = self.temporary_dir() / 'if_inet6'
        self.table.write_text(
            'fe800000000000000000000000000001 0a 40 20 80 lab-none-3\n')
        patch = mock.patch.object(instance_network, '_IF_INET6', self.table)
        patch.start()
        self.addCleanup(patch.stop)
        self.server = types.SimpleNamespace(id='uuid', name='it')

    def address(self):
        return instance_network.address(self.cloud, self.server)

    def test_is_the_one_the_interface_makes_itself(self):
        # RFC 4291, appendix A: the universal bit is inverted
        self.assertEqual('fe80::f816:3eff:fe00:3456%lab-none-3',
                         self.address())
        self.connection.network.ports.assert_called_once_with(
            device_id='uuid')

    def test_an_instance_without_a_port_has_none(self):
        self.connection.network.ports.return_value = []
        self.assertRaisesRegex(errors.LabError, 'it has no network',
                               self.address)

    def test_a_machine_without_ipv6_says_so(self):
        self.table.write_text(
            'fe800000000000000000000000000001 0a 40 20 80 lab-none-33\n')
        self.assertRaisesRegex(errors.LabError, 'IPv6', self.address)
        self.table.unlink()
        self.assertRaisesRegex(errors.LabError, 'disable_ipv6', self.address)


class TestBoot(base.TestCase):

    def setUp(self):
        super().setUp()
        self.connection = mock.MagicMock()
        self.connection.network.find_network.return_value.id = 'net'
        patch = mock.patch.object(client, 'connect', autospec=True,
                                  return_value=self.connection)
        patch.start()
        self.addCleanup(patch.stop)

    def networks(self, **given):
        instances.boot_image(None, 'it', 'both', 'image', 1024, 3, **given)
        return self.connection.compute.create_server.call_args.kwargs[
            'networks']

    def test_no_network_unless_it_is_asked_for(self):
        self.assertEqual('none', self.networks())

    def test_the_network_of_instances(self):
        self.assertEqual([{'uuid': 'net'}], self.networks(attached=True))
        self.connection.network.find_network.assert_called_once_with(
            'instances', ignore_missing=False)


class TestWhole(base.TestCase):

    def test_a_lab_without_the_network_is_not_whole(self):
        cloud = clouds.Cloud('none', self.temporary_dir(),
                             settings.Settings('local'))
        alive = types.SimpleNamespace(is_alive=lambda: True)
        cloud.lab = types.SimpleNamespace(
            hosts=dict.fromkeys(cloud.host_names, alive),
            networks=dict.fromkeys(clouds.NETWORKS))
        self.assertTrue(cloud.is_whole())
        del cloud.lab.networks[clouds.INSTANCES]
        self.assertFalse(cloud.is_whole())


class TestSubnets(base.TestCase):

    def test_networks_of_one_lab_have_different_ones(self):
        # by their names alone, these two would have the same
        with mock.patch.object(network, '_used', autospec=True,
                               return_value=[]):
            one = network.Network('net', 'management', 0)
            alone = network.Network('net', 'storage', 1)
            other = network.Network('net', 'storage', 1, taken=[one])
        self.assertEqual(one.subnet, alone.subnet)
        self.assertFalse(one.subnet.overlaps(other.subnet))

    def test_what_the_machine_uses_is_left_alone(self):
        with mock.patch.object(network, '_used', autospec=True) as used:
            used.return_value = []
            one = network.Network('net', 'management', 0)
            used.return_value = [ipaddress.ip_network(one.subnet)]
            self.assertNotEqual(
                one.subnet, network.Network('net', 'management', 0).subnet)


class TestTable(base.TestCase):

    def test_of_this_machine_can_be_read(self):
        self.assertFalse(instance_network.has_ipv6(
            pathlib.Path('/proc/net/if_inet6'), 'lab-no-such'))
