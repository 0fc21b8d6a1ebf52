# SPDX-License-Identifier: Apache-2.0
"""A Linux guest that works and verifies: devices, several disks.

Ten megabytes of files in its page cache, written to and verified while it
is migrated; then all memory is compared, and the guest verifies its
memory and its files.
"""

import dataclasses

from guests.synthetic import channel
from guests.synthetic import disk
from guests.synthetic import image
from guests.synthetic import workload
from nova_dedup_migrate.tests import base
from testkit import direct
from testkit import memory
from testkit import options
from testkit import qemus
from testkit import spec

MIB = 24


class LinuxTest(base.TestCase):

    timeout = 180

    def setUp(self):
        self.binary = qemus.require(self, 'patched')
        self.faulty = qemus.require(self, 'faulty')
        super().setUp()
        self.directory = self.temporary_dir()

    def boot(self, devices, format='raw', layout='whole', mode='mixed',
             inject='', iothread=False, append='', **given):
        """Start the guest at the source; the destination's spec is kept."""
        img = qemus.tool(qemus.find('patched', self.binary),
                            'qemu-img')
        linux = image.guest_image()
        images = [disk.make_disk(
            self.directory / 'disk', mib=MIB // len(devices), seed=n + 1,
            format=format, layout=layout, qemu_img=img, name='data%d' % n)
            for n in range(len(devices))]
        work = workload.Workload(mode=mode, cache=MIB, anon=4, rate=2000,
                                 readrate=20000, disks=len(devices))
        self.spec = spec.GuestSpec(
            binary=self.binary, memory_mib=160, kernel=linux.kernel,
            initrd=linux.initrd, append=work.append + append,
            disks=tuple(spec.Disk(path=one.path, format=one.format,
                                  device=device, iothread=iothread)
                        for one, device in zip(images, devices,
                                               strict=True)),
            channels=(spec.Channel('workload', 'uart', 'socket'),), **given)
        source = self.guest(self.spec, 'source')
        source.start(paused=True)
        source.track_dedup()
        self.talk = self.connect(source)
        source.cont()
        self.talk.wait_ready()
        self.inject = inject
        return source

    def guest(self, what, name):
        guest = direct.DirectGuest(what, self.temporary_dir(), name)
        self.addCleanup(guest.destroy)
        return guest

    def connect(self, where):
        talk = channel.GuestChannel(where.channel('workload'))
        self.addCleanup(talk.close)
        return talk

    def migrate(self, source, minimum=0.5, **given):
        """Migrate, compare, verify; return the guest at its new place."""
        what = self.spec
        if self.inject:
            what = dataclasses.replace(what, binary=self.faulty, env={
                'QEMU_DEDUP_INJECT': self.inject})
        destination = self.guest(what, 'destination')
        source.arm_dedup()
        given.setdefault('max_bandwidth', 60 << 20)
        migration = source.migrate(destination, options.MigrationOptions(
            paused=True, **given))
        last = migration.wait(120)
        here = source.save_memory(self.directory / 'source')
        there = destination.save_memory(self.directory / 'destination')
        self.assertEqual(0, memory.compare(here, there).differing)
        here.remove()
        there.remove()
        self.assertGreater(last.dedup.source.storage_pages,
                           minimum * (MIB << 8))
        self.talk = self.connect(destination)
        destination.cont()
        source.destroy()
        self.verify()
        return destination

    def verify(self):
        self.talk.command('stop')
        reply = self.talk.verify()
        self.assertEqual(0, reply['errors'], reply.get('error'))

    def test_virtio_scsi_and_back(self):
        source = self.boot(['virtio-scsi'], 'qcow2-backed')
        there = self.migrate(source)
        self.talk.command('start mixed rate=2000 readrate=20000')
        self.migrate(there)

    def test_ide_not_aligned(self):
        self.migrate(self.boot(['ide'], layout='partition'))

    def test_two_disks_with_iothreads(self):
        source = self.boot(['virtio-blk', 'virtio-blk'], 'qcow2',
                           iothread=True)
        self.migrate(source, multifd_channels=2)

    def test_three_kinds_of_disks(self):
        source = self.boot(['virtio-blk', 'virtio-scsi', 'ide'])
        self.migrate(source, xbzrle=True)

    def test_page_cache_writer_with_late_fetches(self):
        source = self.boot(
            ['virtio-blk'], 'qcow2', mode='pagecache-writer',
            inject='fetch-delay-us=100000,pending-delay-us=100,'
                   'copy-delay-us=50,answer-delay-us=20000')
        self.migrate(source, 0.1)

    def test_page_cache_writer_with_late_fetches_multifd(self):
        source = self.boot(
            ['virtio-blk'], mode='pagecache-writer',
            inject='fetch-delay-us=100000,pending-delay-us=100,'
                   'copy-delay-us=50,answer-delay-us=20000')
        self.migrate(source, 0.1, multifd_channels=2,
                     multifd_compression='zstd')

    def test_pages_that_are_freed_become_zero(self):
        """Multifd once more, with the kernel's own zero pages."""
        source = self.boot(['virtio-blk'], mode='idle',
                           append=' init_on_free=1')
        source.qmp('migrate-set-parameters',
                   **{'max-bandwidth': 4 << 20})
        what = self.guest(self.spec, 'destination')
        source.arm_dedup()
        migration = source.migrate(what, options.MigrationOptions(
            paused=True, multifd_channels=2, max_bandwidth=8 << 20))
        self.eventually(lambda: source.dedup_statistics().source
                        .storage_pages > (MIB << 7), 'fetched pages')
        self.talk.command('drop')
        migration.set_rate(None)
        migration.wait(120)
        here = source.save_memory(self.directory / 'source')
        there = what.save_memory(self.directory / 'destination')
        self.assertEqual(0, memory.compare(here, there).differing)
        self.talk = self.connect(what)
        what.cont()
        self.verify()
