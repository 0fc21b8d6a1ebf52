# SPDX-License-Identifier: Apache-2.0
"""What the tests of seeded mirrors share."""

import random

from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.functional.migration import images
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import qemus
from testkit import spec

#: Its last granule is shorter than the others; some are zero.
SIZE = 2 * (1 << 20) + 3 * 4096
GRANULES = -(-SIZE // rig.GRANULE)


class SeedCase(base.TestCase):
    """Tests of one disk and one target."""

    timeout = 120

    def setUp(self):
        self.binary = qemus.require(self, 'patched')
        super().setUp()
        self.directory = self.temporary_dir()
        self.images = images.Images(self.directory, self.binary)

    def raw(self, name, content=None, size=SIZE):
        """Make a raw image; return its path."""
        path = self.directory / name
        with path.open('wb') as file:
            file.truncate(size)
            file.write(content or b'')
        return path

    def random(self, size=SIZE - (1 << 19), seed=1):
        return random.Random(seed).randbytes(size)

    def rig(self, **given):
        """A raw disk of a guest that never runs; its target is empty."""
        source = self.raw('source.img', self.random())
        target = self.raw('target.img')
        given.setdefault('disk', spec.Disk(path=source))
        one = rig.Rig(self, self.binary, target=spec.Disk(path=target),
                      image=(source, 'raw'), target_image=(target, 'raw'),
                      **given)
        one.start()
        return one

    def booted(self, form='raw', base=False, device='virtio-blk',
               iothread=False, target_format=None):
        """A Rig whose disk boots the scripted guest.

        :param form, target_format: raw or qcow2
        :param base: whether both images are over the same base image
        """
        boot, content = self.images.raw('boot.raw')
        size = len(content)
        target_format = target_format or form
        layers = []
        if base:
            layers = [(boot, 'raw')]
            source = self.images.overlay(boot, 'raw', 'source.img')
            target = self.images.overlay(boot, 'raw', 'target.img')
        else:
            source = boot
            if form == 'qcow2':
                source, _ = self.images.qcow2('source.img')
            target = self.directory / 'target.img'
            self.images.img('create', '-f', target_format, target, size)
        disk = self.images.disk(*layers, (source, form))
        one = rig.Rig(
            self, self.binary,
            disk=spec.Disk(blockdev=disk.blockdev, device=device,
                           iothread=iothread),
            target=self.images.disk(*layers, (target, target_format)),
            image=(source, form), target_image=(target, target_format),
            boot=True)
        one.start()
        return one

    #: Where the scripted guest writes: granules of 8 MiB and less.
    sectors = tuple(range(scripted.DATA, scripted.DATA + 800, 8))

    def check_mirror(self, one, share=0.5, sync='full'):
        """The guest writes during watching, filling and mirroring.

        :param one: a Rig that has booted
        :param share: of the disk, that is mirrored at most
        """
        with one.guest_writes(self.sectors[:30]):
            watch = one.watch()
            proven = one.fill(watch)
        with one.guest_writes(self.sectors[20:60], seed=97):
            armed = one.arm(watch, proven)
            mark = one.begin_mirror(sync=sync)
            copied = one.ready(mark)
        # and between that it is ready and its end
        with one.guest_writes(self.sectors[50:], seed=55):
            used = one.query()
        one.finish_mirror(mark)
        self.assertEqual(('used', None), (used.state, used.reason))
        self.assertLess(used.dirty, share * armed.size)
        self.assertLess(copied, share * armed.size)
        self.assert_same(one)

    def assert_same(self, one):
        """Every byte of the target is that of the disk."""
        self.assertEqual([], one.differing())
