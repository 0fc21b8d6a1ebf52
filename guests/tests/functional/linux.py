# SPDX-License-Identifier: Apache-2.0
"""A Linux guest that works and verifies, and is migrated."""

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


class LinuxCase(base.TestCase):

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
