# SPDX-License-Identifier: Apache-2.0
"""Nova's own swap of a volume of a real QEMU, to its end or aborted.

libvirt's part is done here by QMP, as libvirt does it.
"""

import contextlib
import types
from unittest import mock

import libvirt
from nova import exception
from nova import objects
import nova.conf
from nova.virt.libvirt import config
from nova.virt.libvirt import driver as libvirt_driver
from nova.virt.libvirt import guest as libvirt_guest

from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import volume_swaps
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.swaps import running
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.functional.swaps import volume
from nova_dedup_migrate.tests.unit.compute import fakes

CONF = nova.conf.CONF
OLD = '33333333-0000-4000-8000-000000000003'
NEW = '44444444-0000-4000-8000-000000000004'
_DISK = 'vda'
_JOB = 'copy'
_NODE = 'copy-target'


class Domain:
    """A libvirt.virDomain of one disk, as far as Nova calls it.

    :ivar rate: bytes/s of the mirror, 0: as it comes
    :ivar seen: called at each look at the mirror
    :ivar ready: called when the mirror is shown to be ready
    """

    def __init__(self, one, emulator, new):
        self._one = one
        self._emulator = emulator
        self._new = new
        self._source = str(one.image[0])
        self.rate = 0
        self.seen = lambda: None
        self.ready = lambda: None
        self.defined = True

    def UUIDString(self):
        return fakes.UUID

    def isPersistent(self):
        return self.defined

    def undefineFlags(self, flags):
        self.defined = False

    def XMLDesc(self, flags=0):
        job, mirror = self._job(), ''
        if job is not None:
            if job['ready']:
                self.ready()
            mirror = '<mirror ready="%s"/>' % (
                'yes' if job['ready'] else 'no')
        return ('<domain><devices><emulator>%s</emulator><disk type="file" '
                'device="disk"><source file="%s"/><target dev="%s"/>%s'
                '</disk></devices></domain>' % (
                    self._emulator, self._source, _DISK, mirror))

    def _job(self):
        jobs = self._one.source.qmp('query-block-jobs')
        return jobs[0] if jobs else None

    def blockCopy(self, disk, xml, flags=0):
        self._one.source.qmp('blockdev-add', **{
            'driver': 'raw', 'node-name': _NODE,
            'file': {'driver': 'file', 'filename': self._new}})
        self._one.source.qmp('blockdev-mirror', **{
            'job-id': _JOB, 'device': 'disk0-format', 'target': _NODE,
            'sync': 'full', 'speed': self.rate})

    def blockJobInfo(self, disk, flags=0):
        self.seen()
        job = self._job()
        return {} if job is None else {
            'type': 2, 'bandwidth': 0, 'cur': job['offset'],
            'end': job['len']}

    def blockJobAbort(self, disk, flags=0):
        if self._job() is None:
            raise fakes.libvirt_error(libvirt.VIR_ERR_INVALID_ARG)
        events = self._one.source.events
        mark = events.mark()
        if flags & libvirt.VIR_DOMAIN_BLOCK_JOB_ABORT_PIVOT:
            self._one.source.qmp('block-job-complete', device=_JOB)
            events.wait('BLOCK_JOB_COMPLETED', mark, 60)
            self._source = self._new
        else:
            self._one.source.qmp('block-job-cancel', device=_JOB, force=True)
            events.wait('BLOCK_JOB_CANCELLED', mark, 60)
            self._one.source.qmp('blockdev-del', **{'node-name': _NODE})


class NovaCase(volume.VolumeCase):

    def setUp(self):
        super().setUp()
        # Nothing but QEMU of the source has the new volume.
        self.one.destination.qmp('block-export-del', id='target')
        self.one.destination.qmp('blockdev-del', **{
            'node-name': 'disk0-format'})
        self.domain = Domain(self.one, self.binary, str(self.target))
        self.host = types.SimpleNamespace(
            write_instance_config=self.define, get_guest=None)
        self.driver = types.SimpleNamespace(
            _host=self.host, _delete_guest_configuration=(
                lambda guest, **given: guest.delete_configuration(**given)))
        self.swaps = volume_swaps.VolumeSwaps(self.driver)
        for name, value in (('volumes_path', str(self.directory)),
                            ('backup_certificate', '/c.pem')):
            CONF.set_override(name, value, 'dedup_migrate')
            self.addCleanup(CONF.clear_override, name, 'dedup_migrate')
        self.instance = objects.Instance(uuid=fakes.UUID, project_id='p')
        self.kept = operations.SwapOperations(str(self.directory / 'swaps'))
        for owner, name, made in (
                (guests, 'open_guest', self.one.source),
                (volume_swaps.reader, 'BackupReader', None),
                (volume_swaps.connection, 'tls_context', None),
                (volume_swaps.VolumeSwaps, '_client', None)):
            patch = mock.patch.object(owner, name, autospec=True)
            patch.start().return_value = made
            self.addCleanup(patch.stop)
        self.content = bytearray(self.image.read_bytes())

    def define(self, xml):
        self.domain.defined = True

    def write(self, number, pattern):
        """Have the guest write to a granule, of the disk that it has."""
        self.one.io('write', '-P', pattern, number * rig.GRANULE, 4096)
        self.content[number * rig.GRANULE:number * rig.GRANULE + 4096] = (
            bytes((pattern,)) * 4096)

    def known(self):
        """The volume has been read, and has a backup."""
        (device,) = self.one.source.disks().values()
        self.records.begin(self.one.source, device, fakes.UUID, _DISK, OLD)
        self.read()
        backup = self.backup()
        volume_swaps.reader.BackupReader.return_value = backup
        return backup

    def swap(self):
        """As nova-compute swaps it; the new volume is connected."""
        conf = config.LibvirtConfigGuestDisk()
        conf.source_type, conf.driver_format = 'file', 'raw'
        conf.source_path, conf.target_dev = str(self.target), _DISK
        conf.target_bus = 'virtio'
        guest = libvirt_guest.Guest(self.domain)
        with self.swaps.swapping(
                self.instance, '/dev/' + _DISK, {'serial': OLD},
                {'serial': NEW}):
            with self.swaps.filling(guest, _DISK, conf) as given:
                libvirt_driver.LibvirtDriver._swap_volume(
                    self.driver, given, _DISK, conf, 0)

    def load(self):
        return self.kept.load(fakes.UUID, _DISK)

    def request(self):
        self.kept.request_abort(self.load())

    def assert_aborted(self, phase):
        """The guest has its old volume, every byte as it wrote it."""
        self.assertEqual(phase, self.load().phase)
        self.assertRegex(self.load().outcome, 'failed: .* was aborted')
        self.assertTrue(self.domain.defined)
        self.assertEqual([], self.one.source.qmp('query-block-jobs'))
        self.assertEqual((), self.one.source.disk_watches())
        before = self.target.read_bytes()
        self.write(11, 0x77)
        self.one.source.qmp('stop')
        self.assertEqual(self.content, self.image.read_bytes())
        # Nobody writes to what Cinder deletes.
        self.assertEqual(before, self.target.read_bytes())

    def assert_moved(self):
        """The guest has its new volume, every byte as it wrote it."""
        self.assertEqual(operations.PIVOTED, self.load().phase)
        self.assertTrue(self.domain.defined)
        self.write(12, 0x78)
        self.one.source.qmp('stop')
        self.assertEqual(self.content, self.target.read_bytes())
        self.assertNotEqual(self.content, self.image.read_bytes())


class AbortTest(NovaCase):

    def test_to_its_end(self):
        self.known()
        self.write(5, 0x33)
        phases = []
        self.domain.seen = lambda: phases.append(self.load().phase)
        self.swap()
        self.assertEqual({operations.MIRRORING}, set(phases))
        self.assertGreater(self.load().sources['backup'], 1 << 20)
        self.assert_moved()

    def test_in_the_fill(self):
        self.known()
        theirs = running.RunningSwap.see_fill

        def see(swap, progress):
            if progress.sources.get('backup'):
                self.write(5, 0x33)
                self.request()
            theirs(swap, progress)

        with mock.patch.object(running.RunningSwap, 'see_fill', see):
            self.assertRaises(exception.VolumeRebaseFailed, self.swap)
        # It had begun.
        self.assertTrue(any(self.target.read_bytes()))
        self.assert_aborted(operations.FILLING)

    def test_in_the_mirror(self):
        """Of what the fill has left, and of all."""
        for fill in (True, False):
            with contextlib.ExitStack() as stack:
                if fill:
                    self.known()
                    self.write(5, 0x33)
                self.domain.rate = 1
                looks = []

                def see(looks=looks, number=6 + fill):
                    looks.append(1)
                    if len(looks) == 2:
                        self.write(number, 0x34 + number)
                        self.request()

                self.domain.seen = see
                self.assertRaises(exception.VolumeRebaseFailed, self.swap)
                stack.callback(self.one.source.qmp, 'cont')
                self.assert_aborted(operations.MIRRORING)

    def test_when_the_mirror_is_ready(self):
        """Nova has seen that, and is about to have the guest pivot."""
        self.known()
        self.write(5, 0x33)

        self.domain.ready = self.request
        self.assertRaises(exception.VolumeRebaseFailed, self.swap)
        self.assert_aborted(operations.MIRRORING)

    def test_again(self):
        """After one that was aborted."""
        self.known()
        self.domain.rate = 1
        self.domain.seen = self.request
        self.assertRaises(exception.VolumeRebaseFailed, self.swap)
        self.domain.rate = 0
        self.domain.seen = lambda: None
        self.write(5, 0x33)
        self.known()
        self.swap()
        self.assert_moved()
