# SPDX-License-Identifier: Apache-2.0
"""Storage changes between the record and the read."""

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.migration import case
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import spec

PAGES = case.PAGES
OTHER = PAGES[-1] + 1
SLOW = 'fetch-delay-us=2500000'


class DiskChangesTest(case.MigrationCase):

    def scenario(self, change, inject='', refused=True):
        one = self.begun(inject=SLOW + inject)
        one.recorded(len(PAGES))
        self.assertEqual(0, one.arrived().fetched_pages, 'too late')
        with one.frozen():
            for number in range(len(PAGES)):
                change(one, scripted.DATA + number * 8)
        if not inject:
            one.until(lambda: one.figures().outstanding == 0, 'answers')
        else:
            one.until(lambda: one.arrived().record_pages
                      and not one.arrived().backlog, 'the fetch')
        outcome = one.finish()
        if refused and not inject:
            self.assertEqual(len(PAGES), outcome.source.nack_digest)
        return outcome

    def another_page(self, one, sector):
        one.guest.fill(OTHER, sector & 0xff)
        one.guest.write(OTHER, sector)

    def outside(self, command):
        """Something that is not a DMA from the guest's memory."""
        def change(one, sector):
            said = one.source.qmp(
                'human-monitor-command',
                **{'command-line': 'qemu-io -d /machine/peripheral/disk0'
                   '/virtio-backend "%s"'
                   % command.format(at=sector * scripted.SECTOR)})
            self.assertEqual('', said)
        return change

    def test_another_page(self):
        self.assert_right(self.scenario(self.another_page))

    def test_another_page_broken(self):
        self.assert_wrong(self.scenario(self.another_page, ',no-verify'))

    def test_written_around_memory(self):
        self.assert_right(self.scenario(
            self.outside('write -P 0x5a {at} 4k')))

    def test_written_around_memory_broken(self):
        self.assert_wrong(self.scenario(
            self.outside('write -P 0x5a {at} 4k'), ',no-verify'))

    def test_write_zeroes(self):
        self.assert_right(self.scenario(self.outside('write -z {at} 4k')))

    def test_discard(self):
        self.assert_right(self.scenario(self.outside('discard {at} 4k'),
                                        refused=False))

    def test_half_a_page(self):
        self.assert_right(self.scenario(
            self.outside('write -P 0x5a {at} 512')))

    def test_written_by_somebody_else(self):
        def change(one, sector):
            with open(one.spec.disks[0].path, 'r+b') as image:
                image.seek(sector * scripted.SECTOR)
                image.write(b'\xa5' * 100)
        self.assert_right(self.scenario(change))

    def test_same_bytes_written_again(self):
        """No reason to refuse."""
        def change(one, sector):
            page = PAGES[(sector - scripted.DATA) // 8]
            one.guest.write(page, sector)
        outcome = self.scenario(change, refused=False)
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.storage_pages)


class WrongDiskTest(case.MigrationCase):
    """The destination has a disk that holds other bytes."""

    def scenario(self, inject='', **given):
        wrong = self.directory / 'wrong.raw'
        scripted.write_disk(wrong, seed=77)
        one = self.begun(inject=inject,
                         destination_disks=[spec.Disk(path=wrong)], **given)
        if not inject:
            one.until(lambda: one.figures().outstanding == 0, 'answers')
        else:
            one.fetched(len(PAGES))
        return one.finish()

    def test_all_refused(self):
        outcome = self.scenario()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.nack_digest)
        self.assertEqual(0, outcome.source.storage_pages)

    def test_all_refused_multifd(self):
        self.assert_right(self.scenario(migration={'multifd_channels': 2}))

    def test_all_refused_broken(self):
        self.assert_wrong(self.scenario('no-verify'))

    def test_falls_back_in_flight(self):
        """After 512 refusals that outnumber successes: no more records."""
        wrong = self.directory / 'wrong.raw'
        scripted.write_disk(wrong, seed=77)
        one = self.rig(destination_disks=[spec.Disk(path=wrong)])
        one.boot()
        one.read_pages(case.ALL)
        one.migrate()
        one.active()
        for _ in range(8):
            if one.figures().state == 'draining':
                break
            one.until(lambda: one.figures().outstanding == 0, 'answers')
            wanted = one.figures().record_pages + len(case.ALL)
            one.read_pages(case.ALL)
            one.until(lambda wanted=wanted: one.figures().state == 'draining'
                      or one.figures().record_pages >= wanted, 'records')
        one.until(lambda: one.figures().state == 'draining', 'fall-back')
        self.assertIn('refused', one.figures().reason)
        sent = one.figures().record_pages
        one.read_pages(case.ALL)
        one.rounds()
        self.assertEqual(sent, one.figures().record_pages)
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertIn('refused', outcome.source.reason)

    def test_one_of_two(self):
        """A wrong disk does not spoil the other one."""
        wrong = self.directory / 'wrong.raw'
        scripted.write_disk(wrong, seed=77, boot=False)
        one = self.rig(drives=2)
        one.new_destination(disks=(one.spec.disks[0],
                                   spec.Disk(path=wrong)))
        one.boot()
        one.read_pages(PAGES)
        one.read_pages(range(OTHER, OTHER + 16), drive=1)
        one.migrate()
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.storage_pages)
        self.assertEqual(16, outcome.source.nack_digest)

    def test_shorter(self):
        wrong = self.directory / 'short.raw'
        wrong.write_bytes(scripted.boot_sector() + bytes(64 << 10))
        one = self.begun(destination_disks=[spec.Disk(path=wrong)])
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(len(PAGES), outcome.source.nack_io
                         + outcome.source.nack_digest)


class ExceptionsTest(case.MigrationCase):
    """Single disks are treated otherwise, as x-dedup-arm says."""

    def scenario(self, **exception):
        one = self.rig(drives=2)
        one.boot()
        one.read_pages(PAGES[:16])
        one.read_pages(PAGES[16:], drive=1)
        one.migrate(disks=[{
            'device': '/machine/peripheral/disk1/virtio-backend',
            **exception}])
        one.active()
        one.until(lambda: one.figures().outstanding == 0, 'answers')
        outcome = one.finish()
        self.assert_right(outcome)
        return outcome.source

    def test_not_used(self):
        self.assertEqual(16, self.scenario(use=False).record_pages)

    def test_own_copy(self):
        self.assertEqual(32, self.scenario(copy='own').storage_pages)

    def by_id(self, device):
        one = self.rig(device=device)
        one.boot()
        one.read_pages(PAGES)
        one.migrate(disks=[{'device': 'disk0', 'use': False}])
        one.active()
        one.rounds()
        outcome = one.finish()
        self.assert_right(outcome)
        self.assertEqual(0, outcome.source.record_pages)

    def test_by_id_virtio_scsi(self):
        self.by_id('virtio-scsi')

    def test_by_id_virtio_blk(self):
        """Its backend belongs to a child of the device with the ID."""
        self.by_id('virtio-blk')

    def test_unknown_disk(self):
        one = self.rig()
        one.boot()
        self.assertRaises(errors.QmpError, one.source.arm_dedup,
                          disks=[{'device': 'floppy', 'use': False}])
