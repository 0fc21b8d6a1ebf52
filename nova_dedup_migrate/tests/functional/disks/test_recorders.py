# SPDX-License-Identifier: Apache-2.0
"""Watches that only record writes, and mirrors that nothing has prepared.

The disk is an overlay, of which an ordinary mirror copies what is allocated.
Every byte is compared after each of them.
"""

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig

SIZE = case.SIZE
GRANULE = rig.GRANULE


class RecordersTest(case.SeedCase):

    def setUp(self):
        super().setUp()
        base = self.raw('base.img', self.random())
        source, target = (self.images.overlay(base, 'raw', name)
                          for name in ('source.img', 'target.img'))
        self.one = rig.Rig(
            self, self.binary,
            self.images.disk((base, 'raw'), (source, 'qcow2')),
            self.images.disk((base, 'raw'), (target, 'qcow2')),
            (source, 'qcow2'), (target, 'qcow2'))
        self.one.start()

    def write(self, granule, value):
        self.one.io('write', '-q', '-P', value, granule * GRANULE, GRANULE)

    def recorded(self, recorder=watching.REPLICA):
        """Watch the disk, with all of it read."""
        watch = self.one.watch(recorder)
        self.assertEqual(recorder, watch.recorder)
        self.one.source.clear_disk(watch.token, 0, SIZE)
        return watch

    def assert_refused(self, text, function, *args, **given):
        error = self.assertRaises(errors.QmpError, function, *args, **given)
        self.assertIn(text, str(error))

    def pivot(self, mark):
        """End a job with its target as the guest's disk."""
        self.one.source.qmp('block-job-complete', device='mirror')
        self.one.source.events.wait('BLOCK_JOB_COMPLETED', mark, 60)

    def test_mirror_that_nothing_has_prepared(self):
        """It is an ordinary one, and the record goes on."""
        self.write(3, 1)
        watch = self.recorded()
        self.write(20, 2)
        mark = self.one.begin_mirror(sync='top')
        self.assertLessEqual(self.one.ready(mark), 4 * GRANULE)
        self.write(30, 3)
        self.one.finish_mirror(mark)
        found = self.one.query()
        self.assertEqual(('watching', None, watching.REPLICA),
                         (found.state, found.reason, found.recorder))
        self.assertEqual([20, 30], self.one.dirty(watch))
        self.assertEqual([], self.one.differing())

    def test_guest_that_has_another_disk(self):
        """The record ends with a copy that the guest goes on with."""
        watch = self.recorded()
        self.write(3, 1)
        mark = self.one.begin_mirror(sync='top')
        self.one.ready(mark)
        self.pivot(mark)
        self.assertIn('another node', self.one.query().reason)
        self.assert_refused('another node', self.one.source.claim_disk,
                            watch.token)
        self.one.image = self.one.target_image
        self.write(4, 2)
        self.assertEqual([], self.one.differing())

    def fill_claimed(self, claim):
        """Fill the target by what is recorded, and give up before arming."""
        watch = self.recorded()
        if claim:
            watch = self.one.source.claim_disk(watch.token)
            self.assertIsNone(watch.recorder)
        self.one.fill(watch)
        # what was filled is wrong, in a hole of the disk
        with self.one.writer() as writer:
            writer.pwrite(b'w' * GRANULE, 7 * GRANULE)
        return self.one.mirror(sync='top')

    def test_claimed(self):
        """Somebody has written to the target: everything is copied."""
        self.assertGreaterEqual(self.fill_claimed(True), SIZE - (1 << 19))
        self.assertIn('before the disk was armed', self.one.query().reason)
        self.assertEqual([], self.one.differing())

    def test_not_claimed(self):
        """This is why it has to be claimed before the target is filled."""
        self.fill_claimed(False)
        # the canary, too
        self.assertEqual([0, 7], self.one.differing())

    def test_claimed_and_armed(self):
        watch = self.recorded()
        self.write(9, 1)
        proven = self.one.fill(self.one.source.claim_disk(watch.token),
                               skip=(20,))
        self.write(9, 2)
        self.one.arm(watch, proven)
        self.assertLessEqual(self.one.mirror(sync='top'), 3 * GRANULE)
        self.assertEqual(('used', None), (self.one.query().state,
                                          self.one.query().reason))
        self.assertEqual([], self.one.differing())

    def test_armed_without_a_claim(self):
        watch = self.recorded()
        self.assert_refused('claim it before', self.one.arm, watch,
                            bytes(watch.bitmap_bytes))
        self.assertEqual('watching', self.one.query().state)

    def test_beside_each_other(self):
        """Each has a watch of its own; a mirror takes its own only."""
        replica = self.recorded(watching.REPLICA)
        self.write(1, 1)
        volume = self.recorded(watching.VOLUME)
        self.write(2, 2)
        armed = self.one.seeded()
        self.write(3, 3)
        again = self.one.watch(watching.VOLUME)
        self.assertEqual({replica.token, armed.token, again.token}, {
            watch.token for watch in self.one.source.disk_watches()})
        self.assertNotEqual(volume.token, again.token)
        self.assertLessEqual(self.one.mirror(sync='top'), 2 * GRANULE)
        self.assertEqual('used', self.one.query(armed.token).state)
        self.assertEqual([1, 2, 3], self.one.dirty(replica))
        self.assertEqual(case.GRANULES, len(self.one.dirty(again)))
        self.assertEqual([], self.one.differing())

    def test_recording_leaves_a_mirrors_watch(self):
        """Its target may have been filled."""
        watch = self.one.watch()
        self.one.fill(watch)
        with self.one.writer() as writer:
            writer.pwrite(b'w' * GRANULE, 7 * GRANULE)
        self.recorded()
        self.one.mirror(sync='top')
        self.assertIn('before the disk was armed',
                      self.one.query(watch.token).reason)
        self.assertEqual([], self.one.differing())

    def test_claim_forgets_the_mirrors_watch(self):
        """That was of a target that is removed."""
        watch = self.recorded()
        self.one.seeded()
        claimed = self.one.source.claim_disk(watch.token)
        self.assertEqual((claimed,), self.one.source.disk_watches())
        # twice is once
        self.assertEqual(claimed, self.one.source.claim_disk(watch.token))

    def test_claim_in_a_job(self):
        """The job keeps the watch that it has taken."""
        self.write(3, 1)
        watch = self.recorded()
        armed = self.one.seeded()
        mark = self.one.begin_mirror(sync='top')
        self.one.ready(mark)
        self.one.source.claim_disk(watch.token)
        self.assertEqual('used', self.one.query(armed.token).state)
        self.write(5, 2)
        self.one.finish_mirror(mark)
        self.assertEqual([5], self.one.dirty(watch))
        self.assertEqual([], self.one.differing())

    def test_refused(self):
        guest = self.one.source
        for name in '', '1', 'a b', 'x' * 33, '../x':
            self.assert_refused('recorder', self.one.watch, name)
        self.assert_refused('token', guest.claim_disk, 'x')
        self.one.seeded()
        self.assert_refused('before', guest.claim_disk,
                            self.one.query().token)
        guest.drop_disk(self.one.query().token)
        for number in range(128):
            self.one.watch('r%d' % number)
        self.assert_refused('128 watches', self.one.watch, 'r128')
        # in place of its own
        self.one.watch('r0')
        self.assertEqual(128, len(guest.disk_watches()))
        self.one.end()
