# SPDX-License-Identifier: Apache-2.0
"""What this host connects to because another host's agent says so.

The offer of a link probe has an address and a port.  An agent that is
mistaken, or somebody who can write to the message bus, could point it at
any service this host can reach.  So it is resolved once, checked, and
the very address that was checked is connected to.
"""

from __future__ import annotations

from collections.abc import Container
from collections.abc import Sequence
import ipaddress
import socket

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.rpc import objects

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Peers:
    """The addresses that other hosts may offer.

    :param ports: that measurements use
    :param networks: CIDRs of the migration networks; empty for any
        address that is none of a special kind
    """

    def __init__(self, ports: Container[int],
                 networks: Sequence[str] = ()) -> None:
        self._ports = ports
        self._networks: list[_Network] = [
            ipaddress.ip_network(network, strict=False)
            for network in networks]

    def resolve(self, host: str, offer: objects.DedupLinkOffer
                ) -> tuple[int, tuple]:
        """Return the address family and the address to connect to.

        :param host: whose agent made the offer
        :raises OfferRefused:
        """
        try:
            family, _, _, _, address = socket.getaddrinfo(
                offer.address, offer.port, type=socket.SOCK_STREAM)[0]
            numeric = ipaddress.ip_address(str(address[0]).partition('%')[0])
        except (OSError, ValueError) as error:
            raise _refused(host, offer,
                           'it is no address: %s' % error) from error
        problem = self._problem(numeric, offer.port)
        if problem:
            raise _refused(host, offer, problem)
        return family, address

    def _problem(self, address: _Address, port: int) -> str:
        """Return why an address is not used, '' if it is."""
        if port not in self._ports:
            return ('the port is not between probe_port_min and '
                    'probe_port_max of this host')
        if isinstance(address, ipaddress.IPv6Address):
            address = address.ipv4_mapped or address
        if self._networks:
            if any(address in network for network in self._networks):
                return ''
            return 'the address is in none of [dedup_migrate] probe_networks'
        for kind in ('loopback', 'multicast', 'unspecified', 'link_local',
                     'reserved'):
            if getattr(address, 'is_' + kind):
                return ('it is a %s address. Set probe_address or [libvirt] '
                        'live_migration_inbound_addr of the destination'
                        % kind.replace('_', '-'))
        return ''


def _refused(host: str, offer: objects.DedupLinkOffer, reason: str
             ) -> errors.OfferRefused:
    return errors.OfferRefused(host=host, address=offer.address,
                               port=offer.port, reason=reason)
