# SPDX-License-Identifier: Apache-2.0
"""What the tests of migrations share."""

from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.functional.migration import rig
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import qemus
from testkit import spec

#: Pages most tests use.
PAGES = range(scripted.FIRST, scripted.FIRST + 32)
ALL = range(scripted.FIRST, scripted.LAST + 1)


class MigrationCase(base.TestCase):
    """Tests with the scripted guest; faults can be injected on both sides."""

    timeout = 120
    accel = 'tcg'

    def setUp(self):
        self.binary = qemus.require(self, 'faulty')
        if self.accel == 'kvm' and not qemus.kvm_works():
            self.skipTest('/dev/kvm cannot be opened')
        super().setUp()
        self.directory = self.temporary_dir()

    def rig(self, drives=1, device='virtio-blk', noise=scripted.PAGE,
            **given):
        """Make a Rig over shared raw disks, or over the disks given."""
        contents = []
        disks = []
        for number in range(drives):
            path = self.directory / ('disk%d.raw' % number)
            contents.append(scripted.write_disk(
                path, seed=number + 1, boot=number == 0, noise=noise))
            disks.append(spec.Disk(path=path, device=device))
        given.setdefault('source_disks', disks)
        given.setdefault('destination_disks', given['source_disks'])
        given.setdefault('contents', contents)
        given.setdefault('accel', self.accel)
        given.setdefault('destination_binary', qemus.destination())
        given.setdefault('machine', qemus.machine())
        return rig.Rig(self, given.pop('binary', self.binary), **given)

    def begun(self, pages=PAGES, migration=None, step=8, **given):
        """Boot, read pages, begin to migrate; return the Rig."""
        one = self.rig(**given)
        one.boot()
        one.read_pages(pages, step=step)
        one.migrate(**(migration or {}))
        one.active()
        return one

    def assert_right(self, outcome):
        self.assertIsNone(outcome.failed)
        self.assertEqual(0, outcome.differing, outcome)
        self.assertEqual((), outcome.wrong, outcome)

    def assert_wrong_bytes(self, outcome):
        """Without its safeguard the guest has to get wrong memory."""
        self.assertIsNone(outcome.failed)
        self.assertTrue(outcome.wrong, 'it went well without: %s' % outcome)

    def assert_wrong(self, outcome):
        """With its safeguard taken out the scenario has to go wrong."""
        self.assertFalse(outcome.right, 'it went well without: %s'
                         % outcome)
