# SPDX-License-Identifier: Apache-2.0
"""Bridges, and the links of hosts to them."""

import errno
import hashlib
import ipaddress
import json
import pathlib
import subprocess

from pyroute2 import IPRoute
from pyroute2 import NetlinkError

#: For labs only (RFC 2544), so no real network is hidden by it.
RANGE = ipaddress.ip_network('198.18.0.0/15')


class Network:
    """A bridge with a /24 of its own; the machine has its first address.

    :param lab: name of the lab
    :param number: among the lab's networks, from 0
    :param subnet: text, None to choose a free one
    :param taken: networks chosen already that do not exist yet
    """

    def __init__(self, lab, name, number, subnet=None, taken=()):
        self.name = name
        self.bridge = 'lab-%s-%d' % (lab, number)
        self.subnet = ipaddress.ip_network(
            subnet or _free_subnet('%s %s' % (lab, name), [
                one.subnet for one in taken]))

    @property
    def gateway(self):
        """The machine's own address in this network."""
        return str(self.subnet[1])

    def address(self, number):
        """Address of the host of that number, from 0."""
        return str(self.subnet[11 + number])

    def create(self):
        with IPRoute() as ip:
            ip.link('add', ifname=self.bridge, kind='bridge')
            index = ip.link_lookup(ifname=self.bridge)[0]
            ip.addr('add', index=index, address=self.gateway,
                    prefixlen=self.subnet.prefixlen)
            ip.link('set', index=index, state='up')

    def destroy(self):
        """Remove the bridge; idempotent."""
        _delete(self.bridge)


class Link:
    """A host's link to a network: a pair of interfaces.

    :ivar interface: name within the host
    :ivar address: the host's
    """

    def __init__(self, netns, number, network, position):
        self.interface = 'eth%d' % position
        self.address = network.address(number)
        self._outer = '%s-%d' % (network.bridge, number)
        self._netns = netns
        self._network = network

    @property
    def network_address(self):
        """The host's address with the length of the network's, as text."""
        return '%s/%d' % (self.address, self._network.subnet.prefixlen)

    def create(self):
        with IPRoute() as ip, IPRoute(netns=self._netns) as inside:
            ip.link('add', ifname=self._outer, kind='veth',
                    peer={'ifname': self.interface,
                          'net_ns_fd': self._netns})
            outer = ip.link_lookup(ifname=self._outer)[0]
            bridge = ip.link_lookup(ifname=self._network.bridge)[0]
            ip.link('set', index=outer, master=bridge, state='up')
            inner = inside.link_lookup(ifname=self.interface)[0]
            inside.addr('add', index=inner, address=self.address,
                        prefixlen=self._network.subnet.prefixlen)
            for index in (inner, inside.link_lookup(ifname='lo')[0]):
                inside.link('set', index=index, state='up')

    def add_bridge(self, name):
        """Have the host bridge this network with interfaces of its own.

        The host's end becomes a port of a new bridge in the host, to
        which its address goes.

        :param name: of the bridge
        """
        with IPRoute(netns=self._netns) as inside:
            inside.link('add', ifname=name, kind='bridge')
            bridge = inside.link_lookup(ifname=name)[0]
            inner = inside.link_lookup(ifname=self.interface)[0]
            inside.flush_addr(index=inner)
            inside.link('set', index=inner, master=bridge)
            inside.addr('add', index=bridge, address=self.address,
                        prefixlen=self._network.subnet.prefixlen)
            inside.link('set', index=bridge, state='up')

    def limit(self, send=None, receive=None):
        """Limit what the host can send and receive here.

        :param send: bytes per second, None for no limit
        :param receive: the same
        """
        with IPRoute(netns=self._netns) as inside:
            _limit(inside, self.interface, send)
        with IPRoute() as ip:
            _limit(ip, self._outer, receive)

    def carried(self):
        """Return (bytes sent, bytes received) by the host so far."""
        directory = pathlib.Path('/sys/class/net', self._outer, 'statistics')
        # what comes in at the outer end was sent by the host
        return tuple(int((directory / name).read_text())
                     for name in ('rx_bytes', 'tx_bytes'))

    def up(self, up=True):
        """Plug the cable in, or pull it out."""
        with IPRoute() as ip:
            ip.link('set', index=ip.link_lookup(ifname=self._outer)[0],
                    state='up' if up else 'down')

    def destroy(self):
        """Remove both ends; idempotent."""
        _delete(self._outer)


def _limit(ip, interface, rate):
    index = ip.link_lookup(ifname=interface)[0]
    try:
        ip.tc('del', index=index, root=True)
    except NetlinkError as error:
        # the usual case: there was no limit before
        if error.code not in (errno.ENOENT, errno.EINVAL):
            raise
    if rate is not None:
        # The bucket has to last from one timer tick to the next, 4 ms
        # at worst, and to hold a packet of TCP segmentation offload.
        ip.tc('add', 'tbf', index=index, root=True, rate=int(rate),
              burst=max(int(rate) // 200, 1 << 16), latency='50ms')


def _delete(interface):
    with IPRoute() as ip:
        for index in ip.link_lookup(ifname=interface):
            ip.link('del', index=index)


def _free_subnet(text, taken):
    """Choose a /24 by hash; the next one if it is in use or taken."""
    subnets = list(RANGE.subnets(new_prefix=24))
    first = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])
    used = _used() + taken
    for step in range(len(subnets)):
        subnet = subnets[(first + step) % len(subnets)]
        if not any(subnet.overlaps(other) for other in used):
            return subnet
    raise OSError(errno.EADDRNOTAVAIL, 'all of %s is in use' % RANGE)


def _used():
    """Networks this machine has a route to."""
    output = subprocess.run(['ip', '-json', '-4', 'route'], check=True,
                            capture_output=True, text=True).stdout
    return [ipaddress.ip_network(route['dst'], strict=False)
            for route in json.loads(output or '[]')
            if route['dst'] != 'default']
