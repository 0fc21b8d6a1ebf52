# SPDX-License-Identifier: Apache-2.0
"""Puts the taps of instances into a bridge, until it is ended.

    python -m lab.hosts.taps BRIDGE

Runs in a compute host.  Nova makes a tap for each port; those that there
are and those to come are made ports of the bridge and set up.
"""

import dataclasses
import errno
import socket
import sys

from pyroute2 import IPRoute
from pyroute2 import NetlinkError

#: What Nova's names of taps begin with.
PREFIX = 'tap'
_RTMGRP_LINK = 1
_CHUNK = 1 << 16


@dataclasses.dataclass(frozen=True)
class Interface:
    """:ivar master: index of the bridge it is a port of, None if of none"""

    index: int
    name: str
    master: int | None
    is_up: bool


def lacking(interfaces, bridge):
    """Return those taps that are not up in the bridge.

    :param interfaces: of Interface
    :param bridge: its index
    """
    return [one for one in interfaces if one.name.startswith(PREFIX)
            and (one.master != bridge or not one.is_up)]


def connect(ip, bridge):
    """Put all taps into the bridge.

    :param ip: pyroute2.IPRoute
    :param bridge: its index
    """
    for tap in lacking(_interfaces(ip), bridge):
        try:
            ip.link('set', index=tap.index, master=bridge, state='up')
        except NetlinkError as error:
            # most likely it has gone; if not, the next event is its chance
            print('%s: %s' % (tap.name, error), flush=True)
        else:
            print('%s is in the bridge' % tap.name, flush=True)


def _interfaces(ip):
    return [Interface(link['index'], link.get_attr('IFLA_IFNAME'),
                      link.get_attr('IFLA_MASTER'), bool(link['flags'] & 1))
            for link in ip.get_links()]


def _wait(events):
    """Wait until some interface has changed."""
    flags = 0
    while True:
        try:
            events.recv(_CHUNK, flags)
        except BlockingIOError:
            return
        except OSError as error:
            # more has changed than there was room to tell
            if error.errno != errno.ENOBUFS:
                raise
        flags = socket.MSG_DONTWAIT


def main(arguments=None):
    (name,) = sys.argv[1:] if arguments is None else arguments
    with IPRoute() as ip, socket.socket(
            socket.AF_NETLINK, socket.SOCK_RAW,
            socket.NETLINK_ROUTE) as events:
        # first this, so that nothing that changes is missed
        events.bind((0, _RTMGRP_LINK))
        found = ip.link_lookup(ifname=name)
        if not found:
            sys.exit('there is no bridge %s' % name)
        while True:
            connect(ip, found[0])
            _wait(events)


if __name__ == '__main__':
    main()
