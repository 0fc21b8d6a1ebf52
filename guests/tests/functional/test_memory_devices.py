# SPDX-License-Identifier: Apache-2.0
"""Memory that comes and goes while a guest is migrated.

Linux gives pages up to a balloon, calls pages free, gets memory from a
virtio-mem device and loses a DIMM.  What it has given up may differ at the
destination, as with stock QEMU; nothing else may.
"""

import dataclasses

from guests.tests.functional import linux
from testkit import options

MIB = 1 << 20
PAGE = 4096
_ZERO = bytes(PAGE)
#: More memory can be plugged into such a guest.
_SLOTS = ('-m', 'slots=4,maxmem=1G')


def differing(here, there):
    """Yield the pages at the source that differ at the destination."""
    for one, other in zip(here.files, there.files, strict=True):
        with open(one.path, 'rb') as first, open(other.path, 'rb') as second:
            while page := first.read(PAGE):
                if page != second.read(PAGE):
                    yield page


class MemoryDevicesCase(linux.LinuxCase):

    def under_way(self, source, **given):
        """Begin a slow migration; return (destination, migration).

        Pages were fetched before this returns.
        """
        destination = self.guest(self.spec, 'destination')
        source.arm_dedup(defer_redirtied=True, compression={})
        migration = source.migrate(destination, options.MigrationOptions(
            paused=True, max_bandwidth=3 * MIB, **given))
        self.eventually(
            lambda: source.dedup_statistics().source.storage_pages > 500,
            'fetched pages')
        return destination, migration

    def arrive(self, source, destination, migration):
        """Let it complete; return pages of the source that differ.

        The guest has verified its files and memory at the destination.
        """
        migration.set_rate(None)
        last = migration.wait(120)
        self.assertGreater(last.dedup.source.storage_pages,
                           0.3 * (linux.MIB << 8))
        here = source.save_memory(self.directory / 'source')
        there = destination.save_memory(self.directory / 'destination')
        found = list(differing(here, there))
        self.talk = self.connect(destination)
        destination.cont()
        source.destroy()
        self.verify()
        return found


class BalloonTest(MemoryDevicesCase):

    devices = ('-device', 'virtio-balloon-pci')
    full = 160 * MIB
    small = 120 * MIB

    def resize(self, guest, size):
        guest.qmp('balloon', value=size)
        self.eventually(
            lambda: guest.qmp('query-balloon')['actual'] == size,
            f'a guest with {size} bytes')

    def check(self, **given):
        source = self.boot(['virtio-blk'], extra_args=self.devices)
        destination, migration = self.under_way(source, **given)
        for size in (self.small, self.full, self.small):
            self.resize(source, size)
        found = self.arrive(source, destination, migration)
        # these are in the balloon: the source has dropped them
        self.assertEqual([], [page for page in found if page != _ZERO])
        self.resize(destination, self.full)

    def test_inflated_and_deflated(self):
        self.check()

    def test_inflated_and_deflated_multifd(self):
        self.check(multifd_channels=2)


class FreePageHintsTest(MemoryDevicesCase):
    """QEMU does not send what the guest says is free."""

    devices = ('-object', 'iothread,id=hints', '-device',
               'virtio-balloon-pci,free-page-hint=on,iothread=hints')

    def check(self, **given):
        source = self.boot(['virtio-blk'], extra_args=self.devices)
        destination, migration = self.under_way(source, **given)
        ram = {}

        def enough():
            ram.update(source.qmp('query-migrate')['ram'])
            return left_out() > 64 * MIB or ram['transferred'] > 12 * MIB

        def left_out():
            return ram['total'] - ram['remaining'] - ram['transferred']

        self.eventually(enough, 'pages that are left out')
        # without hints, these are 26 MB by then
        self.assertGreater(left_out(), 64 * MIB)
        self.arrive(source, destination, migration)

    def test_hints(self):
        self.check()

    def test_hints_multifd(self):
        self.check(multifd_channels=2)


class VirtioMemTest(MemoryDevicesCase):

    devices = (*_SLOTS, '-object',
               'memory-backend-ram,id=memory,size=128M', '-device',
               'virtio-mem-pci,id=device,memdev=memory,requested-size=64M')

    def device(self, guest):
        (found,) = guest.qmp('query-memory-devices')
        return found['data']

    def resize(self, guest, size):
        guest.qmp('qom-set', path='device', property='requested-size',
                  value=size)
        self.eventually(lambda: self.device(guest)['size'] == size,
                        f'{size} bytes that are plugged')

    def content(self, guest):
        """What is in the device, not plugged parts included."""
        path = self.temporary_dir() / 'memory'
        device = self.device(guest)
        guest.qmp('pmemsave', val=device['memaddr'],
                  size=device['max-size'], filename=str(path))
        return path.read_bytes()

    def check(self, **given):
        source = self.boot(['virtio-blk'], extra_args=self.devices,
                           append=' memhp_default_state=online')
        self.resize(source, 64 * MIB)
        destination, migration = self.under_way(source, **given)
        # it waits until the migration has ended
        source.qmp('qom-set', path='device', property='requested-size',
                   value=16 * MIB)
        migration.set_rate(None)
        migration.wait(120)
        here, there = self.content(source), self.content(destination)
        self.assertNotEqual(_ZERO * (len(here) // PAGE), here)
        self.assertTrue(here == there)
        self.assertEqual(
            [], self.arrive(source, destination, migration))
        self.resize(destination, 96 * MIB)

    def test_partly_plugged(self):
        self.check()

    def test_partly_plugged_multifd(self):
        self.check(multifd_channels=2)


class DimmTest(MemoryDevicesCase):
    """The guest gives a DIMM back after the migration has begun.

    As with stock QEMU, it does not end then: the DIMM's pages are never
    sent.  It is given up, and nothing of the DIMM is left.
    """

    dimm = ('-object', 'memory-backend-ram,id=memory,size=128M', '-device',
            'pc-dimm,id=dimm,memdev=memory')

    def plugged(self):
        source = self.boot(['virtio-blk'], extra_args=_SLOTS)
        mark = source.events.mark()
        source.qmp('object-add', **{
            'qom-type': 'memory-backend-ram', 'id': 'memory',
            'size': 128 * MIB})
        source.qmp('device_add', driver='pc-dimm', id='dimm',
                   memdev='memory')
        source.events.wait('ACPI_DEVICE_OST', mark, 30)
        return source

    def check(self, **given):
        source = self.plugged()
        without = self.spec
        self.spec = dataclasses.replace(
            without, extra_args=_SLOTS + self.dimm)
        source.pause()
        # the guest is to see this in the migration
        source.qmp('device_del', id='dimm')
        _, migration = self.under_way(source, **given)
        source.cont()
        self.eventually(lambda: not source.qmp('query-memory-devices'),
                        'a DIMM that is gone')
        migration.set_rate(None)
        self.eventually(
            lambda: source.qmp('query-migrate')['ram']['remaining']
            <= 130 * MIB, 'the other memory that was sent')
        migration.cancel()
        self.spec = without
        destination, migration = self.under_way(source, **given)
        self.assertEqual([], self.arrive(source, destination, migration))

    def test_removed(self):
        self.check()

    def test_removed_multifd(self):
        self.check(multifd_channels=2)
