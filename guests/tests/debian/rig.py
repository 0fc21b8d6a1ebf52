# SPDX-License-Identifier: Apache-2.0
"""The Debian guest in a QEMU of our own."""

import base64
import time

from guests import line
from guests.debian import client
from guests.debian import image
from guests.lister import listing
from guests.lister import rig
from nova_dedup_migrate.hypervisor import agent
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.pagecache import port
from nova_dedup_migrate.pagecache import transport
from testkit import direct
from testkit import spec

WORKLOAD = 'workload'
#: Of a file that the agent reads at a time.
_CHUNK = 1 << 20


class Guest(rig.Guest):
    """What rig.Guest is, without its shell: the truth about listings.

    :param binary: QEMU
    :param path: of the guest's own copy of the image
    """

    def __init__(self, binary, path):
        self.memory_mib, self.memory_at = image.MEMORY_MIB, 0
        self.disks = (spec.Disk(path=path, cache='writeback'),)
        self.guest = direct.DirectGuest(spec.GuestSpec(
            binary=binary, memory_mib=self.memory_mib, disks=self.disks,
            channels=tuple(
                spec.Channel(name, 'virtio-serial', 'socket')
                for name in (WORKLOAD, port.PORT, agent.PORT))))
        self.talk = None

    def start(self, timeout=900.0):
        """Boot it, return the seconds until both servers answer."""
        begun = time.monotonic()
        self.guest.start()
        self.talk = client.DebianGuest(line.SocketLine(
            self.guest.channel(WORKLOAD)))
        self.talk.wait_ready(timeout)
        return time.monotonic() - begun

    def destroy(self):
        if self.talk is not None:
            self.talk.close()
        self.guest.destroy()

    def move(self, there):
        """Give orders to the guest's new place from now on."""
        self.talk.attach(line.SocketLine(there.channel(WORKLOAD)))
        self.guest.destroy()
        self.guest = there

    def list(self, timeout=120.0):
        """Have the lister's service list, return (Listing, bytes)."""
        deadline = time.monotonic() + timeout
        request = transport.Limits(timeout).request(7, timeout)
        data = b''
        with self.guest.open_channel(port.PORT) as asked:
            asked.send(request.encode(), deadline)
            while not _is_whole(data):
                data += asked.receive(deadline)
        return listing.parse(data)

    def lister_waits(self):
        """Whether a lister has the port open."""
        return self.guest.channel_state(port.PORT) == channel.OPEN

    def page_flags(self):
        """/proc/kpageflags, a number a page, by qemu-guest-agent."""
        handle = self.guest.agent('guest-file-open', {
            'path': '/proc/kpageflags'}, 60.0)
        data, size = b'', self.memory_mib << 11
        while len(data) < size:
            part = base64.b64decode(self.guest.agent('guest-file-read', {
                'handle': handle, 'count': min(_CHUNK, size - len(data))},
                60.0)['buf-b64'])
            if not part:
                break
            data += part
        self.guest.agent('guest-file-close', {'handle': handle}, 60.0)
        return memoryview(data).cast('Q')


def _is_whole(data):
    """Whether a listing's last frame has come."""
    at = 0
    while len(data) >= at + 16:
        kind = int.from_bytes(data[at + 4:at + 6], 'little')
        at += 16 + int.from_bytes(data[at + 8:at + 12], 'little')
        if kind == 5:
            return len(data) >= at
    return False
