# SPDX-License-Identifier: Apache-2.0
"""A write that is under way while its range is cleared and read.

blkdebug stops the write in one of two places: before the bytes reach the
image, and after that, before the bit is set.
"""

from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from testkit import spec

WINDOWS = ('pwritev', 'pwritev_done')
#: Within the first step that is cleared and read.
OFFSET = 3 * rig.GRANULE + 4096
PATTERN = 0x5c


class WindowsTest(case.SeedCase):

    def check(self, window, inverted=False, late=False):
        """Have a write stop while the disk is read; seed and mirror.

        :param window: where it stops
        :param inverted: read before clearing
        :param late: it goes on after the two, not between them
        :returns: granules that differ
        """
        source = self.raw('source.img', self.random())
        one = self.rig(disk=spec.Disk(blockdev=(
            {'driver': 'file', 'node-name': 'disk0-file',
             'filename': str(source)},
            {'driver': 'blkdebug', 'node-name': 'disk0-debug',
             'image': 'disk0-file'},
            {'driver': 'raw', 'node-name': 'disk0-format',
             'file': 'disk0-debug'})))

        def begin():
            one.io('break', window, 'A')
            one.io('aio_write', '-q', '-P', PATTERN, OFFSET, 4096)
            one.io('wait_break', 'A')

        def end(offset):
            if offset == late * rig.STEP:
                one.io('resume', 'A')
                one.io('aio_flush')

        watch = one.watch()
        one.arm(watch, one.fill(watch, inverted, before=begin, between=end))
        one.mirror()
        self.assertEqual(bytes([PATTERN]) * 4096,
                         source.read_bytes()[OFFSET:OFFSET + 4096])
        return one.differing()

    def test_goes_on_after_reading(self):
        for window in WINDOWS:
            with self.subTest(window):
                self.assertEqual([], self.check(window, late=True))

    def test_goes_on_between_clearing_and_reading(self):
        for window in WINDOWS:
            with self.subTest(window):
                self.assertEqual([], self.check(window))

    def test_inverted(self):
        """Read, then cleared: the write is lost, and the disk is wrong."""
        self.assertEqual([OFFSET // rig.GRANULE],
                         self.check('pwritev', inverted=True))
