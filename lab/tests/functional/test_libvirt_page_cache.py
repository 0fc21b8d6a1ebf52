# SPDX-License-Identifier: Apache-2.0
"""A guest of libvirt's is asked what it caches, over a stream of libvirt."""

from guests.lister import image
from guests.lister import rig
from lab.tests.functional import test_libvirt
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.pagecache import port
from nova_dedup_migrate.pagecache import transport
from testkit import spec

MIB = 24

setUpModule = test_libvirt.setUpModule


class Rigged(rig.Guest):
    """The same guest, of libvirt.

    :param guest: testkit.libvirt.LibvirtGuest with the channel control
    """

    def __init__(self, guest):
        self.guest = guest
        self._socket = None
        guest.channel = lambda name: guest.run_dir / (name + '.sock')


class LibvirtTest(test_libvirt.LibvirtCase):

    timeout = 600

    def setUp(self):
        reason = image.missing()
        if reason:
            self.skipTest(reason)
        super().setUp()

    def test_ask(self):
        try:
            disk = rig.make_disk(self.temporary_dir() / 'disk', 96, 'ext4')
        except FileNotFoundError as error:
            self.skipTest('%s is not installed' % error.filename)
        self.image = disk.path
        kernel, initrd, _ = image.guest_image()
        guest = self.make(
            'guest', disks=(disk,), memory_mib=192, kernel=kernel,
            initrd=initrd, append='console=ttyS0 loglevel=4', channels=(
                spec.Channel('control', 'virtio-serial', 'socket'),
                spec.Channel(port.PORT, 'virtio-serial', 'socket')))
        rigged = Rigged(guest)
        rigged.start(timeout=300)
        rigged.run('mount -t ext4 /dev/vda /mnt; dd if=/dev/urandom '
                   'of=/mnt/file bs=1M count=%d; sync' % MIB)
        self.assertEqual(channel.CLOSED, guest.channel_state(port.PORT))
        rigged.run('page-cache-lister --port %s >/dev/null 2>&1 &'
                   % port.PORT)
        self.eventually(
            lambda: guest.channel_state(port.PORT) == channel.OPEN,
            'a lister at the port', 120)
        loader = loading.PageCacheLoader(guest, [port.PortTransport(guest)],
                          transport.Limits(60.0))
        for _ in range(2):
            found = loader.load()
            self.assertEqual(('taken', ''), (found.outcome, found.reason),
                             found)
            self.assertGreaterEqual(found.taken_pages, MIB << 8)
