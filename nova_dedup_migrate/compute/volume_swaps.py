# SPDX-License-Identifier: Apache-2.0
"""Volumes in use that are swapped for others, and what the driver adds.

Nova's ``_swap_volume`` copies all of the old volume into the new one.
Before it begins, the new one is filled from a backup (swaps.fill), and
the copy then skips what is proven.  If anything fails before that, Nova
copies all; the log has the reason.  A swap has a record from its first
moment on (swaps.running); one that was interrupted is settled from it
(swap_recovery).

A thread has QEMU record writes to the volumes of this host's instances, and
reads them (swaps.reading).  It lets go of an instance that is swapped,
migrated or else needs its disks.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import math
import os
import shutil
import threading
import time
import typing
from xml.etree import ElementTree

from nova import context as nova_context
from nova import exception
from nova import objects
import nova.conf
from oslo_log import log as logging
from oslo_serialization import jsonutils

from nova_dedup_migrate import errors as base_errors
from nova_dedup_migrate.backups import api as backups_api
from nova_dedup_migrate.backups import connection
from nova_dedup_migrate.backups import reader
from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import near_blocks
from nova_dedup_migrate.compute import swap_recovery
from nova_dedup_migrate.compute import swapped_guest
from nova_dedup_migrate.conf import agent as agent_options
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.conf import paths
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import backup as backup_source
from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import fill
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.swaps import reading
from nova_dedup_migrate.swaps import running
from nova_dedup_migrate.swaps import turns
from nova_dedup_migrate.swaps import watches

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

#: Seconds to wait until a volume is not read any more: a slice, and requests
#: of slow storage.
_PATIENCE = 30.0
_Used = Callable[[], watching.DiskWatch | None]


@dataclasses.dataclass
class _Swap:
    """A swap that Nova has called for.

    :ivar record: None if there is none: Nova copies all
    :ivar unread: whether nobody reads the disks of the instance
    """

    instance: objects.Instance
    old_volume: str
    record: running.RunningSwap | None
    unread: bool = False


class VolumeSwaps:
    """What the driver calls.

    A swap of Nova's fails here for two reasons: an administrator has
    requested it, or it could not be settled afterwards.

    :param driver: the DedupMigrateLibvirtDriver
    """

    def __init__(self, driver: typing.Any) -> None:
        options.register_opts(CONF)
        agent_options.register_opts(CONF)
        paths.register_opts(CONF)
        self._driver = driver
        self._guard = threading.RLock()
        self._swaps: dict[tuple[str, str], _Swap] = {}
        self._stopped = threading.Event()
        self._turns = turns.Turns()
        self._api: backups_api.BackupAssistAPI | None = None
        self._interrupted: swap_recovery.Interrupted | None = None

    @property
    def enabled(self) -> bool:
        """Whether volumes are filled from backups."""
        group = CONF.dedup_migrate
        return bool(group.enabled and group.backup_certificate)

    @property
    def _records(self) -> watches.Records:
        return watches.Records(os.path.join(
            CONF.dedup_migrate.volumes_path, 'watches'))

    @property
    def _operations(self) -> operations.SwapOperations:
        return operations.SwapOperations(os.path.join(
            CONF.dedup_migrate.volumes_path, 'swaps'))

    # Life

    def start(self) -> None:
        """Settle swaps that were interrupted; record writes from now on."""
        if CONF.dedup_migrate.enabled:
            # Before Nova begins another one.
            interrupted = self._find_interrupted()
            threading.Thread(target=self._work, args=(interrupted,),
                             name='dedup-volumes', daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _find_interrupted(self) -> swap_recovery.Interrupted:
        found = swap_recovery.Interrupted(self._driver, self._operations,
                                          self._forget)
        self._interrupted = found
        return found

    def _work(self, interrupted: swap_recovery.Interrupted) -> None:
        """Settle, record and read, until the service stops."""
        interrupted.work()
        reader = reading.Reader(self._records, self._turns, self._readable,
                                _rate, self._stopped)
        interval = CONF.dedup_migrate.volume_watch_interval or math.inf
        due = time.monotonic() + interval
        while True:
            settles = interrupted.due < due
            first = min(interrupted.due, due)
            if self._stopped.wait(None if first == math.inf else max(
                    0.0, first - time.monotonic())):
                return
            if settles:
                interrupted.work()
                continue
            due = time.monotonic() + interval
            if self.enabled and _rate():
                self.watch_all()
                reader.work(min(interrupted.due, due))

    def _forget(self, swap: operations.Swap) -> None:
        """Have QEMU forget the watch that an interrupted fill has claimed.

        The copy is over, and nobody uses what was filled.
        """
        with contextlib.suppress(base_errors.DedupMigrateError, LookupError,
                                 exception.NovaException):
            guest = guests.open_guest(
                self._driver._host, objects.Instance.get_by_uuid(
                    nova_context.get_admin_context(), swap.instance))
            device = guest.disks().get(swap.disk)
            for watch in guest.disk_watches():
                if watch.device == device and watch.recorder is None:
                    guest.drop_disk(watch.token)

    # Recording

    def watch_all(self) -> None:
        """Have QEMU record the writes to each volume of this host."""
        for uuid in self._driver.list_instance_uuids():
            try:
                self._watch_instance(uuid)
            except (base_errors.DedupMigrateError, LookupError,
                    exception.NovaException, OSError) as error:
                LOG.info('Writes to the volumes of instance %s are not '
                         'recorded: %s', uuid, error)
            except Exception:
                LOG.exception('Writes to the volumes of instance %s are '
                              'not recorded', uuid)
        there = set(self._driver.list_instance_uuids())
        for instance, disk in self._records.names():
            if instance not in there:
                self._records.remove(instance, disk)
        self._records.sweep()

    def _watch_instance(self, uuid: str) -> None:
        context = nova_context.get_admin_context()
        volumes = {bdm.device_name.rpartition('/')[2]: bdm.volume_id
                   for bdm in objects.BlockDeviceMappingList
                   .get_by_instance_uuid(context, uuid)
                   if bdm.is_volume and bdm.volume_id and bdm.device_name
                   and not _is_encrypted(bdm)}
        for instance, disk in list(self._records.names()):
            if instance == uuid and disk not in volumes:
                self._records.remove(instance, disk)
        if not volumes:
            return
        guest = guests.open_guest(
            self._driver._host, objects.Instance.get_by_uuid(context, uuid))
        devices = guest.disks()
        for disk, volume_id in volumes.items():
            with self._guard:
                if disk in devices and (uuid, disk) not in self._swaps:
                    self._watch_disk(guest, uuid, disk, devices[disk],
                                     volume_id)

    def _watch_disk(self, guest: hypervisor.Guest, uuid: str, disk: str,
                    device: str, volume_id: str) -> None:
        record = self._records.load(uuid, disk)
        if (record is not None and record.volume_id == volume_id
                and os.path.exists(self._records.fingerprints(uuid, disk))
                and watches.of(guest, record.token) is not None):
            return
        self._records.begin(guest, device, uuid, disk, volume_id)
        LOG.debug('Writes to volume %s of instance %s are recorded',
                  volume_id, uuid)

    def _readable(self, uuid: str) -> hypervisor.Guest:
        """Return the guest of an instance to which nothing happens.

        :raises LookupError: something does
        """
        try:
            instance = objects.Instance.get_by_uuid(
                nova_context.get_admin_context(), uuid)
        except exception.NovaException as error:
            raise LookupError(uuid) from error
        if instance.task_state is not None:
            raise LookupError('the instance is %s' % instance.task_state)
        return guests.open_guest(self._driver._host, instance)

    @contextlib.contextmanager
    def unread(self, instance: objects.Instance) -> Iterator[bool]:
        """Have the volumes of an instance not read while the block runs.

        :returns: whether that is so; not if storage does not answer
        """
        with self._turns.unread(instance.uuid, _PATIENCE) as gone:
            if not gone:
                LOG.warning('A volume of instance %s has been read for more '
                            'than %d seconds: its storage does not answer',
                            instance.uuid, _PATIENCE)
            yield gone

    def _client(self) -> backups_api.BackupAssistAPI:
        if self._api is None:
            self._api = backups_api.BackupAssistAPI.from_conf(CONF)
        return self._api

    @functools.cached_property
    def _agents(self) -> rpc_api.AgentAPI:
        return rpc_api.AgentAPI.from_conf(CONF)

    # Swapping

    def require_no_swap(self, instance: objects.Instance) -> None:
        """Refuse a live migration while a volume is swapped.

        :raises MigrationPreCheckError:
        """
        with self._guard:
            for (uuid, _), swap in self._swaps.items():
                if uuid == instance.uuid:
                    raise exception.MigrationPreCheckError(
                        reason='volume %s of the instance moves to another '
                        'backend. Wait until it is in use again'
                        % swap.old_volume)
        if self._interrupted is not None:
            left = self._interrupted.of(instance.uuid)
            if left is not None:
                raise exception.MigrationPreCheckError(
                    reason='the move of volume %s of the instance was '
                    'interrupted and is not settled yet; see the log of '
                    'nova-compute' % left.old_volume)

    @contextlib.contextmanager
    def swapping(self, instance: objects.Instance, mountpoint: str,
                 old: dict, new: dict) -> Iterator[None]:
        """Note a swap while it is under way, before it does anything.

        :param old, new: connection_info of the volumes
        """
        disk = mountpoint.rpartition('/')[2]
        key = (instance.uuid, disk)
        old_volume = str(old.get('serial') or '')
        swap = _Swap(instance, old_volume, self._begin(operations.Swap(
            instance.uuid, disk, old_volume, str(new.get('serial') or ''),
            '')))
        with self._guard:
            self._swaps[key] = swap
        try:
            with self.unread(instance) as swap.unread:
                yield
        except BaseException as error:
            if swap.record is not None and swap.record.swap.under_way:
                swap.record.over('failed: %s' % error)
            raise
        finally:
            with self._guard:
                self._swaps.pop(key, None)

    def _begin(self, swap: operations.Swap) -> running.RunningSwap | None:
        if not swap.old_volume or not swap.new_volume:
            return None
        try:
            return running.RunningSwap(self._operations, swap)
        except OSError as error:
            LOG.error('The move of volume %s of instance %s has no record: '
                      '%s. Nova copies the volume; if nova-compute ends '
                      'meanwhile, nothing settles that', swap.old_volume,
                      swap.instance, error)
            return None

    @contextlib.contextmanager
    def filling(self, guest: typing.Any, disk: str, conf: typing.Any
                ) -> Iterator[typing.Any]:
        """Fill the new volume; the block is Nova's copy.

        :param guest: nova.virt.libvirt.guest.Guest
        :param conf: LibvirtConfigGuestDisk of the new volume
        :returns: the Guest for Nova
        :raises VolumeRebaseFailed: an administrator has requested it, or
            the record cannot be written
        """
        swap = self._swaps.get((guest.uuid, disk))
        record = swap.record if swap is not None else None
        if swap is None or record is None:
            yield guest
            return
        with contextlib.ExitStack() as stack:
            try:
                record.check()
                record.enter(operations.FILLING, path=conf.source_path or '')
                filled, used, outcome = self._try_to_fill(
                    stack, swap, record, guest, disk, conf)
                record.check()
            except (errors.Aborted, OSError) as error:
                raise exception.VolumeRebaseFailed(
                    reason=str(error)) from error
            yield swapped_guest.SwappedGuest(guest, record)
            self._note(record, filled, used, outcome)

    def _try_to_fill(self, stack: contextlib.ExitStack, swap: _Swap,
                     record: running.RunningSwap, guest: typing.Any,
                     disk: str, conf: typing.Any
                     ) -> tuple[fill.Filled | None, _Used | None, str]:
        """Return what was filled, what reads the watch, and an outcome.

        :raises Aborted:
        """
        outcome = 'copied by Nova'
        if not self.enabled:
            return None, None, outcome
        try:
            filled, used = self._fill(stack, swap, record, guest, disk, conf)
        except errors.Aborted:
            raise
        except Exception as error:
            expected = isinstance(error, base_errors.DedupMigrateError)
            LOG.log(logging.INFO if expected else logging.ERROR,
                    'Volume %s of instance %s is copied in full: %s',
                    swap.old_volume, swap.instance.uuid, error,
                    exc_info=not expected)
            return None, None, '%s: %s' % (outcome, error)
        LOG.info('Volume %s of instance %s: %d of %d bytes were filled from '
                 'a backup in %.1f s; the rest is copied: %d differ from the '
                 'backup, %d have not been read since they were written',
                 swap.old_volume, swap.instance.uuid, filled.proven,
                 filled.size, filled.seconds, filled.different,
                 filled.unknown)
        return filled, used, outcome

    @staticmethod
    def _note(record: running.RunningSwap, filled: fill.Filled | None,
              used: _Used | None, outcome: str) -> None:
        """Write what became of the driver's part of a swap."""
        found: dict[str, typing.Any] = {'sources': {}}
        if filled is not None and used is not None:
            watch = None
            with contextlib.suppress(base_errors.DedupMigrateError):
                watch = used()
            found, outcome = _described(filled, watch)
        record.over(outcome, phase=operations.PIVOTED, **found)
        LOG.info('Volume %s of instance %s has moved in %.1f s: %s',
                 record.swap.old_volume, record.swap.instance,
                 record.swap.seconds, outcome)

    def _fill(self, stack: contextlib.ExitStack, swap: _Swap,
              running_swap: running.RunningSwap, nova_guest: typing.Any,
              disk: str, conf: typing.Any) -> tuple[fill.Filled, _Used]:
        """Return what was filled, and what reads the watch afterwards."""
        if conf.source_type not in ('file', 'block') or not conf.source_path:
            raise errors.NotFillable(
                reason='the new volume is neither a file nor a device of '
                'this host')
        if not swap.unread:
            raise errors.NotFillable(reason='the old volume is still being '
                                     'read; its storage does not answer')
        uuid = swap.instance.uuid
        record = self._records.load(uuid, disk)
        if record is None or record.volume_id != swap.old_volume:
            raise errors.NotFillable(reason='no writes were recorded')
        guest = guests.open_guest(self._driver._host, swap.instance)
        watch = watches.of(guest, record.token)
        if watch is None:
            raise errors.NotFillable(
                reason='QEMU has not recorded all writes to the volume')
        known = fingerprints.Fingerprints(
            self._records.fingerprints(uuid, disk), watch)
        stack.callback(known.close)
        # Whatever comes of it, the watch is used up.
        self._records.remove(uuid, disk)
        stack.callback(self._drop, guest, record.token)
        source = backup_source.BackupSource(reader.BackupReader(
            self._client(), connection.tls_context(CONF), CONF.host,
            swap.old_volume, swap.instance.project_id, record.refusal))
        stack.callback(source.close)
        journal = self._records.journal(uuid, disk)
        with contextlib.suppress(FileNotFoundError):
            # That of another target.
            os.unlink(journal)
        try:
            return fill.fill(
                guest, watch, known, source,
                # Nova names devices by links of udev.
                writer.Image(os.path.realpath(conf.source_path)
                             if conf.source_type == 'block'
                             else conf.source_path,
                             conf.driver_format or 'raw'),
                # Nova's copy would take no less space.
                journal, rebuild.Limits(
                    seconds=CONF.dedup_migrate.volume_fill_time, reserve=0),
                _emulator(nova_guest), near_blocks.sources(
                    CONF, self._agents, swap.instance,
                    running_swap.swap.new_volume),
                progress=running_swap.see_fill
            ), functools.partial(_watch_of, guest, record.token)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(journal)

    @staticmethod
    def _drop(guest: hypervisor.Guest, token: str) -> None:
        """Forget a watch, whether a mirror has used it or not."""
        with contextlib.suppress(base_errors.DedupMigrateError):
            if _watch_of(guest, token) is not None:
                guest.drop_disk(token)


def _rate() -> float:
    """Return the bytes a second with which volumes are read, 0: not."""
    return float(CONF.dedup_migrate.volume_fingerprint_rate << 20)


def _is_encrypted(bdm: objects.BlockDeviceMapping) -> bool:
    """Return whether a volume is: what backups have of it is ciphertext."""
    info = jsonutils.loads(bdm.connection_info or '{}')
    return bool(info.get('data', {}).get('encrypted'))


def _watch_of(guest: hypervisor.Guest, token: str
              ) -> watching.DiskWatch | None:
    return next((watch for watch in guest.disk_watches()
                 if watch.token == token), None)


def _described(filled: fill.Filled, watch: watching.DiskWatch | None
               ) -> tuple[dict[str, typing.Any], str]:
    """Return where the bytes came from, as fields of a Swap, and outcome.

    :param watch: that the mirror should have used
    """
    if watch is None or watch.state != watching.USED or watch.reason:
        # What was filled was copied once more.
        return {'size': filled.size, 'sources': {'volume': filled.size}}, (
            'copied by Nova: %s' % (
                watch and watch.reason or 'the copy began without what was '
                'filled'))
    zero = min(filled.zero, filled.size - watch.dirty)
    agents = min(filled.agents, filled.size - watch.dirty - zero)
    return {
        'size': filled.size, 'different': filled.different,
        'unknown': filled.unknown,
        'sources': {'backup': filled.size - watch.dirty - zero - agents,
                    'agents': agents, 'zero': zero,
                    'volume': watch.dirty}}, (
        '%d of %d bytes were filled from a backup%s' % (
            filled.size - watch.dirty, filled.size,
            filled.stopped and '; ' + filled.stopped))


def _emulator(guest: typing.Any) -> str:
    """Return the path of a guest's QEMU, or of that name in PATH."""
    emulator = ElementTree.fromstring(guest.get_xml_desc()).findtext(
        './devices/emulator') or ''
    return shutil.which(os.path.basename(emulator), path=os.pathsep.join(
        (os.path.dirname(emulator), os.environ.get('PATH', os.defpath)))
    ) or emulator
