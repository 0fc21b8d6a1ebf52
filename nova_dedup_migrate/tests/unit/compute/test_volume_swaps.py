# SPDX-License-Identifier: Apache-2.0
"""What the driver does about swaps of volumes."""

import contextlib
import dataclasses
import json
import pathlib
import threading
import time
import types
from unittest import mock

from nova import exception
from nova import objects
import nova.conf
from nova.virt.libvirt import guest as libvirt_guest

from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import swap_recovery
from nova_dedup_migrate.compute import volume_swaps
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import fill
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.swaps import reading
from nova_dedup_migrate.swaps import watches
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes

OLD = '33333333-0000-4000-8000-000000000003'
NEW = '44444444-0000-4000-8000-000000000004'
CONF = nova.conf.CONF


class Guest:
    """Disks that are watched, as a hypervisor.Guest has them."""

    def __init__(self):
        self.calls = []
        self.watches = []
        self.begun = 0

    def disks(self):
        return {'vdb': 'virtio-disk1'}

    def watch_disk(self, device, recorder):
        self.calls.append('watch')
        self.begun += 1
        watch = watching.DiskWatch('token%d' % self.begun, device,
                                   'node', watching.WATCHING, 1 << 20, 32768,
                                   recorder=recorder)
        self.watches = [watch]
        return watch

    def disk_watches(self):
        return tuple(self.watches)

    def drop_disk(self, token):
        self.calls.append(('drop', token))
        self.watches = [watch for watch in self.watches
                        if watch.token != token]


class VolumeSwapsCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.driver = types.SimpleNamespace(
            _host=None, list_instance_uuids=lambda: [fakes.UUID])
        self.swaps = volume_swaps.VolumeSwaps(self.driver)
        for name, value in (('volumes_path', str(self.directory)),
                            ('backup_certificate', '/c.pem')):
            CONF.set_override(name, value, 'dedup_migrate')
            self.addCleanup(CONF.clear_override, name, 'dedup_migrate')
        self.instance = objects.Instance(uuid=fakes.UUID, project_id='p')
        self.guest = Guest()
        self.patched(guests, 'open_guest', return_value=self.guest)

    def patched(self, owner, name, **kwargs):
        patch = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patch.stop)
        return patch.start()

    def work(self):
        """Do what nova-compute does when it starts, until it stops."""
        self.swaps._work(self.swaps._find_interrupted())

    @property
    def records(self):
        return watches.Records(str(self.directory / 'watches'))

    def begin(self):
        """Begin to record; return the record."""
        self.guest.calls.clear()
        record = self.records.begin(self.guest, 'virtio-disk1', fakes.UUID,
                                    'vdb', OLD)
        self.guest.calls.clear()
        return record

    def fingerprints(self):
        return pathlib.Path(self.records.fingerprints(fakes.UUID, 'vdb'))


class WatchTest(VolumeSwapsCase):

    def setUp(self):
        super().setUp()
        self.get = self.patched(objects.Instance, 'get_by_uuid',
                                return_value=self.instance)
        self.bdm = objects.BlockDeviceMapping(
            source_type='volume', destination_type='volume', volume_id=OLD,
            device_name='/dev/vdb', connection_info=None)
        self.volumes = self.patched(
            objects.BlockDeviceMappingList, 'get_by_instance_uuid',
            return_value=[self.bdm])

    def test_all_is_dirty_at_first(self):
        self.swaps.watch_all()
        self.assertEqual(['watch'], self.guest.calls)
        self.assertEqual([watching.VOLUME], [
            watch.recorder for watch in self.guest.watches])
        self.assertEqual(
            watches.Record(fakes.UUID, 'vdb', OLD, 'token1'),
            self.records.load(fakes.UUID, 'vdb'))
        self.assertTrue(self.fingerprints().exists())

    def test_a_watch_that_is_there_stays(self):
        self.swaps.watch_all()
        self.swaps.watch_all()
        self.assertEqual(1, self.guest.calls.count('watch'))
        # of a QEMU that was started anew
        self.guest.watches = []
        self.swaps.watch_all()
        self.assertEqual(2, self.guest.calls.count('watch'))

    def test_begun_anew(self):
        """Without the file, of another volume, or of an earlier release."""
        self.swaps.watch_all()
        self.fingerprints().unlink()
        self.swaps.watch_all()
        self.assertEqual(2, self.guest.calls.count('watch'))
        self.bdm.volume_id = NEW
        self.swaps.watch_all()
        self.assertEqual(3, self.guest.calls.count('watch'))
        path = self.fingerprints().with_suffix('.json')
        path.write_text(json.dumps({**json.loads(path.read_text()),
                                    'known': [], 'since': 'then'}))
        self.swaps.watch_all()
        self.assertEqual(4, self.guest.calls.count('watch'))

    def test_a_watch_that_cannot_be_kept_is_dropped(self):
        self.patched(fingerprints.Fingerprints, 'make',
                     side_effect=OSError('full'))
        self.swaps.watch_all()
        self.assertIsNone(self.records.load(fakes.UUID, 'vdb'))
        self.assertEqual(('drop', 'token1'), self.guest.calls[-1])

    def test_a_volume_that_is_encrypted(self):
        self.bdm.connection_info = '{"data": {"encrypted": true}}'
        self.swaps.watch_all()
        self.assertEqual([], self.guest.calls)

    def test_a_disk_that_is_swapped_is_left_alone(self):
        with self.swaps.swapping(self.instance, '/dev/vdb', {'serial': OLD},
                                 {'serial': NEW}):
            self.swaps.watch_all()
        self.assertEqual([], self.guest.calls)

    def test_records_of_other_instances_go(self):
        self.swaps.watch_all()
        self.driver.list_instance_uuids = lambda: []
        self.swaps.watch_all()
        self.assertIsNone(self.records.load(fakes.UUID, 'vdb'))
        self.assertFalse(self.fingerprints().exists())

    def test_records_of_disks_that_are_gone_go(self):
        self.swaps.watch_all()
        # not if that is not known
        self.volumes.side_effect = exception.NovaException()
        self.swaps.watch_all()
        self.assertTrue(self.fingerprints().exists())
        self.volumes.side_effect = None
        self.volumes.return_value = []
        self.swaps.watch_all()
        self.assertIsNone(self.records.load(fakes.UUID, 'vdb'))
        self.assertFalse(self.fingerprints().exists())

    def test_files_without_a_record_go(self):
        self.swaps.watch_all()
        self.fingerprints().with_suffix('.json').unlink()
        self.volumes.side_effect = exception.NovaException()
        self.swaps.watch_all()
        self.assertFalse(self.fingerprints().exists())

    def test_what_may_be_read(self):
        self.instance.task_state = None
        self.assertIs(self.guest, self.swaps._readable(fakes.UUID))
        self.instance.task_state = 'migrating'
        self.assertRaises(LookupError, self.swaps._readable, fakes.UUID)
        self.get.side_effect = exception.InstanceNotFound(
            instance_id=fakes.UUID)
        self.assertRaises(LookupError, self.swaps._readable, fakes.UUID)

    def test_rounds(self):
        """Recorded and read at once, and again after the interval."""
        work = self.patched(reading.Reader, 'work')
        self.patched(volume_swaps.VolumeSwaps, 'watch_all')
        waits = []

        def wait(timeout):
            waits.append(timeout)
            if len(waits) == 3:
                CONF.set_override('volume_fingerprint_rate', 0,
                                  'dedup_migrate')
                self.addCleanup(CONF.clear_override,
                                'volume_fingerprint_rate', 'dedup_migrate')
            return len(waits) == 4

        with mock.patch.object(self.swaps._stopped, 'wait', wait):
            self.work()
        self.assertEqual(2, work.call_count)
        self.assertEqual(2, self.swaps.watch_all.call_count)
        self.assertGreater(work.call_args[0][1], time.monotonic() + 200)
        self.assertLess(250, waits[1])


class UnreadTest(VolumeSwapsCase):

    def test_the_reader_ends_first(self):
        begun, ended = threading.Event(), threading.Event()
        events = []

        def read():
            with self.swaps._turns.reading(fakes.UUID):
                begun.set()
                ended.wait(10)
                events.append('read')

        thread = threading.Thread(target=read)
        thread.start()
        begun.wait(10)
        threading.Timer(0.1, ended.set).start()
        with self.swaps.unread(self.instance) as gone:
            events.append('not read')
            with self.swaps._turns.reading(fakes.UUID) as mine:
                self.assertFalse(mine)
            with self.swaps._turns.reading('another') as mine:
                self.assertTrue(mine)
        thread.join()
        self.assertTrue(gone)
        self.assertEqual(['read', 'not read'], events)
        with self.swaps._turns.reading(fakes.UUID) as mine:
            self.assertTrue(mine)

    def test_a_reader_that_does_not_end(self):
        with mock.patch.object(volume_swaps, '_PATIENCE', 0.05):
            with self.swaps._turns.reading(fakes.UUID):
                with self.swaps.unread(self.instance) as gone:
                    self.assertFalse(gone)
                # Nova's work was done all the same.


class FillingCase(VolumeSwapsCase):

    def setUp(self):
        super().setUp()
        self.conf = types.SimpleNamespace(
            source_type='file', source_path='/mnt/new', driver_format='raw')
        self.nova_guest = mock.create_autospec(libvirt_guest.Guest,
                                               instance=True)
        self.nova_guest.uuid = fakes.UUID
        self.nova_guest.get_xml_desc.return_value = (
            '<domain><devices><emulator>/opt/q/bin/qemu</emulator></devices>'
            '</domain>')
        self.reader = self.patched(volume_swaps.reader, 'BackupReader')
        self.source = self.patched(volume_swaps.backup_source,
                                   'BackupSource')
        self.patched(volume_swaps.connection, 'tls_context')
        self.patched(volume_swaps.VolumeSwaps, '_client')
        self.fill = self.patched(
            fill, 'fill', side_effect=self.used, return_value=fill.Filled(
                1 << 20, 1 << 19, 1 << 18, 4096, 8192, 0.1, zero=1 << 16,
                agents=1 << 15))
        self.record = self.begin()

    def used(self, *_, **__):
        """The mirror will have used the watch."""
        self.end_as(watching.USED, dirty=1 << 19)
        return mock.DEFAULT

    def end_as(self, state, reason=None, dirty=0):
        self.guest.watches = [dataclasses.replace(
            self.guest.watches[0], state=state, reason=reason, dirty=dirty)]

    @property
    def kept(self):
        return operations.SwapOperations(str(self.directory / 'swaps'))

    def operation(self):
        return self.kept.load(fakes.UUID, 'vdb')

    def named(self):
        """What Nova calls; it connects the new volume in the block."""
        return self.swaps.swapping(self.instance, '/dev/vdb',
                                   {'serial': OLD}, {'serial': NEW})

    @contextlib.contextmanager
    def swapping(self):
        """The block is Nova's copy; gives the guest that Nova has."""
        with self.named():
            with self.swaps.filling(self.nova_guest, 'vdb', self.conf
                                    ) as guest:
                yield guest


class FillingTest(FillingCase):

    def test_filled_then_copied(self):
        with self.swapping():
            watch, known = self.fill.call_args[0][1:3]
            self.assertEqual(self.record.token, watch.token)
            self.assertEqual(1 << 20, known.size)
            self.assertEqual(self.record,
                             self.reader.call_args[0][-1].__self__)
            self.assertEqual(operations.FILLING, self.operation().phase)
            # for recovery, and nobody uses the watch twice
            self.assertEqual('/mnt/new', self.operation().path)
            self.assertIsNone(self.records.load(fakes.UUID, 'vdb'))
            self.assertFalse(self.fingerprints().exists())
            self.assertEqual([], self.guest.calls)
        self.assertIn(('drop', self.record.token), self.guest.calls)
        self.assertIn('524288 of 1048576', self.operation().outcome)
        self.source.return_value.close.assert_called_with()

    def test_where_the_bytes_came_from(self):
        with self.swapping():
            pass
        found = self.operation()
        self.assertEqual({'backup': (1 << 19) - (1 << 16) - (1 << 15),
                          'agents': 1 << 15, 'zero': 1 << 16,
                          'volume': 1 << 19}, found.sources)
        self.assertEqual((1 << 20, 4096, 8192),
                         (found.size, found.different, found.unknown))
        self.assertGreater(found.began, 0)
        self.assertEqual(operations.PIVOTED, found.phase)

    def test_a_copy_that_did_not_use_what_was_filled(self):
        for state, reason in ((watching.DROPPED, 'no canary'),
                              (watching.USED, 'no canary'),
                              (watching.ARMED, None)):
            self.begin()
            with self.swapping():
                self.end_as(state, reason)
            self.assertEqual({'volume': 1 << 20}, self.operation().sources)
            self.assertRegex(self.operation().outcome,
                             'copied by Nova: .*(canary|filled)')

    def test_a_restart_keeps_what_became_of_a_swap(self):
        with self.swapping():
            pass
        before = self.operation().outcome
        self.patched(swap_recovery, 'settle')
        self.swaps.stop()
        self.work()
        self.assertEqual(before, self.operation().outcome)

    def test_whatever_fails_nova_copies_all(self):
        for failure in (errors.NotFillable(reason='why'), RuntimeError('why'),
                        OSError('why')):
            self.begin()
            self.fill.side_effect = failure
            copied = []
            with self.swapping():
                copied.append(1)
            self.assertEqual([1], copied)
            self.assertRegex(self.operation().outcome,
                             'copied by Nova: .*why')

    def test_what_cannot_be_filled(self):
        for kind, path, removed in (('network', None, False),
                                    ('file', '/mnt/new', True)):
            self.conf.source_type, self.conf.source_path = kind, path
            if removed:
                self.records.remove(fakes.UUID, 'vdb')
            with self.swapping():
                pass
            self.fill.assert_not_called()
            self.assertIn('copied by Nova', self.operation().outcome)

    def test_without_what_was_read_nothing_is_filled(self):
        for spoil in (
                lambda: self.fingerprints().unlink(),
                lambda: self.fingerprints().write_bytes(b'NDFPRNT1'),
                lambda: self.guest.watches.clear(),
                lambda: self.records.save(dataclasses.replace(
                    self.records.load(fakes.UUID, 'vdb'), volume_id=NEW))):
            self.begin()
            spoil()
            with self.swapping():
                pass
            self.fill.assert_not_called()
            self.assertIn('copied by Nova', self.operation().outcome)

    def test_while_it_is_still_read_nothing_is_filled(self):
        with (mock.patch.object(volume_swaps, '_PATIENCE', 0.05),
              self.swaps._turns.reading(fakes.UUID), self.swapping()):
            pass
        self.fill.assert_not_called()
        self.assertIn('still being read', self.operation().outcome)

    def test_nobody_reads_until_it_has_moved(self):
        with self.swapping():
            with self.swaps._turns.reading(fakes.UUID) as mine:
                self.assertFalse(mine)

    def test_novas_error_is_raised_and_noted(self):
        with self.assertRaisesRegex(exception.VolumeRebaseFailed, 'broken'):
            with self.swapping():
                raise exception.VolumeRebaseFailed(reason='broken')
        self.assertIn('broken', self.operation().outcome)
        self.assertIn(('drop', self.record.token), self.guest.calls)

    def test_live_migration_is_refused_meanwhile(self):
        self.swaps.require_no_swap(self.instance)
        with self.named():
            self.assertRaises(exception.MigrationPreCheckError,
                              self.swaps.require_no_swap, self.instance)
        with self.swapping():
            self.assertRaises(exception.MigrationPreCheckError,
                              self.swaps.require_no_swap, self.instance)
        self.swaps.require_no_swap(self.instance)

    def test_without_certificate_nothing_is_filled(self):
        CONF.set_override('backup_certificate', None, 'dedup_migrate')
        with self.swapping():
            pass
        self.fill.assert_not_called()

    def test_interrupted_swaps_are_settled_once(self):
        """Also if the instance is not here any more."""
        with self.swapping():
            pass
        settle = self.patched(swap_recovery, 'settle')
        self.patched(objects.Instance, 'get_by_uuid',
                     side_effect=exception.InstanceNotFound(
                         instance_id=fakes.UUID))
        self.swaps.stop()
        self.work()
        settle.assert_called_once()
        self.assertEqual(operations.ENDED, self.operation().phase)
        self.work()
        settle.assert_called_once()

    def test_what_an_interrupted_fill_has_claimed_is_forgotten(self):
        with self.swapping():
            pass
        self.guest.calls.clear()
        self.guest.watches = [
            watching.DiskWatch(str(number), device, 'node',
                               watching.WATCHING, 1 << 20, 32768,
                               recorder=recorder)
            for number, (device, recorder) in enumerate((
                ('virtio-disk1', watching.REPLICA), ('virtio-disk1', None),
                ('virtio-disk0', None)))]
        self.patched(swap_recovery, 'settle')
        self.patched(objects.Instance, 'get_by_uuid',
                     return_value=self.instance)
        self.swaps.stop()
        self.work()
        self.assertEqual([('drop', '1')], self.guest.calls)
        self.assertEqual(operations.ENDED, self.operation().phase)

    def test_what_cannot_be_settled_stays(self):
        with self.swapping():
            pass
        self.patched(swap_recovery, 'settle', side_effect=RuntimeError)
        self.swaps.stop()
        self.work()
        self.assertEqual(operations.PIVOTED, self.operation().phase)
        self.assertRaisesRegex(
            exception.MigrationPreCheckError, 'not settled yet',
            self.swaps.require_no_swap, self.instance)

    def test_what_writes_is_the_guests_qemu(self):
        emulator = self.temporary_dir() / 'qemu'
        emulator.touch(mode=0o755)
        self.nova_guest.get_xml_desc.return_value = (
            '<domain><devices><emulator>%s</emulator></devices></domain>'
            % emulator)
        with self.swapping():
            self.assertEqual(str(emulator), self.fill.call_args[0][-2])

    def test_a_device_by_its_link(self):
        link = self.temporary_dir() / 'by-path'
        link.symlink_to('/dev/null')
        self.conf.source_type, self.conf.source_path = 'block', str(link)
        with self.swapping():
            self.assertEqual('/dev/null', self.fill.call_args[0][4].path)
