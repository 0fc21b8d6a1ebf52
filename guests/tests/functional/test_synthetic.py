# SPDX-License-Identifier: Apache-2.0
"""The test guest itself: its checks have to find what is wrong."""

from guests.synthetic import channel
from guests.synthetic import disk
from guests.synthetic import image
from guests.synthetic import pattern
from guests.synthetic import workload
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.pagecache import port as lister_port
from nova_dedup_migrate.pagecache import transport
from nova_dedup_migrate.tests import base
from testkit import direct
from testkit import qemus
from testkit import spec

MIB = 16


class GuestTest(base.TestCase):

    timeout = 240

    def setUp(self):
        self.binary = qemus.require(self, 'stock')
        super().setUp()
        self.directory = self.temporary_dir()

    def make_disk(self, **given):
        return disk.make_disk(
            self.directory / 'disk', mib=MIB,
            qemu_img=qemus.tool(qemus.find('stock', self.binary),
                                   'qemu-img'), **given)

    def boot(self, images, device='virtio-blk', port='uart', lister=False,
             **work):
        guest_image = image.guest_image(lister)
        guest = direct.DirectGuest(spec.GuestSpec(
            binary=self.binary, memory_mib=256, kernel=guest_image.kernel,
            initrd=guest_image.initrd,
            append=workload.Workload(
                **{'disks': len(images), **work}).append,
            disks=tuple(spec.Disk(path=one.path, format=one.format,
                                  device=device) for one in images),
            channels=(spec.Channel('workload', port, 'socket'),
                      *[spec.Channel(lister_port.PORT, 'virtio-serial',
                                     'socket')] * lister)))
        self.addCleanup(guest.destroy)
        guest.start()
        talk = channel.GuestChannel(guest.channel('workload'))
        self.addCleanup(talk.close)
        talk.wait_ready()
        return guest, talk

    def check_device(self, device, **given):
        port = given.pop('port', 'uart')
        _, talk = self.boot([self.make_disk(**given)], device, port,
                            mode='mixed', anon=8, rate=5000)
        talk.wait_report()
        report = talk.wait_report()
        self.assertGreater(report.written, 0)
        self.assertGreater(report.verified, 0)
        reply = talk.verify()
        self.assertEqual(0, reply['errors'], reply['error'])
        self.assertEqual(MIB << 20, reply['cache'])
        self.assertEqual(MIB << 20, reply['disk'])
        self.assertEqual(8 << 20, reply['anon'])

    def test_virtio_blk_raw(self):
        self.check_device('virtio-blk')

    def test_virtio_scsi_qcow2_in_a_partition(self):
        self.check_device('virtio-scsi', format='qcow2',
                          layout='partition')

    def test_ide_backed(self):
        self.check_device('ide', format='qcow2-backed')

    def test_nvme_over_virtio_serial(self):
        self.check_device('nvme', port='virtio-serial')

    def test_one_wrong_byte_is_found_and_named(self):
        data = self.make_disk()
        with open(data.path, 'r+b') as file:
            content = file.read()
            place = content.index(pattern.page(data.seed, 1, 0))
            file.seek(place + 4096 + 80)
            file.write(bytes([content[place + 4096 + 80] ^ 1]))
        _, talk = self.boot([data])
        reply = talk.verify('cache')
        self.assertEqual(2, reply['errors'])    # at boot, and now
        self.assertRegex(reply['error'],
                         r'^vda/f00001, offset 4176: expected [0-9a-f]{16}, '
                         r'got [0-9a-f]{16}$')
        # it does not go away
        self.assertEqual(reply['error'], talk.wait_report().error)

    def test_starts_and_stops_on_command(self):
        _, talk = self.boot([self.make_disk()])
        self.assertEqual('idle', talk.wait_report().mode)
        talk.command('start pagecache-writer rate=2000')
        self.assertEqual('pagecache-writer', talk.wait_report().mode)
        talk.command('stop')
        before = talk.wait_report()
        self.assertEqual(before.written, talk.wait_report().written)
        self.assertRaises(channel.GuestFailed, talk.command, 'start games')
        self.assertRaises(channel.GuestFailed, talk.command, 'dance')
        stat = talk.command('stat')
        self.assertGreaterEqual(stat['Cached'], MIB << 10)

    def test_small_files(self):
        _, talk = self.boot([self.make_disk()], mode='small-files')
        self.eventually(lambda: talk.wait_report().written > 40 << 20,
                        '40 MiB of small files')
        talk.command('stop')
        reply = talk.verify('disk')
        self.assertEqual(0, reply['errors'], reply['error'])
        self.assertGreater(reply['disk'], MIB << 20)

    def test_recycle(self):
        _, talk = self.boot([self.make_disk()], mode='recycle')
        # each of its 160 runs of 64 KiB has been to and fro
        self.eventually(lambda: talk.wait_report().written > 24 << 20,
                        '24 MiB of recycled memory')
        talk.command('stop')
        cached = talk.command('stat')['Cached']
        reply = talk.verify('anon')
        self.assertEqual(0, reply['errors'], reply['error'])
        self.assertEqual(10 << 20, reply['anon'])
        # what was given away is not cached any more
        talk.verify('cache')
        self.assertGreater(talk.command('stat')['Cached'], cached + 4096)

    def test_reads_its_disk_directly(self):
        _, talk = self.boot([self.make_disk()])
        for kind, size in (('seq', 128 << 10), ('random', 4 << 10)):
            reply = talk.command(f'io {kind} 200')
            self.assertEqual(size * reply['requests'], reply['bytes'])
            self.assertGreaterEqual(reply['us'], 200_000)
        for wrong in ('io', 'io seq', 'io seq 0', 'io up 100'):
            self.assertRaises(channel.GuestFailed, talk.command, wrong)

    def test_keeps_its_lister_running(self):
        guest, talk = self.boot([self.make_disk()], lister=True)

        def state():
            return guest.channel_state(lister_port.PORT)

        self.eventually(lambda: state() == 'open', 'a lister', 60)
        loader = loading.PageCacheLoader(
            guest, [lister_port.PortTransport(guest)], transport.Limits(5.0))
        talk.command('lister break')
        self.assertIn(loader.load().outcome, ('timeout', 'partial'))
        self.eventually(lambda: state() == 'open', 'another one', 60)
        talk.command('lister kill')
        self.eventually(lambda: state() == 'closed', 'its end', 60)
        self.assertRaises(channel.GuestFailed, talk.command, 'lister jump')
        talk.command('lister go')
        self.eventually(lambda: state() == 'open', 'a third one', 60)

    def test_an_image_without_a_lister_says_so(self):
        _, talk = self.boot([self.make_disk()])
        self.assertRaises(channel.GuestFailed, talk.command, 'lister kill')

    def test_powers_off(self):
        guest, talk = self.boot([self.make_disk()])
        talk.command('poweroff')
        self.eventually(lambda: not guest.is_alive(), 'power-off')

    def test_missing_disk_is_said(self):
        error = self.assertRaises(channel.GuestFailed, self.boot, [],
                                  disks=1)
        self.assertIn('data disks found', str(error))
