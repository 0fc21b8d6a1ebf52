# SPDX-License-Identifier: Apache-2.0
"""A guest is asked what it caches, and migrates without sending it.

I/O is not tracked, so all that QEMU knows is what the guest has listed.
The destination has its own copy of the disk.  All memory is compared.
"""

import dataclasses
import shutil
import time

from guests.lister import image
from guests.lister import rig
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.pagecache import port
from nova_dedup_migrate.pagecache import transport
from nova_dedup_migrate.tests import base
from testkit import direct
from testkit import memory
from testkit import options
from testkit import qemus
from testkit import spec

MIB = 24
FILL = ('mount -t ext4 /dev/vda /mnt; '
        'dd if=/dev/urandom of=/mnt/file bs=1M count=%d; sync' % MIB)


class PageCacheTest(base.TestCase):

    timeout = 600

    def setUp(self):
        self.binary = qemus.require(self, 'patched')
        reason = image.missing()
        if reason:
            self.skipTest(reason)
        super().setUp()
        self.directory = self.temporary_dir()

    def booted(self, *disks):
        rigged = rig.Guest(
            self.binary, disks, memory_mib=192, channels=(
                spec.Channel(port.PORT, 'virtio-serial', 'socket'),))
        self.addCleanup(rigged.destroy)
        rigged.start(timeout=300)
        return rigged

    def disk(self, name='disk'):
        try:
            return rig.make_disk(self.directory / name, 96, 'ext4')
        except FileNotFoundError as error:
            self.skipTest('%s is not installed' % error.filename)

    def listening(self, rigged):
        """Start the lister in the guest, return an Asker."""
        rigged.run('page-cache-lister --port %s >/dev/null 2>&1 &'
                   % port.PORT)
        guest = rigged.guest
        self.eventually(
            lambda: guest.channel_state(port.PORT) == channel.OPEN,
            'a lister at the port', 120)
        return loading.PageCacheLoader(guest, [port.PortTransport(guest)],
                         transport.Limits(60.0))

    def test_teleport(self):
        rigged = self.booted(self.disk(), self.disk('other'))
        rigged.run(FILL)
        loader = self.listening(rigged)
        self.assertEqual('', loader.obstacle())
        found = loader.load()
        self.assertEqual(('taken', '', 'port', 'whole'), (
            found.outcome, found.reason, found.transport, found.status), found)
        self.assertGreaterEqual(found.taken_pages, MIB << 8)
        self.assertEqual(found.listed_pages, found.taken_pages)
        self.migrated(rigged, found)

    def migrated(self, rigged, found):
        """Migrate to a copy of the disks; what was listed is not sent."""
        source = rigged.guest
        source.pause()
        copies = []
        for disk in source.spec.disks:
            path = disk.path.with_name(disk.path.name + '-copy')
            shutil.copyfile(disk.path, path)
            copies.append(dataclasses.replace(disk, path=path))
        destination = direct.DirectGuest(
            dataclasses.replace(source.spec, disks=tuple(copies)),
            self.temporary_dir(), 'destination')
        self.addCleanup(destination.destroy)
        source.arm_dedup(copy='own')
        last = source.migrate(destination, options.MigrationOptions(
            paused=True)).wait(300)
        result = memory.compare(
            source.save_memory(self.directory / 'source'),
            destination.save_memory(self.directory / 'there'))
        self.assertEqual(0, result.differing, result.addresses)
        self.assertGreater(last.dedup.source.record_pages,
                           0.9 * found.taken_pages)
        self.assertEqual(0, last.dedup.source.nack_digest)

    def test_ask_twice(self):
        """The port outlives who asks, and what an earlier one has left."""
        rigged = self.booted(self.disk())
        rigged.run(FILL)
        loader = self.listening(rigged)
        with rigged.guest.open_channel(port.PORT) as left:
            left.send(transport.Limits().request(5, 60.0).encode(),
                      self._soon())
            left.receive(self._soon())
        for _ in range(2):
            found = loader.load()
            self.assertEqual('taken', found.outcome, found)
            self.assertGreaterEqual(found.taken_pages, MIB << 8)

    @staticmethod
    def _soon():
        return time.monotonic() + 60
