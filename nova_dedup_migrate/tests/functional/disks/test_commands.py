# SPDX-License-Identifier: Apache-2.0
"""What the commands x-dedup-disk-* take and refuse."""

import os
import socket

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from testkit import spec

SIZE = case.SIZE


class CommandsTest(case.SeedCase):

    def assert_refused(self, text, function, *args, **given):
        error = self.assertRaises(errors.QmpError, function, *args, **given)
        self.assertIn(text, str(error))

    def test_refused(self):
        """Of one guest: nothing of this changes anything."""
        one = self.rig()
        guest = one.source
        self.assert_refused('not found', guest.watch_disk, 'disk7')
        for granularity in 0, 2048, 5000, 2 << 20:
            self.assert_refused('power of 2', guest.watch_disk, 'disk0',
                                granularity)
        watch = one.watch()
        for offset, length in ((0, 0), (SIZE, 1), (0, SIZE + 4096),
                               (2 ** 64 - 4096, 8192)):
            self.assert_refused('not in the disk', guest.clear_disk,
                                watch.token, offset, length)
        for offset, length in (4096, rig.GRANULE), (0, 4096):
            self.assert_refused('whole granules', guest.clear_disk,
                                watch.token, offset, length)
        self.assert_refused('token', guest.clear_disk, 'x', 0, rig.GRANULE)
        proven = bytes(watch.bitmap_bytes)
        for wrong in b'', proven[1:], proven + b'\0':
            self.assert_refused('bytes', guest.arm_disk, watch.token, wrong,
                                *one.canary)
        for offset in 100, SIZE - 511, SIZE, 2 ** 63:
            self.assert_refused('canary', guest.arm_disk, watch.token,
                                proven, offset, one.canary[1])
        self.assert_refused('512 bytes', guest.arm_disk, watch.token, proven,
                            0, b'short')
        self.assert_no_memfd(guest, watch)
        self.assertEqual(watch, one.query())
        one.arm(watch, proven)
        self.assert_refused('before', one.arm, watch, proven)
        self.assert_refused('before', guest.clear_disk, watch.token, 0,
                            rig.GRANULE)
        self.assert_refused('before', guest.dirty_granules, watch)
        guest.drop_disk(watch.token)
        self.assert_refused('token', guest.drop_disk, watch.token)
        self.assertEqual((), guest.disk_watches())

    def assert_no_memfd(self, guest, watch):
        """QEMU does not wait in the main loop for what may hang."""
        there, here = os.pipe()
        name = guest.pass_fd(there, 'pipe')
        os.close(there)
        os.close(here)
        self.assert_refused('memfd', guest.qmp, 'x-dedup-disk-bitmap',
                            token=watch.token, fdname=name)

    def test_bitmap(self):
        """What was never cleared, or was written to since."""
        one = self.rig()
        watch = one.watch()
        full = int.from_bytes(one.source.dirty_granules(watch), 'little')
        self.assertEqual((1 << case.GRANULES) - 1, full)
        one.source.clear_disk(watch.token, 0, SIZE)
        self.assertEqual(0, one.query().dirty)
        one.io('write', '-q', 17 * rig.GRANULE - 512, 1024)
        one.io('write', '-q', SIZE - 512, 512)
        dirty = int.from_bytes(one.source.dirty_granules(watch), 'little')
        self.assertEqual(1 << 16 | 1 << 17 | 1 << case.GRANULES - 1, dirty)

    def large(self, size):
        """A Rig with another disk, without content."""
        return self.rig(extra_args=(
            '-blockdev', 'null-co,node-name=null,size=%d' % size,
            '-device', 'virtio-blk-pci,id=large,drive=null'))

    def test_watched_in_parts(self):
        """A disk of more granules than QEMU makes dirty at once."""
        granule, part = 4096, 64 * 65536
        size = (2 * part + 70) * granule - 512
        one = self.large(size)
        watch = one.source.watch_disk('large', granule)
        self.assertEqual((size, size), (watch.size, watch.dirty))
        self.assertEqual((1 << watch.granules) - 1, int.from_bytes(
            one.source.dirty_granules(watch), 'little'))
        one.source.clear_disk(watch.token, 0, size)
        one.io('write', '-q', part * granule, granule, device='large')
        self.assertEqual(granule, one.query().dirty)

    def test_armed_in_parts(self):
        """A disk of more granules than QEMU reads of the bitmap at once."""
        granule, part = 4096, 65536
        one = self.large((2 * part + 5) * granule)
        guest = one.source
        watch = guest.watch_disk('large', granule)
        guest.clear_disk(watch.token, 0, watch.size)
        # All are proven but these; the canary's is granule 0.
        rest = (0, 1, part - 1, part, part + 70, 2 * part - 1, 2 * part,
                watch.granules - 1)
        proven = (1 << watch.granules) - 1
        for number in rest:
            proven ^= 1 << number
        armed = guest.arm_disk(watch.token, proven.to_bytes(
            watch.bitmap_bytes, 'little'), *one.canary)
        self.assertEqual(len(rest) * granule, armed.dirty)
        for number in rest:
            one.io('write', '-q', number * granule, granule, device='large')
        self.assertEqual(armed.dirty, one.query().dirty)
        one.io('write', '-q', (part + 1) * granule, granule, device='large')
        self.assertEqual(armed.dirty + granule, one.query().dirty)

    def test_watched_again(self):
        """What was known is forgotten, also if it was armed."""
        one = self.rig()
        first = one.seeded()
        again = one.watch()
        self.assertNotEqual(first.token, again.token)
        self.assertEqual((again,), one.source.disk_watches())
        self.assertEqual(SIZE, again.dirty)

    def test_shareable(self):
        one = self.rig(extra_args=(
            '-blockdev', 'null-co,node-name=null,size=1048576',
            '-device', 'virtio-blk-pci,id=shared,drive=null,share-rw=on'))
        self.assert_refused('shareable', one.source.watch_disk, 'shared')

    def test_encrypted(self):
        self.images.img(
            'create', '-f', 'luks', '--object', 'secret,id=key,data=secret',
            '-o', 'key-secret=key,iter-time=10', 'luks.img', '1M')
        one = self.rig(
            extra_args=('-object', 'secret,id=key,data=secret'),
            disk=spec.Disk(blockdev=(
                {'driver': 'file', 'node-name': 'disk0-file',
                 'filename': str(self.directory / 'luks.img')},
                {'driver': 'luks', 'node-name': 'disk0-format',
                 'file': 'disk0-file', 'key-secret': 'key'})))
        self.assert_refused('encrypted', one.watch)

    def test_export(self):
        """Read-only, for our user, and gone afterwards."""
        one = self.rig()
        watch = one.watch()
        with one.reader(watch) as reader:
            self.assertTrue(reader.is_read_only())
            self.assertEqual(SIZE, reader.get_size())
            self.assertEqual(one.image[0].read_bytes()[:4096],
                             bytes(reader.pread(4096, 0)))
            self.assert_refused('already', self.enter,
                                one.source.exported_disk(watch.node_name))
        self.assertEqual([], one.source.qmp('query-block-exports'))
        with one.source.exported_disk(watch.node_name) as path:
            pass
        with socket.socket(socket.AF_UNIX) as peer:
            self.assertRaises(OSError, peer.connect, path)

    def enter(self, context):
        with context:
            self.fail('it is exported twice')

    def test_unknown_state(self):
        """Of a QEMU that is not ours: nothing is taken for granted."""
        for reply in None, {}, {'token': 1}, {
                'token': 'x', 'device': 'd', 'node-name': 'n', 'size': 1,
                'granularity': 0, 'state': 'watching'}:
            self.assertRaises(errors.MalformedReply,
                              watching.DiskWatch.from_qmp, reply)
        self.assertRaises(errors.MalformedReply, watching.watches, {})
