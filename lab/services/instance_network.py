# SPDX-License-Identifier: Apache-2.0
"""The network of instances, in Neutron and on the compute hosts.

Each compute host bridges the lab's network with the taps of its instances.
This machine is in that network, so its programs reach an instance by the
address that the instance makes itself of its port's: nothing has to be
configured in the guest, and it stays when the instance migrates.
"""

import functools
import ipaddress
import pathlib

from lab import client
from lab import errors
from lab.cloud import INSTANCES
from lab.steps import Step

#: Of each compute host.
BRIDGE = 'br-instances'
DAEMON = 'taps'
_IF_INET6 = pathlib.Path('/proc/net/if_inet6')
_LINK_LOCAL = ipaddress.ip_network('fe80::/64')


def steps(cloud):
    found = [Step('taps of %s' % name, functools.partial(_start, cloud, name),
                  ('hosts', 'python')) for name in cloud.settings.hosts]
    found.append(Step('network of instances',
                      functools.partial(_create, cloud), ('neutron',)))
    return found


def _start(cloud, name):
    cloud.start(cloud.host(name), DAEMON,
                [cloud.python, '-m', 'lab.hosts.taps', BRIDGE])


def _create(cloud):
    network = client.connect(cloud).network
    made = network.find_network(INSTANCES) or network.create_network(
        name=INSTANCES)
    if not list(network.subnets(network_id=made.id)):
        # Nova insists on a subnet; nobody hands its addresses out
        subnet = cloud.lab.networks[INSTANCES].subnet
        network.create_subnet(
            network_id=made.id, name=INSTANCES, ip_version=4,
            cidr=str(subnet), is_dhcp_enabled=False, gateway_ip=None,
            allocation_pools=[{'start': str(subnet[100]),
                               'end': str(subnet[200])}])


def address(cloud, server):
    """The address by which this machine reaches an instance.

    :returns: text, with the interface, as fe80::1%lab-x-3
    :raises LabError: it has no port there, or the machine has no IPv6
    """
    ports = list(client.connect(cloud).network.ports(device_id=server.id))
    if not ports:
        raise errors.LabError('instance %s has no network' % server.name)
    interface = cloud.lab.networks[INSTANCES].bridge
    if not has_ipv6(_IF_INET6, interface):
        raise errors.LabError(
            'instances are reached by IPv6, which this machine does not '
            'have: see /proc/sys/net/ipv6/conf/%s/disable_ipv6' % interface)
    return '%s%%%s' % (link_local(ports[0].mac_address), interface)


def link_local(mac):
    """The IPv6 address an interface makes itself of its own (RFC 4291)."""
    octets = bytes.fromhex(mac.replace(':', ''))
    return str(_LINK_LOCAL[int.from_bytes(
        bytes([octets[0] ^ 2]) + octets[1:3] + b'\xff\xfe' + octets[3:])])


def has_ipv6(table, interface):
    """Whether an interface has an IPv6 address.

    :param table: Path, as /proc/net/if_inet6
    """
    try:
        lines = table.read_text().splitlines()
    except FileNotFoundError:
        return False
    return any(line.split()[-1:] == [interface] for line in lines)
