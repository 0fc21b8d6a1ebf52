# SPDX-License-Identifier: Apache-2.0
"""How many hints still hold, and what memory holds: x-dedup-sample-*."""

import base64

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import spec

PAGES = case.PAGES
STALE = PAGES[:12]


class SampleTest(case.MigrationCase):

    def booted(self, pages=PAGES, **given):
        one = self.rig(**given)
        one.boot()
        one.read_pages(pages)
        return one

    def stale(self, **given):
        """A guest that has changed some of the pages it has read."""
        one = self.booted(**given)
        for page in STALE:
            one.guest.poke(page, 4095)
        return one

    def sample(self, one, pages=4096, count=32):
        """Return the sample, once so many pages were compared.

        QEMU stops after half a second, however busy the machine is.
        """
        def complete():
            found = one.source.sample_hints(pages)
            return (found if sum(disk.sampled for disk in found) == count
                    else None)
        return self.eventually(complete, '%d pages compared' % count)

    def test_all_hold(self):
        one = self.booted()
        before = one.source.dedup_statistics().hints
        self.assertEqual(len(PAGES), before.pages)
        (found,) = self.sample(one)
        self.assertEqual(
            statistics.DiskHints('disk0', 32, sampled=32, valid=32), found)
        # Reading made no hints.
        self.assertEqual(before, one.source.dedup_statistics().hints)

    def test_the_guest_has_changed_pages(self):
        """One byte, at the end, is enough."""
        (found,) = self.sample(self.stale())
        self.assertEqual(
            statistics.DiskHints('disk0', 32, sampled=32, valid=20), found)

    def test_without_the_comparison(self):
        """It is what finds stale hints."""
        one = self.stale(source_inject='no-compare=1')
        (found,) = self.sample(one)
        self.assertEqual(32, found.valid)

    def test_written_back(self):
        one = self.stale()
        for number, page in enumerate(STALE):
            one.guest.write(page, scripted.DATA + number * 8)
        (found,) = self.sample(one)
        self.assertEqual((32, 32), (found.sampled, found.valid))

    def test_another_hint_for_a_page(self):
        one = self.stale()
        one.read_pages(STALE, sector=scripted.DATA + 800)
        (found,) = self.sample(one)
        self.assertEqual((32, 32), (found.sampled, found.valid))

    def test_some(self):
        one = self.stale()
        (found,) = self.sample(one, 10, 10)
        self.assertEqual((32, 10), (found.pages, found.sampled))
        self.assertLessEqual(found.valid, 10)

    def test_they_are_random(self):
        """Each page has the same chance, wherever it lies."""
        one = self.stale()
        drawn = valid = 0
        for _ in range(100):
            (found,) = self.sample(one, 8, 8)
            drawn += found.sampled
            valid += found.valid
        self.assertEqual(800, drawn)
        # 20 of 32, within seven standard deviations
        self.assertAlmostEqual(20 / 32, valid / drawn, delta=0.1)

    def test_each_disk_by_itself(self):
        one = self.rig(drives=2)
        one.boot()
        one.read_pages(PAGES[:20])
        one.read_pages(PAGES[20:], drive=1)
        one.guest.poke(PAGES[25])
        found = {disk.device: disk
                 for disk in self.sample(one)}
        self.assertEqual(
            {'disk0': statistics.DiskHints('disk0', 20, 20, 20),
             'disk1': statistics.DiskHints('disk1', 12, 12, 11)}, found)

    def test_what_arm_takes(self):
        """The names are those of x-dedup-arm, whatever the disk is."""
        for device in 'virtio-blk', 'virtio-scsi':
            with self.subTest(device):
                one = self.booted(device=device)
                (found,) = self.sample(one)
                self.assertEqual((32, 32), (found.sampled, found.valid))
                one.source.arm_dedup(disks=[
                    {'device': found.device, 'use': False}])
                self.assertEqual(found.device, one.source.disks()['disk0'])
                one.source.destroy()

    def test_a_disk_with_an_iothread(self):
        path = self.directory / 'other.raw'
        content = scripted.write_disk(path)
        one = self.rig(source_disks=[spec.Disk(path=path, iothread=True)],
                       contents=[content])
        one.boot()
        one.read_pages(PAGES)
        one.guest.poke(PAGES[3])
        (found,) = self.sample(one)
        self.assertEqual((32, 31), (found.sampled, found.valid))

    def test_nothing_recorded(self):
        one = self.rig()
        one.boot(track=False)
        one.read_pages(PAGES)
        self.assertEqual((), one.source.sample_hints())

    def test_reads_fail(self):
        """A hint that cannot be read is of no use."""
        one = self.booted()
        self.replace(one, driver='blkdebug', image='disk0-file', **{
            'inject-error': [{'event': 'none', 'iotype': 'read',
                              'errno': 5}]})
        (found,) = self.sample(one)
        self.assertEqual((32, 0), (found.sampled, found.valid))

    def test_storage_hangs(self):
        """The command ends, and the monitor takes the next one."""
        one = self.booted(extra_args=(
            '-object', 'throttle-group,id=crawl,x-bps-read=4096,'
            'x-bps-read-max=4096'))
        self.replace(one, driver='throttle', file='disk0-file', **{
            'throttle-group': 'crawl'})
        (found,) = one.source.sample_hints(4096)
        self.assertEqual(32, found.pages)
        self.assertLess(found.sampled, 32)
        self.assertEqual(found.sampled, found.valid)
        self.assertEqual('running', one.source.run_state())
        # and what was left behind does no harm
        one.source.destroy()

    def test_unplugged_while_a_read_hangs(self):
        """What is left behind lets go of the disk when its read ends."""
        one = self.rig(drives=2, device='virtio-scsi', extra_args=(
            '-object', 'throttle-group,id=crawl,x-bps-read=4096,'
            'x-bps-read-max=4096'))
        one.boot()
        one.read_pages(PAGES[:16])
        one.read_pages(PAGES[16:], drive=1)
        self.replace(one, 'disk1', driver='throttle', file='disk1-file', **{
            'throttle-group': 'crawl'})
        def sample():
            found = {disk.device: disk for disk in one.source.sample_hints()}
            return found if found['disk0'].sampled == 16 else None
        found = self.eventually(sample, 'all of the other disk')
        self.assertEqual(16, found['disk0'].valid)
        self.assertLess(found['disk1'].sampled, 16)
        mark = one.source.events.mark()
        one.source.qmp('device_del', id='disk1')
        one.source.events.wait('DEVICE_DELETED', mark, 30)
        self.eventually(lambda: self.deleted(one), 'deleting the node')
        (found,) = self.sample(one, count=16)
        self.assertEqual(('disk0', 16), (found.device, found.valid))

    def deleted(self, one):
        try:
            one.source.qmp('blockdev-del', **{'node-name': 'disk1-format'})
        except errors.QmpError as error:
            self.assertIn('in use', str(error))
            return False
        return True

    def replace(self, one, disk='disk0', **node):
        """Put a filter below the disk's node."""
        one.source.qmp('blockdev-add', **{'node-name': 'fault', **node})
        one.source.qmp('blockdev-reopen', options=[
            {'driver': 'raw', 'node-name': disk + '-format', 'file': 'fault',
             'cache': {'direct': True, 'no-flush': False}}])

    def check_counted(self, one):
        self.assertEqual((statistics.DiskHints('disk0', 32),),
                         one.source.sample_hints())

    def test_a_guest_that_is_stopped(self):
        one = self.booted()
        one.source.pause()
        self.check_counted(one)
        one.source.cont()
        (found,) = self.sample(one)
        self.assertEqual(32, found.valid)

    def test_during_a_migration(self):
        one = self.booted()
        one.migrate()
        one.active()
        self.check_counted(one)
        self.assert_right(one.finish())

    def test_before_a_migration(self):
        """It changes nothing for the migration that follows."""
        one = self.stale()
        one.source.sample_hints(4096)
        one.migrate()
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(20, outcome.source.storage_pages)

    def test_numbers_out_of_range(self):
        one = self.booted()
        for pages in 0, 4097:
            error = self.assertRaises(errors.QmpError,
                                      one.source.sample_hints, pages)
            self.assertIn('1 to 4096', str(error))


class MemoryTest(case.MigrationCase):
    """What a sample of the memory holds: x-dedup-sample-compression."""

    def sample(self, one):
        """Return a sample of all memory; QEMU ends after half a second."""
        def complete():
            found = one.source.sample_compression(65536)
            return found if found.pages >= 8192 else None
        return self.eventually(complete, 'all memory sampled')

    def booted(self, noise, track=True):
        one = self.rig(noise=noise)
        one.boot(track=track)
        one.guest.hum(0)
        one.read_pages(case.ALL)
        return one

    def test_pages_of_all_kinds(self):
        one = self.booted(noise=scripted.PAGE)
        found = self.sample(one)
        self.assertGreaterEqual(found.hinted_pages, len(case.ALL))
        self.assertGreater(found.zero_pages, 0.8 * found.pages)
        self.assertGreater(found.sampled_pages, 0)
        self.assertLess(found.ratio, 1.0)

    def test_noise_and_text(self):
        """Without hints all pages are compressed."""
        ratios = []
        for noise in scripted.PAGE, scripted.PAGE // 8:
            one = self.booted(noise, track=False)
            found = self.sample(one)
            one.source.destroy()
            self.assertGreaterEqual(found.sampled_pages, len(case.ALL))
            self.assertEqual(0, found.hinted_pages)
            ratios.append(found.ratio)
        self.assertLess(ratios[1], 0.8 * ratios[0])

    def test_bad_numbers(self):
        one = self.rig()
        one.boot()
        for pages in 0, 65537:
            self.assertRaises(errors.QmpError, one.source.sample_compression,
                              pages)


class DigestsTest(case.MigrationCase):
    """What was written to between two samples: x-dedup-sample-digests."""

    def setUp(self):
        super().setUp()
        self.one = self.rig()
        self.one.boot()
        self.one.guest.hum(0)
        self.one.read_pages(PAGES)

    def sample(self, seed=1, **given):
        """Return the digests; by default those of all pages."""
        given.setdefault('pages', 65536)
        found = self.one.source.qmp('x-dedup-sample-digests', seed=seed,
                                    **given)
        flat = base64.b64decode(found['digests'], validate=True)
        self.assertEqual(4 * min(found['pages'], given['pages']), len(flat))
        return [flat[at:at + 4] for at in range(0, len(flat), 4)]

    def differing(self, before, after):
        return sum(one != other for one, other in zip(before, after,
                                                      strict=True))

    def own(self):
        """Return how many pages the BIOS writes to by itself meanwhile."""
        before = self.sample()
        self.one.guest.poke(PAGES[0], 0)
        return self.differing(before, self.sample()) - 1

    def test_each_byte_counts(self):
        own = max(self.own() for _ in range(3))
        before = self.sample()
        for number, page in enumerate(PAGES):
            self.one.guest.poke(page, number * 4095 // (len(PAGES) - 1))
        found = self.differing(before, self.sample())
        self.assertGreaterEqual(found, len(PAGES))
        self.assertLessEqual(found, len(PAGES) + own)

    def test_nothing_is_written(self):
        self.one.source.pause()
        self.assertEqual(self.sample(), self.sample())
        self.assertEqual(self.sample(pages=100), self.sample(pages=100))

    def test_the_seed_is_a_key(self):
        self.one.source.pause()
        one, other = self.sample(1), self.sample(2)
        self.assertEqual(len(one), self.differing(one, other))

    def test_other_pages_with_another_seed(self):
        """Almost all pages are zero: how many differ tells which they are."""
        self.one.source.pause()
        def zeros(seed):
            found = self.sample(seed, pages=1000)
            most = max(set(found), key=found.count)
            return [one == most for one in found]
        self.assertEqual(zeros(1), zeros(1))
        self.assertGreater(len({tuple(zeros(seed)) for seed in range(9)}), 1)

    def test_numbers_out_of_range(self):
        for pages in 0, 65537:
            error = self.assertRaises(
                errors.QmpError, self.one.source.qmp,
                'x-dedup-sample-digests', seed=1, pages=pages)
            self.assertIn('1 to 65536', str(error))

    def test_nothing_has_arrived(self):
        self.one.destination.start_incoming()
        error = self.assertRaises(
            errors.QmpError, self.one.destination.qmp,
            'x-dedup-sample-digests', seed=1)
        self.assertIn('has not arrived', str(error))
