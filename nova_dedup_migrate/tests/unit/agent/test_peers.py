# SPDX-License-Identifier: Apache-2.0
"""Offers of a hostile destination."""

import socket

import testtools

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import peers
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.tests import base

PORTS = range(49152, 49216)


def offer(address='192.0.2.7', port=49152):
    return objects.DedupLinkOffer(address=address, port=port, token='0' * 64,
                                  seconds=1.0, bytes=1)


class PeersTest(base.TestCase):
    def refused(self, match, made, networks=()):
        with testtools.ExpectedException(errors.OfferRefused, match):
            peers.Peers(PORTS, networks).resolve('compute2', made)

    def test_accepted(self):
        for address in ('192.0.2.7', '10.1.2.3', '2001:db8::7',
                        '::ffff:192.0.2.7'):
            family, found = peers.Peers(PORTS).resolve('compute2',
                                                       offer(address))
            self.assertEqual((address, 49152), found[:2])
            self.assertIn(family, (socket.AF_INET, socket.AF_INET6))

    def test_special_addresses(self):
        for address in ('127.0.0.1', '127.9.9.9', 'localhost', '::1',
                        '0.0.0.0', '::', '224.0.0.1', 'ff02::1',
                        '169.254.169.254', 'fe80::1', '255.255.255.255',
                        '240.0.0.1', '::ffff:127.0.0.1',
                        '::ffff:169.254.169.254'):
            self.refused('.*compute2.*Set probe_address', offer(address))

    def test_ports(self):
        for port in (0, 22, 3306, 49151, 49216, 65535):
            self.refused('.*port %d.*probe_port_min' % port,
                         offer(port=port))

    def test_no_address(self):
        for address in ('no.such.host.invalid', 'x' * 255):
            self.refused('.*it is no address', offer(address))

    def test_networks(self):
        networks = ['192.0.2.0/24', '2001:db8::/32']
        for address in ('192.0.2.9', '2001:db8::5'):
            peers.Peers(PORTS, networks).resolve('c', offer(address))
        self.refused('.*in none of .* probe_networks', offer('192.0.3.1'),
                     networks)

    def test_networks_may_be_special(self):
        """An operator who names one means it."""
        peers.Peers(PORTS, ['127.0.0.0/8']).resolve('c', offer('127.0.0.1'))

    def test_network_that_is_none(self):
        self.assertRaises(ValueError, peers.Peers, PORTS, ['x/99'])
