# SPDX-License-Identifier: Apache-2.0
"""A host far away: what it sends on a network arrives later.

    python -m lab.hosts.far INTERFACE WIRE SECONDS

netem would do it, but many kernels lack it.  So the host's interface is a tap
here, and this program, which runs in the host, holds each frame before it
puts it on the wire, the host's end of its link:

    host -> tap (limit of the rate) -> this program -> wire -> bridge

What comes from the wire goes to the tap at once.  Frames keep their
virtio_net_hdr, so TCP's large segments stay whole.
"""

import collections
import fcntl
import os
import select
import socket
import struct
import sys
import time

#: What the name of an interface gets when a tap takes its place.
WIRE = 'wire-'
_TUNSETIFF = 0x400454ca
_TUNSETOFFLOAD = 0x400454d0
_IFF_TAP, _IFF_NO_PI, _IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
#: Checksums, TCP segmentation of both IPs, with ECN.
_OFFLOADS = 0x01 | 0x02 | 0x04 | 0x08
_ETH_P_ALL = 3
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
#: Bytes: what the wire does not take at once would be lost.
_BUFFER = 16 << 20
_LARGEST = (1 << 16) + 64
#: Bytes; the rest waits in the tap, which drops what it has no room for.
_HELD = 256 << 20
_AT_ONCE = 64


def lengthen(host, link):
    """Put a tap in the place of a host's interface; main() serves it.

    :param host: lab.hosts.host.Host
    :param link: one of its lab.hosts.network.Link
    """
    name, wire = link.interface, WIRE + link.interface
    for words in (
            ('link', 'set', name, 'down'),
            ('address', 'flush', 'dev', name),
            # The host's own IP must not answer here, too.
            ('link', 'set', name, 'name', wire, 'arp', 'off'),
            ('link', 'set', wire, 'addrgenmode', 'none', 'promisc', 'on',
             'up'),
            ('tuntap', 'add', name, 'mode', 'tap', 'vnet_hdr'),
            ('address', 'add', link.network_address, 'dev', name),
            ('link', 'set', name, 'up')):
        host.run(['ip', *words])


def command(python, link, seconds):
    """Return the command that serves a link, for Host.start."""
    return [python, '-m', 'lab.hosts.far', link.interface,
            WIRE + link.interface, str(seconds)]


def is_served(host, link):
    """Whether main() serves a link: its tap has a carrier."""
    return host.run(
        ['cat', '/sys/class/net/%s/carrier' % link.interface],
        check=False).stdout.strip() == '1'


class Held:
    """Frames that are under way.

    :param seconds: for which each one is
    """

    def __init__(self, seconds):
        self._seconds = seconds
        self._frames = collections.deque()
        self._bytes = 0

    @property
    def full(self):
        return self._bytes >= _HELD

    def add(self, frame, now):
        self._frames.append((now + self._seconds, frame))
        self._bytes += len(frame)

    def wait(self, now):
        """Return seconds until one is due, None if there is none."""
        return max(0.0, self._frames[0][0] - now) if self._frames else None

    def due(self, now):
        """Yield the frames that have arrived."""
        while self._frames and self._frames[0][0] <= now:
            frame = self._frames.popleft()[1]
            self._bytes -= len(frame)
            yield frame


def _open_tap(name):
    tap = os.open('/dev/net/tun', os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, _TUNSETIFF, struct.pack(
        '16sH22x', name.encode(), _IFF_TAP | _IFF_NO_PI | _IFF_VNET_HDR))
    fcntl.ioctl(tap, _TUNSETOFFLOAD, _OFFLOADS)
    return tap


def _open_wire(name):
    # Without a protocol nothing arrives before it is bound.
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    wire.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
    wire.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    for option in _SO_SNDBUFFORCE, _SO_RCVBUFFORCE:
        wire.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
    wire.setblocking(False)
    wire.bind((name, _ETH_P_ALL))
    return wire


def _pass(read, write):
    """Hand on what there is; a frame that cannot go is lost, as on wires."""
    for _ in range(_AT_ONCE):
        try:
            frame = read(_LARGEST)
        except BlockingIOError:
            return
        try:
            write(frame)
        except OSError as error:
            print('a frame is lost: %s' % error, flush=True)


def serve(tap, wire, seconds):
    """Hand frames on, for ever."""
    held = Held(seconds)
    while True:
        readers = [wire] if held.full else [wire, tap]
        ready, _, _ = select.select(readers, (), (),
                                    held.wait(time.monotonic()))
        if tap in ready:
            _pass(lambda most: os.read(tap, most),
                  lambda frame: held.add(frame, time.monotonic()))
        if wire in ready:
            _pass(wire.recv, lambda frame: os.write(tap, frame))
        for frame in held.due(time.monotonic()):
            try:
                wire.send(frame)
            except OSError as error:
                print('a frame is lost: %s' % error, flush=True)


def main(arguments=None):
    name, wire, seconds = sys.argv[1:] if arguments is None else arguments
    sockets = _open_tap(name), _open_wire(wire)
    print('frames take %s s' % seconds, flush=True)
    serve(*sockets, float(seconds))


if __name__ == '__main__':
    main()
