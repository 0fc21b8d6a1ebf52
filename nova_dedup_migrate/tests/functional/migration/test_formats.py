# SPDX-License-Identifier: Apache-2.0
"""Where the bytes of a disk are in its image, and whether they are there."""

from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import images
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import ceph
from testkit import spec

PAGES = case.PAGES


class FormatsTest(case.MigrationCase):

    def setUp(self):
        super().setUp()
        self.images = images.Images(self.directory, self.binary)

    def scenario(self, disk, content, before=None, during=None, pages=PAGES,
                 sector=scripted.DATA, copy='shared', destination=None,
                 export=False):
        disks = disk if isinstance(disk, list) else [disk]
        one = self.rig(source_disks=disks, contents=[content],
                       destination_disks=destination or disks)
        one.boot()
        one.read_pages(pages, sector=sector)
        if export:
            self.export(one)
        if before:
            before(one)
        one.migrate(copy=copy)
        one.active()
        if during:
            during(one)
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        return outcome

    def check_all(self, *args, count=32, **given):
        outcome = self.scenario(*args, **given)
        self.assertEqual((count, 0, 0), (
            outcome.source.storage_pages, outcome.source.nack_digest,
            outcome.source.nack_io))

    def check_none(self, *args, **given):
        outcome = self.scenario(*args, **given)
        self.assertEqual(0, outcome.source.storage_pages)
        return outcome

    def test_rbd(self):
        self.assertEqual([], ceph.missing(), 'see bindep.txt')
        cluster = ceph.Cluster(self.temporary_dir())
        self.addCleanup(cluster.stop)
        cluster.start()
        path, content = self.images.raw()
        cluster.run('rbd', 'import', str(path), f'{ceph.POOL}/disk')
        self.check_all(spec.Disk(blockdev=(
            {'driver': 'rbd', 'node-name': 'disk0-file', 'pool': ceph.POOL,
             'image': 'disk', 'conf': str(cluster.conf)},
            {'driver': 'raw', 'node-name': 'disk0-format',
             'file': 'disk0-file'})), content)

    def test_qcow2(self):
        path, content = self.images.qcow2()
        self.check_all(self.images.disk((path, 'qcow2')), content)

    def test_qcow2_small_clusters(self):
        path, content = self.images.qcow2(options=['cluster_size=512'])
        self.scenario(self.images.disk((path, 'qcow2')), content)

    def test_qcow2_extended_l2(self):
        path, content = self.images.qcow2(options=['extended_l2=on'])
        self.check_all(self.images.disk((path, 'qcow2')), content)

    def backed(self):
        base, content = self.images.raw()
        top = self.images.overlay(base, 'raw')
        return self.images.disk((base, 'raw'), (top, 'qcow2')), content

    def test_backing_file(self):
        self.check_all(*self.backed())

    def test_chain_of_three(self):
        base, content = self.images.raw()
        middle = self.images.overlay(base, 'raw', 'middle.qcow2')
        top = self.images.overlay(middle, 'qcow2', 'top.qcow2')
        self.check_all(self.images.disk(
            (base, 'raw'), (middle, 'qcow2'), (top, 'qcow2')), content)

    def test_copy_on_write_before(self):
        """The upper half of the pages are written, into the overlay."""
        def before(one):
            for page in PAGES[16:]:
                one.guest.poke(page, 100)
                one.guest.write(page, scripted.DATA + (page - PAGES[0]) * 8)
        self.check_all(*self.backed(), before=before)

    def test_copy_on_write_during(self):
        """Each write moves its page to another place."""
        def during(one):
            one.fetched(len(PAGES))
            for page in PAGES:
                one.guest.poke(page, 100)
                one.guest.write(page, scripted.DATA + (page - PAGES[0]) * 8)
            one.rounds()
        self.scenario(*self.backed(), during=during)

    def growing(self):
        """Return an image with nothing in its last 4 MiB, its content."""
        path, content = self.images.raw(pages=64)
        content += bytes(4 << 20)
        top = self.directory / 'growing.qcow2'
        self.images.img('convert', '-O', 'qcow2', path, top)
        self.images.img('resize', top, len(content))
        return top, content

    def test_growing(self):
        """Pages are written beyond what the destination has opened."""
        top, content = self.growing()

        def write(one):
            for page in PAGES:
                one.guest.poke(page, 100)
                one.guest.write(page, 4096 + (page - PAGES[0]) * 8)
        self.check_all(self.images.disk((top, 'qcow2')), content,
                       before=write)

    def test_growing_during(self):
        top, content = self.growing()

        def write(one):
            one.fetched(len(PAGES))
            for page in PAGES:
                one.guest.poke(page, 100)
                one.guest.write(page, 4096 + (page - PAGES[0]) * 8)
            one.rounds()
        outcome = self.scenario(self.images.disk((top, 'qcow2')), content,
                                during=write)
        self.assertEqual(0, outcome.source.nack_io)

    def test_compressed(self):
        """The bytes are nowhere on storage."""
        path, content = self.images.qcow2(compressed=True)
        # noise does not compress, so qemu-img leaves it as it is
        zeros = bytes(range(256)) * 16
        for at in range(scripted.DATA * 512, len(content) - 4096, 4096):
            content[at:at + 4096] = zeros[:-1] + bytes([at >> 12 & 0xff])
        raw = self.directory / 'pattern.raw'
        raw.write_bytes(content)
        self.images.img('convert', '-c', '-O', 'qcow2', raw, path)
        outcome = self.check_none(self.images.disk((path, 'qcow2')), content)
        self.assertGreater(outcome.source.unresolved_hints, 0)

    def test_luks(self):
        raw, content = self.images.raw()
        path = self.directory / 'luks.img'
        self.images.img(
            'convert', '--object', 'secret,id=key,data=password', '-O',
            'luks', '-o', 'key-secret=key,iter-time=10', raw, path)
        disk = self.images.disk((path, 'luks'), **{'key-secret': 'key'})
        one = self.rig(
            source_disks=[disk], contents=[content],
            extra_args=('-object', 'secret,id=key,data=password'))
        self.encrypted(one)

    def test_encrypted_qcow2(self):
        raw, content = self.images.raw()
        path = self.directory / 'encrypted.qcow2'
        self.images.img(
            'convert', '--object', 'secret,id=key,data=password', '-O',
            'qcow2', '-o', 'encrypt.format=luks,encrypt.key-secret=key,'
            'encrypt.iter-time=10', raw, path)
        disk = self.images.disk((path, 'qcow2'), encrypt={
            'format': 'luks', 'key-secret': 'key'})
        one = self.rig(
            source_disks=[disk], contents=[content],
            extra_args=('-object', 'secret,id=key,data=password'))
        self.encrypted(one)

    def encrypted(self, one):
        one.boot()
        one.read_pages(PAGES)
        one.migrate()
        one.active()
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.storage_pages)

    def test_external_data_file(self):
        data = self.directory / 'data.img'
        path, content = self.images.qcow2(options=[
            'data_file=%s' % data, 'data_file_raw=on'])
        self.check_all(self.images.disk((path, 'qcow2')), content)

    def test_not_aligned(self):
        """A partition that begins at sector 63."""
        path, content = self.images.raw()
        self.check_all(spec.Disk(path=path), content, sector=63 + 8)

    def test_not_aligned_qcow2(self):
        """Pages lie across clusters; those in one piece are read."""
        path, content = self.images.qcow2(options=['cluster_size=4096'])
        self.scenario(self.images.disk((path, 'qcow2')), content,
                      sector=63 + 8)

    def test_raw_with_an_offset(self):
        raw, content = self.images.raw()
        path = self.directory / 'offset.img'
        path.write_bytes(bytes(12345 * 512) + content)
        self.check_all(self.images.disk(
            (path, 'raw'), offset=12345 * 512, size=len(content)), content)

    @staticmethod
    def export(one):
        """Make the destination's disk writable from outside.

        As the target of a mirror is: its image is in use already.
        """
        one.destination.start_incoming()
        path = one.destination.migration_socket.with_name('nbd.sock')
        one.destination.qmp('nbd-server-start', addr={
            'type': 'unix', 'data': {'path': str(path)}})
        one.destination.qmp('block-export-add', type='nbd', id='copy',
                            writable=True, **{'node-name': 'disk0-format'})

    def own_copy(self):
        path, content = self.images.qcow2()
        copy = self.directory / 'copy.qcow2'
        self.images.img('convert', '-O', 'qcow2', '-o', 'cluster_size=4096',
                        path, copy)
        return self.images.disk((path, 'qcow2')), content, {
            'destination': [self.images.disk((copy, 'qcow2'))],
            'copy': 'own'}

    def test_own_copy_that_is_mirrored_to(self):
        disk, content, given = self.own_copy()
        self.check_all(disk, content, export=True, **given)

    def test_own_copy_not_in_use(self):
        """A qcow2 that is to be activated yet cannot be read from."""
        disk, content, given = self.own_copy()
        outcome = self.check_none(disk, content, **given)
        self.assertEqual(len(PAGES), outcome.source.nack_io)

    def test_own_copy_of_another_format(self):
        path, content = self.images.qcow2()
        raw, _ = self.images.raw('copy.raw')
        self.check_all(self.images.disk((path, 'qcow2')), content,
                       destination=[self.images.disk((raw, 'raw'))],
                       copy='own')
