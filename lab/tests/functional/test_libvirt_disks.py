# SPDX-License-Identifier: Apache-2.0
"""libvirt's own block migration into targets that were filled before."""

import concurrent.futures
import contextlib
import os
import subprocess
import unittest

try:
    import libvirt
except ImportError as error:
    raise unittest.SkipTest(
        'libvirt cannot be tested: %s' % error) from error

from lab.tests.functional import test_libvirt
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.tests.functional.disks import built
from nova_dedup_migrate.tests.functional.hypervisor import suites
from testkit import libvirt as guests
from testkit import libvirt_options
from testkit import options
from testkit import qemus
from testkit import spec

setUpModule = test_libvirt.setUpModule

_SIZE = 4 * suites.MIB
#: Of the second disk, what the guest has written above its base.
_OVER = 1 << 20


class Port(built.Port):
    """As compute.disk_filler, of two disks.

    :param images: target -> (disk_objects.DedupImageFile, [its backing])
    """

    def __init__(self, test, images):
        super().__init__(test)
        self._images = images

    def targets(self):
        return list(self._images)

    def watch(self, target):
        self._test.image, self._test.backing = self._images[target]
        return super().watch(target)


class DisksTest(built.Agents, suites.Suite, test_libvirt.LibvirtCase):

    def check(self, armed):
        """Migrate; return the DiskWatch that was seen last."""
        source = self.started()
        target = self.dir / 'target.img'
        (device,) = source.disks().values()
        watch = source.watch_disk(device)
        source.clear_disk(watch.token, 0, watch.size)
        content = self.image.read_bytes()
        canary = os.urandom(watching.CANARY)
        target.write_bytes(canary + content[len(canary):])
        if armed:
            proven = (1 << watch.granules) - 2
            watch = source.arm_disk(
                watch.token, proven.to_bytes(watch.bitmap_bytes, 'little'),
                0, canary)
        (seen,) = self.block_migrate(source, {self.image: target})
        self.assertTrue(content == target.read_bytes())
        self.assertTrue(content == self.image.read_bytes())
        return watch, seen

    def block_migrate(self, source, targets, **given):
        """Migrate as Nova does; return the last DiskWatches seen.

        The destination has ended then.

        :param targets: image -> its target
        :param given: fields of the destination's GuestSpec
        """
        destination = self.make('destination', **given)
        destination.become(source)
        arguments = libvirt_options.parameters(
            options.MigrationOptions(max_bandwidth=64 * suites.MIB),
            destination.host.peer_uri)
        arguments.update(destination.migration_parameters(source))
        xml = arguments[libvirt.VIR_MIGRATE_PARAM_DEST_XML]
        for image, target in targets.items():
            xml = xml.replace(str(image), str(target))
        arguments[libvirt.VIR_MIGRATE_PARAM_DEST_XML] = xml
        arguments[libvirt.VIR_MIGRATE_PARAM_MIGRATE_DISKS] = list(
            source.disks())
        flags = (libvirt_options.flags(options.MigrationOptions(),
                                       source.unsafe)
                 | libvirt.VIR_MIGRATE_NON_SHARED_INC)
        seen = []
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            migrated = pool.submit(source.domain().migrateToURI3,
                                   destination.host.peer_uri, arguments,
                                   flags)
            while not migrated.done():
                with contextlib.suppress(errors.HypervisorError):
                    seen = source.disk_watches() or seen
            migrated.result()
        self.assert_works(destination)
        destination.destroy()
        return seen

    def test_seeded(self):
        armed, seen = self.check(True)
        self.assertEqual(('used', None), (seen.state, seen.reason))
        self.assertEqual(armed.granularity, seen.dirty)

    def test_not_armed(self):
        """All is copied, over whatever is there."""
        _, seen = self.check(False)
        self.assertIn('armed', seen.reason)

    def test_two_disks_are_built(self):
        """By the agents, one after the other; a raw one and an overlay."""
        self.directory = self.dir
        content = bytearray(self.image.read_bytes())
        content += os.urandom(_SIZE - len(content))
        self.image.write_bytes(content)
        base = self.dir / 'base.img'
        base.write_bytes(os.urandom(_SIZE))
        names = {self.image: self.dir / 'target.img',
                 self.dir / 'over.qcow2': self.dir / 'target.qcow2'}
        names[self.image].write_bytes(b'')
        os.truncate(names[self.image], _SIZE)
        over, over_target = list(names.items())[1]
        for path in over, over_target:
            self.tool('create', '-q', '-f', 'qcow2', '-b', base, '-F', 'raw',
                      path)
        disks = (spec.Disk(self.image), spec.Disk(over, 'qcow2'))
        source = self.make('source', disks=disks)
        source.start()
        self.write(source, 'vdb', '-s', self.image, 0, _OVER)
        self.begin_agents(lambda uuid: guests.LibvirtGuest.from_domain(
            source.host.connection.lookupByUUIDString(source.uuid)))
        self.hold(content)
        port = Port(self, {
            'vda': (_file(names[self.image], 'raw'), []),
            'vdb': (_file(over_target, 'qcow2'), [_file(base, 'raw')])})
        arm = port.arm

        def written(target):
            # in what is proven
            self.write(source, target, '-P', 5, 3 * 32768, 4096)
            return arm(target)

        port.arm = written
        self.build(port=port)
        self.assertEqual([('vda', ''), ('vdb', '')], [
            (disk.target, disk.reason) for disk in self.operation.disks])
        seen = self.block_migrate(source, names, disks=disks)
        self.assertEqual([('used', None)] * 2, [
            (watch.state, watch.reason) for watch in seen])
        # of each the canary's granule and the one that was written to
        self.assertLessEqual(sum(watch.dirty for watch in seen), 4 * 32768)
        for image, target in names.items():
            self.assertTrue(self.content(image) == self.content(target))

    def write(self, guest, target, *words):
        """Write to a disk of a guest as it would itself."""
        guest.qmp('human-monitor-command', **{
            'command-line': 'qemu-io -d /machine/peripheral/%s/'
            'virtio-backend "write -q %s"' % (
                guest.disks()[target], ' '.join(map(str, words)))})

    def tool(self, *words):
        """Run qemu-img."""
        subprocess.run([qemus.tool(qemus.find('patched', self.binary),
                                   'qemu-img'), *words], check=True)

    def content(self, image):
        """Return what a guest sees of an image."""
        if image.suffix != '.qcow2':
            return image.read_bytes()
        plain = self.dir / 'plain'
        self.tool('convert', '-f', 'qcow2', '-O', 'raw', image, plain)
        return plain.read_bytes()


def _file(path, image_format):
    return disk_objects.DedupImageFile(path=str(path), format=image_format)
