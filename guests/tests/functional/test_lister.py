# SPDX-License-Identifier: Apache-2.0
"""The page-cache lister in guests, held against memory and disks."""

import dataclasses
import socket
import struct

from guests.lister import image
from guests.lister import listing
from guests.lister import mirror
from guests.lister import rig
from nova_dedup_migrate.tests import base
from testkit import qemus
from testkit import spec

PORT = 'org.nova_dedup_migrate.page_cache.0'
BLK, SCSI, NVME = 1, 2, 3
WHOLE, TIME, MEMORY, EXTENTS, FAILED = 0, 1, 2, 3, 5
PAGES = 1
FILE_SYSTEM, ENCRYPTED, DEVICE, PLACE, METHOD = 1, 3, 4, 7, 9

#: Files of all kinds below $D.
FILL = '''
mkdir -p $D/a/b
for i in $(seq 1 8); do dd if=/dev/urandom of=$D/large$i bs=1M count=4; done
for i in $(seq 1 150); do
    dd if=/dev/urandom of=$D/a/b/$i bs=$((i * 97)) count=1
done
dd if=/dev/urandom of=$D/sparse bs=4k count=10
dd if=/dev/urandom of=$D/sparse bs=4k count=10 seek=300 conv=notrunc
cat $D/sparse >/dev/null
fallocate -l 1048576 $D/unwritten
cat $D/unwritten >/dev/null
dd if=/dev/urandom of=$D/deleted bs=1M count=3
dd if=/dev/urandom of=$D/mapped bs=1M count=5
sync
'''.strip().replace('\n', '; ').replace('do; ', 'do ')


class ListerCase(base.TestCase):

    timeout = 900

    def setUp(self):
        self.binary = qemus.require(self, 'stock')
        reason = image.missing()
        if reason:
            self.skipTest(reason)
        super().setUp()
        self.directory = self.temporary_dir()

    def disk(self, name, mib, kind, *options):
        try:
            return rig.make_disk(self.directory / name, mib, kind, *options)
        except FileNotFoundError as error:
            self.skipTest('%s is not installed' % error.filename)

    def partition(self, path, first, sectors):
        """A master boot record with one partition."""
        entry = struct.pack('<B3sB3sII', 0, b'', 0x83, b'', first, sectors)
        with open(path, 'r+b') as disk:
            disk.write(b'\0' * 446 + entry + b'\0' * 48 + b'\x55\xaa')

    def boot(self, *disks, **given):
        guest = rig.Guest(self.binary, list(disks), **given)
        self.addCleanup(guest.destroy)
        guest.start()
        return guest

    def assert_right(self, found, compared, wrong=0):
        self.assertGreater(compared.right, 0)
        self.assertLessEqual(len(compared.wrong), wrong, compared.wrong[:10])
        self.assertLessEqual(compared.unwritten, 10)
        self.assertEqual(compared.right + len(compared.wrong)
                         + compared.unwritten, found.pages)

    def skipped(self, found, reason):
        return [text for why, _, text in found.skipped if why == reason]


class FileSystemTest(ListerCase):
    """Files of all kinds, in whatever state, on one file system."""

    def fill(self, kind, *options):
        guest = self.boot(self.disk('disk', 320, kind, *options))
        return self.fill_disk(guest, f'mount -t {kind} /dev/vda /mnt')

    def fill_disk(self, guest, mount):
        guest.run(f'{mount}; D=/mnt; {FILL}')
        guest.run('helper hold /mnt/mapped >/dev/null 2>&1 &')
        guest.run('helper open /mnt/deleted >/dev/null 2>&1 &')
        guest.run('until ls -l /proc/*/fd 2>/dev/null | grep -q deleted; do '
                  'sleep 0.1; done; rm /mnt/deleted; sync')
        return guest

    def check(self, guest):
        flags = guest.page_flags()
        found = guest.list()
        self.assertEqual((WHOLE, PAGES), (found.status, found.method),
                         found.skipped)
        compared = guest.verify(found, self.directory, flags)
        self.assert_right(found, compared)
        self.assertGreater(compared.coverage, 0.95)
        self.assertEqual(0, found.numbers['disk_bytes'])
        self.assertEqual(found.numbers['cached'], found.pages + sum(
            found.numbers[name] for name in ('dirty', 'writeback',
                                             'not_read', 'no_place')))
        # 32 + 5 + 3 MiB, and the small ones
        self.assertGreater(found.numbers['data_pages'], 40 << 8)
        guest.guest.cont()
        return found

    def check_limits(self, guest, whole):
        self.assertEqual(77, guest.list('--nonce 77').nonce)
        found = guest.list('--extents 5')
        self.assertEqual((EXTENTS, 5), (found.status, len(found.extents)))
        # Piece by piece it is the same.
        pieces, start = [], 0
        while True:
            piece = guest.list(f'--extents 60 --from {start}')
            pieces += piece.extents
            if piece.status == WHOLE:
                break
            start = pieces[-1].gpa + pieces[-1].pages * rig.PAGE
        self.assertGreater(sum(e.pages for e in pieces), whole.pages * 0.95)
        self.assertEqual(sorted(e.gpa for e in pieces),
                         [e.gpa for e in pieces])
        found = guest.list('--time 1')
        self.assertIn(found.status, (TIME, FAILED))
        # So little that the tables are filled and emptied several times
        small = guest.list('--memory 16384 --runs 40')
        self.assertLess(small.numbers['memory'], 16 << 20)
        self.assertEqual(WHOLE, small.status, small.skipped)
        self.assertGreater(small.pages, whole.pages * 0.95)
        self.assert_right(small, guest.verify(small, self.directory))
        guest.guest.cont()
        # Too little to learn how the kernel's structures are laid out
        tiny = guest.list('--memory 4096')
        if int(guest.run('stat -c %s /sys/kernel/btf/vmlinux')) > 4 << 20:
            self.assertEqual(FAILED, tiny.status)
            self.assertIn('memory', self.skipped(tiny, METHOD)[0])

    def check_locked_down(self, guest):
        """Without /proc/kcore there is no listing, and a reason."""
        guest.run('mount -t securityfs none /sys/kernel/security; '
                  'echo confidentiality >/sys/kernel/security/lockdown')
        found = guest.list()
        self.assertEqual((FAILED, []), (found.status, found.extents))
        self.assertIn('/proc/kcore', self.skipped(found, METHOD)[0])

    def check_busy(self, guest):
        """Pages that are written, freed and filled while it is listed."""
        guest.run('helper write /mnt/large1 200 >/dev/null 2>&1 &')
        guest.run('while true; do dd if=/dev/urandom of=/mnt/new bs=64k '
                  'count=20; truncate -s 5000 /mnt/new; sync; rm /mnt/new; '
                  'done >/dev/null 2>&1 &')
        for _ in range(3):
            found = guest.list()
            self.assertEqual(WHOLE, found.status)
        compared = guest.verify(found, self.directory)
        # What was written between the look and the stop
        self.assert_right(found, compared, wrong=found.pages // 20)
        self.assertGreater(found.pages, 30 << 8)
        guest.guest.cont()

    def test_ext4(self):
        guest = self.fill('ext4')
        found = self.check(guest)
        self.assertGreater(found.numbers['metadata_pages'], 5)
        self.check_limits(guest, found)
        self.check_busy(guest)
        self.check_locked_down(guest)

    def test_in_use(self):
        """Few pages to an extent, in tables much smaller than the cache."""
        guest = self.boot(self.disk('disk', 320, 'ext4', '-b', '4096'))
        guest.run('mount -t ext4 /dev/vda /mnt && mkdir /mnt/files && '
                  'helper age /mnt/files 150 300 8', timeout=600)
        flags = guest.page_flags()
        whole = guest.list()
        found = guest.list('--memory 16384 --runs 500 --compact')
        self.assertEqual((WHOLE, WHOLE), (whole.status, found.status))
        self.assertLess(found.pages, 3 * len(found.extents))
        self.assertLess(found.numbers['memory'], 16 << 20)
        self.assertEqual(len(whole.extents), len(found.extents))
        compared = guest.verify(found, self.directory, flags)
        # Tree blocks of deleted files, whose blocks have other data now
        self.assert_right(found, compared, wrong=found.pages // 200)
        self.assertGreater(compared.coverage, 0.95)

    def test_ext4_with_small_blocks(self):
        """Where a page of a file may be scattered over the disk."""
        self.check(self.fill('ext4', '-b', '1024'))

    def test_xfs(self):
        guest = self.fill('xfs')
        self.check(guest)
        self.check_busy(guest)

    def test_btrfs(self):
        """On a partition, with what only btrfs has."""
        disk = self.disk('btrfs', 210, None)
        inner = self.disk('inner', 200, 'btrfs')
        self.partition(disk.path, 63, 200 << 11)
        with open(disk.path, 'r+b') as out:
            out.seek(63 * 512)
            out.write(inner.path.read_bytes())
        guest = self.boot(disk)
        guest.run('more-modules')
        self.fill_disk(guest, 'mount -t btrfs /dev/vda1 /mnt')
        # A snapshot has the inode numbers of what it was made of.
        guest.run('cd /mnt; helper subvolume . sub; '
                  'dd if=/dev/urandom of=sub/file bs=1M count=4; sync; '
                  'helper snapshot sub . snap; '
                  'dd if=/dev/urandom of=snap/file bs=64k seek=9 count=9 '
                  'conv=notrunc; sync; cat sub/file snap/file >/dev/null; '
                  'mount -o remount,compress-force=zstd /mnt; '
                  'yes compressed | head -c 1048576 >compressed; sync; '
                  'mount -o remount,compress=no /mnt')
        if b'none' in guest.run('ls /sys/kernel/btf/btrfs || echo none'):
            self.check_trees_only(guest)
            return
        found = self.check(guest)
        # 32 + 5 + 3, 4 of the subvolume and 4 of the snapshot; most of the
        # small ones
        self.assertGreater(found.numbers['data_pages'], 48 << 8)
        self.assertGreater(found.numbers['metadata_pages'], 100)
        self.assertIn('compressed', self.skipped(found, PLACE)[0])
        self.check_busy(guest)

    def check_trees_only(self, guest):
        """The kernel does not say how the module's structures look."""
        found = guest.list()
        self.assertIn('no BTF of btrfs', self.skipped(found, FILE_SYSTEM)[0])
        self.assert_right(found, guest.verify(found, self.directory))
        self.assertEqual(0, found.numbers['data_pages'])
        self.assertGreater(found.numbers['metadata_pages'], 100)

    def test_encrypted(self):
        """By fscrypt: the cache has plain text, the disk does not."""
        guest = self.boot(self.disk('disk', 100, 'ext4', '-b', '4096',
                                    '-O', 'encrypt'))
        guest.run('more-modules')
        guest.run('mount -t ext4 /dev/vda /mnt; mkdir /mnt/a; '
                  'helper encrypt /mnt/a')
        guest.run('for name in a/secret plain; do '
                  'dd if=/dev/urandom of=/mnt/$name bs=1M count=8; done; '
                  'sync')
        found = guest.list()
        compared = guest.verify(found, self.directory)
        self.assert_right(found, compared)
        self.assertEqual(8 << 8, found.numbers['data_pages'])
        self.assertEqual(
            [(ENCRYPTED, 8 << 8, 'vda: files that fscrypt encrypts')],
            [one for one in found.skipped if 'fscrypt' in one[2]])

    def test_empty_and_full_cache(self):
        guest = self.boot(self.disk('disk', 400, 'ext4'), memory_mib=256)
        guest.run('mount /dev/vda /mnt; for i in 1 2 3; do '
                  'dd if=/dev/urandom of=/mnt/$i bs=1M count=110; done; '
                  'sync; echo 3 >/proc/sys/vm/drop_caches')
        empty = guest.list()
        self.assertEqual(WHOLE, empty.status)
        # Newer kernels keep what is in a processor's list of fresh pages.
        self.assertLess(empty.numbers['data_pages'], 1 << 8)
        guest.run('cat /mnt/1 /mnt/2 /mnt/3 >/dev/null')
        self.assertLess(guest.meminfo()['MemFree'], 30 << 10)
        flags = guest.page_flags()
        found = guest.list()
        # Memory is short: pages are given up meanwhile, and used for
        # something else.
        compared = guest.verify(found, self.directory, flags,
                                guest.page_flags())
        self.assert_right(found, compared, wrong=found.pages // 50)
        self.assertGreater(compared.coverage, 0.95)
        self.assertGreater(found.pages, 100 << 8)


class LayersTest(ListerCase):
    """Disks of all kinds, and what may lie between them and files."""

    def test_disks_partition_and_lvm(self):
        a, b, c = (self.disk(name, 100, None) for name in 'abc')
        self.partition(a.path, 63, 160000)
        disks = [spec.Disk(path=a.path, cache='writeback', serial='blk-1'),
                 spec.Disk(path=b.path, cache='writeback', serial='scsi-2',
                           device='virtio-scsi'),
                 spec.Disk(path=c.path, cache='writeback', serial='nvme-3',
                           device='nvme')]
        guest = self.boot(*disks)
        if b'no lvm' in guest.run('which lvm || echo no lvm'):
            self.skipTest('lvm is not installed, or not for this machine')
        guest.run('lvm vgcreate -f -y vg /dev/sda /dev/nvme0n1 && '
                  'lvm lvcreate -y -Wn -Zn -l 8 -n lv vg /dev/sda && '
                  'lvm lvextend -l +11 vg/lv /dev/nvme0n1')
        # No programs to make file systems are in the guest.
        filled = self.disk('filled', 70, 'ext4')
        guest.destroy()
        disks.append(filled)
        guest = self.boot(*disks)
        guest.run('lvm vgchange -ay --sysinit vg; '
                  'cat /dev/vdb >/dev/vda1; cat /dev/vdb >/dev/dm-0; '
                  'sync; mkdir /one /two; mount -t ext4 /dev/vda1 /one; '
                  'mount -t ext4 /dev/dm-0 /two')
        guest.run('for d in one two; do for i in 1 2 3 4 5 6; do '
                  'dd if=/dev/urandom of=/$d/$i bs=1M count=8; done; done; '
                  'sync')
        flags = guest.page_flags()
        found = guest.list()
        by_serial = {disk.serial: (number, disk)
                     for number, disk in enumerate(found.disks)}
        self.assertEqual((BLK, SCSI, NVME), tuple(
            by_serial[serial][1].bus
            for serial in ('blk-1', 'scsi-2', 'nvme-3')))
        for disk in found.disks:
            self.assertTrue(disk.flags & 1)
        self.assertEqual((0, 0, 0), (by_serial['scsi-2'][1].channel,
                                     by_serial['scsi-2'][1].target,
                                     by_serial['scsi-2'][1].unit))
        # In the order in which the test has them
        order = [by_serial[s][0] for s in ('blk-1', 'scsi-2', 'nvme-3', '')]
        back = {number: place for place, number in enumerate(order)}
        for extent in found.extents:
            extent.disk = back[extent.disk]
        compared = guest.verify(found, self.directory, flags)
        self.assert_right(found, compared)
        self.assertGreater(compared.coverage, 0.95)
        self.assertEqual({0, 1, 2}, {e.disk for e in found.extents
                                     if e.kind == 0})

    def test_mirror(self):
        """A RAID1 of a partition and a whole disk: the first is listed."""
        a, b = (dataclasses.replace(self.disk(name, 100, None), serial=name)
                for name in 'ab')
        self.partition(a.path, 2048, 160000)
        for slot, (disk, start, offset) in enumerate(((a, 2048, 4096),
                                                      (b, 0, 2048))):
            mirror.write_superblock(disk.path, start, slot, 2, offset,
                                    70 << 11)
        guest = self.boot(a, b, self.disk('filled', 70, 'ext4'))
        guest.run('more-modules')
        guest.run('cd /sys/module/md_mod/parameters && '
                  'echo md_mirror >new_array && '
                  'cd /sys/block/md_mirror/md && echo 1.2 >metadata_version '
                  '&& cat /sys/class/block/vda1/dev >new_dev && '
                  'cat /sys/class/block/vdb/dev >new_dev && '
                  'echo active >array_state')
        guest.run('cat /dev/vdc >/dev/md_mirror && sync && '
                  'mount -t ext4 /dev/md_mirror /mnt && '
                  'for i in 1 2 3 4 5 6; do '
                  'dd if=/dev/urandom of=/mnt/$i bs=1M count=8; done; sync')
        self.check_mirror(guest, 0)
        guest.guest.cont()
        # The other member, which has another data offset
        guest.run('cd /sys/block/md_mirror/md/rd0 && echo faulty >state')
        self.check_mirror(guest, 1)

    def check_mirror(self, guest, member):
        """What is listed has to be on this member."""
        found = guest.list()
        (number,) = {extent.disk for extent in found.extents}
        self.assertEqual('ab'[member], found.disks[number].serial)
        for extent in found.extents:
            extent.disk = member
        self.assert_right(found, guest.verify(found, self.directory))
        self.assertGreaterEqual(
            sum(e.pages for e in found.extents if e.kind == 0), 48 << 8)

    def test_what_cannot_be_mapped(self):
        other = self.disk('other', 130, None)
        btrfs = self.disk('btrfs', 130, 'btrfs', other.path)
        ext4 = self.disk('ext4', 60, 'ext4')
        plain = self.disk('plain', 40, None)
        guest = self.boot(btrfs, ext4, plain, other)
        if b'no dmsetup' in guest.run('which dmsetup || echo no dmsetup'):
            self.skipTest('dmsetup is not installed, or not for this '
                          'machine')
        guest.run('more-modules')
        guest.run('mkdir /b /e /o; '
                  'mount -t btrfs -o device=/dev/vdd /dev/vda /b; '
                  'mount -t ext4 /dev/vdb /e; mkdir /e/up /e/work /e/low; '
                  'dd if=/dev/urandom of=/e/low/file bs=1M count=6; '
                  'dd if=/dev/urandom of=/b/file bs=1M count=6; '
                  'mount -t overlay none /o -o '
                  'lowerdir=/e/low,upperdir=/e/up,workdir=/e/work; '
                  'dd if=/dev/urandom of=/o/new bs=1M count=6; '
                  'sync; cat /o/* >/dev/null')
        guest.run("dmsetup create c --table '0 81920 crypt "
                  "aes-xts-plain64 " + '0123456789abcdef' * 4
                  + " 0 254:32 0'")
        # Open, or what is cached of it goes.
        guest.run('sleep 1000 </dev/dm-0 >/dev/null 2>&1 &')
        guest.run('dd if=/dev/dm-0 of=/dev/null bs=1M count=4')
        found = guest.list()
        self.assertIn('btrfs: not on exactly one device',
                      self.skipped(found, DEVICE))
        self.assertIn('crypt', self.skipped(found, ENCRYPTED)[0])
        compared = guest.verify(found, self.directory)
        self.assert_right(found, compared)
        # An overlay's files are those of the file systems below.
        self.assertGreaterEqual(sum(e.pages for e in found.extents
                                    if e.disk == 1 and e.kind == 0),
                                12 << 8)
        self.assertEqual([], [e for e in found.extents
                              if e.disk in (0, 3) and e.kind == 0])


class PortTest(ListerCase):
    """Requests by a virtio-serial port."""

    def request(self, nonce, limit_ms=20000, extents=1 << 20):
        payload = struct.pack('<IIQII40s', 1, limit_ms, nonce, 1 << 16,
                              extents, b'')
        return struct.pack('<4sHHII', b'NPCL', 16, 0, 64, 0) + payload

    def receive(self, connection, nonce):
        """Read up to the END of the listing with that nonce."""
        begin = struct.pack('<4sHHIIIIQ', b'NPCL', 1, 0, 64, 0, 1, 4096,
                            nonce)
        end = struct.pack('<4sHHI', b'NPCL', 5, 0, 160)
        data = b''
        while True:
            data += connection.recv(1 << 16)
            start = data.find(begin)
            stop = data.find(end, max(start, 0))
            if start >= 0 <= stop and len(data) >= stop + 176:
                return listing.parse(data[start:stop + 176])

    def test_port(self):
        guest = self.boot(self.disk('disk', 100, 'ext4'), channels=(
            spec.Channel(PORT, 'virtio-serial', 'socket'),))
        guest.run('mount -t ext4 /dev/vda /mnt; dd if=/dev/urandom '
                  'of=/mnt/f bs=1M count=40; sync')
        guest.run(f'page-cache-lister --port {PORT} >/dev/null 2>&1 &')
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(guest.guest.channel(PORT)))
            connection.settimeout(60)
            connection.sendall(b'noise' + self.request(5))
            found = self.receive(connection, 5)
            self.assertEqual((WHOLE, PAGES), (found.status, found.method))
            # One that has not been read is passed over for the next.
            connection.sendall(self.request(6) + self.request(7))
            found = self.receive(connection, 7)
            connection.sendall(self.request(8, extents=1))
            self.assertEqual(1, len(self.receive(connection, 8).extents))
        # The host comes back later.
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(guest.guest.channel(PORT)))
            connection.settimeout(60)
            connection.sendall(self.request(9))
            found = self.receive(connection, 9)
        compared = guest.verify(found, self.directory)
        self.assert_right(found, compared)
        self.assertGreater(compared.right, 39 << 8)
