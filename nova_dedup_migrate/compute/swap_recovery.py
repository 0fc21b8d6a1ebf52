# SPDX-License-Identifier: Apache-2.0
"""Settles a swap of volumes that nova-compute did not bring to its end.

If nova-compute is killed in a swap, Nova leaves a guest that is not
defined, a copy that never ends, and volumes that are neither moved nor
not.  What is true is read from libvirt, Cinder and the database::

    the copy still runs, or has failed       -> it is aborted; back
    the guest runs from the new volume       -> forward
    Cinder has completed, the BDM is older   -> the BDM
    nothing of the new volume is left        -> done

Of a guest that has ended, or whose volumes have no path, the record's phase
shows which volume it had.  If that is not known either, nothing is done: to
guess would be to lose what the guest has written.

Back and forward are the steps of Nova's compute manager after the driver's.
Each may be done again; what was done before is seen in Cinder.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import logging
import math
import time
import typing
from xml.etree import ElementTree

import libvirt
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.volume import cinder
from oslo_concurrency import lockutils
from oslo_serialization import jsonutils

from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import operations

LOG = logging.getLogger(__name__)

#: Seconds until a swap is tried again, doubled each time, and the most of
#: them; and how often.  That is a bit more than an hour.
RETRY, MAX_RETRY, TRIES = 5.0, 300.0, 20
#: Which volume the guest has, or had, by the phase: whether the new one.
_PIVOTED = {operations.BEGUN: False, operations.FILLING: False,
            operations.MIRRORING: False, operations.PIVOTED: True}
#: Migration status of a volume that Cinder moves, and that it has moved but
#: for some records; and of the new one, when it is not wanted any more.
_MIGRATING, _COMPLETING, _DELETING = 'migrating', 'completing', 'deleting'


@dataclasses.dataclass
class _Left:
    """A swap that is not settled.

    :ivar due: monotonic seconds, when it is tried next; inf: not any more
    """

    swap: operations.Swap
    due: float = 0.0
    failures: int = 0


class Interrupted:
    """The swaps that an earlier nova-compute has left.

    :param driver: the DedupMigrateLibvirtDriver
    :param kept: has their records
    :param forget: called with a Swap that is settled
    """

    def __init__(self, driver: typing.Any, kept: operations.SwapOperations,
                 forget: Callable[[operations.Swap], None]) -> None:
        self._driver = driver
        self._kept = kept
        self._forget = forget
        self._left = [_Left(swap) for swap in kept.unfinished()]

    @property
    def due(self) -> float:
        """Monotonic seconds, when to call work() next; inf: not at all."""
        return min((one.due for one in self._left), default=math.inf)

    def of(self, instance: str) -> operations.Swap | None:
        """Return a swap of an instance that is not settled.

        One whose record an administrator has removed is.
        """
        return next((one.swap for one in list(self._left)
                     if one.swap.instance == instance
                     and self._is_there(one)), None)

    def work(self) -> None:
        """Try those that are due; never raises."""
        for one in list(self._left):
            if one.due <= time.monotonic() and self._try(one):
                self._left.remove(one)

    def _is_there(self, one: _Left) -> bool:
        found = self._kept.load(one.swap.instance, one.swap.disk)
        return found is not None and (
            (found.new_volume, found.began)
            == (one.swap.new_volume, one.swap.began))

    def _try(self, one: _Left) -> bool:
        """Return whether nothing is left of it."""
        swap = one.swap
        try:
            # Nova holds it while it works on the instance.
            with lockutils.lock(swap.instance, 'nova-', blocking=False):
                if self._is_there(one):
                    settle(self._driver, swap,
                           lambda pivoted: self._learn(one, pivoted))
                    self._forget(one.swap)
                    self._kept.end(one.swap, _outcome(one.swap))
                return True
        except lockutils.AcquireLockFailedException:
            one.due = time.monotonic() + RETRY
        except Exception as error:
            self._failed(one, error)
        return False

    def _learn(self, one: _Left, pivoted: bool) -> None:
        """Write which volume the guest has: it may end before all is done."""
        phase = operations.PIVOTED if pivoted else operations.MIRRORING
        if _PIVOTED.get(one.swap.phase) != pivoted:
            swap = dataclasses.replace(one.swap, phase=phase)
            self._kept.write(swap)
            one.swap = swap

    @staticmethod
    def _failed(one: _Left, error: Exception) -> None:
        one.failures += 1
        swap = one.swap
        if one.failures >= TRIES or isinstance(error, errors.LeftToOperator):
            one.due = math.inf
            LOG.error('The swap of volume %s of instance %s was interrupted '
                      'and is not settled: %s. It is not tried again until '
                      'nova-compute starts; see "Volumes that move" in the '
                      'administrator guide', swap.old_volume, swap.instance,
                      error, exc_info=error)
            return
        wait = min(RETRY * 2 ** (one.failures - 1), MAX_RETRY)
        one.due = time.monotonic() + wait
        LOG.warning('The swap of volume %s of instance %s was interrupted '
                    'and is not settled yet: %s. It is tried again in %d s, '
                    'attempt %d of %d', swap.old_volume, swap.instance,
                    error, wait, one.failures + 1, TRIES)
        LOG.debug('Traceback of the error', exc_info=error)


def _outcome(swap: operations.Swap) -> str:
    outcome = 'settled after a restart of nova-compute'
    if swap.phase in _PIVOTED:
        outcome += '; the instance %s' % (
            'has the new volume' if _PIVOTED[swap.phase] else
            'keeps its volume')
    return outcome


def settle(driver: typing.Any, swap: operations.Swap,
           learn: Callable[[bool], None] = lambda pivoted: None) -> None:
    """Bring a swap to one of its ends.

    :param driver: the DedupMigrateLibvirtDriver
    :param learn: called with whether the guest has the new volume, before
        Cinder's volumes are changed accordingly
    :raises LeftToOperator: which volume the guest has is not known
    :raises Exception: whatever Nova, libvirt or Cinder raise
    """
    context = nova_context.get_admin_context()
    manager = driver.virtapi._compute
    try:
        bdm = objects.BlockDeviceMapping.get_by_volume_and_instance(
            context, swap.old_volume, swap.instance,
            expected_attrs=['instance'])
    except exception.NotFound:
        # A swap that was completed for another volume, or a detached one.
        return
    instance = bdm.instance
    if instance.host != manager.host:
        return
    pivoted = _end_copy(driver, instance, swap)
    volumes = _Volumes(context, manager.volume_api, instance, swap)
    state = volumes.migration()
    attachment = volumes.attachment(swap.new_volume)
    if attachment is None and state != _MIGRATING:
        volumes.renew(bdm)
        return
    if attachment == bdm.attachment_id and not state:
        return
    if pivoted is None:
        raise errors.LeftToOperator(
            reason='whether the guest has the new volume %s is not known'
            % swap.new_volume)
    learn(pivoted)
    if not pivoted:
        LOG.warning('The swap of volume %s of instance %s was interrupted. '
                    'The guest keeps its volume', swap.old_volume,
                    swap.instance)
        volumes.require_old(bdm, attachment, state)
        if attachment is not None:
            _disconnect(driver, context, instance,
                        volumes.connection_info(attachment))
        volumes.back(attachment, state)
        return
    LOG.warning('The swap of volume %s of instance %s was interrupted after '
                'the guest had its new volume. Completing it',
                swap.old_volume, swap.instance)
    attachment = volumes.require_new(attachment, state)
    if attachment != bdm.attachment_id:
        _disconnect(driver, context, instance,
                    jsonutils.loads(bdm.connection_info or '{}'))
    volumes.forward(bdm, attachment, state)


def _end_copy(driver: typing.Any, instance: objects.Instance,
              swap: operations.Swap) -> bool | None:
    """Abort the copy, define the guest.

    :returns: whether it has the new volume, None if that is not known
    :raises NotSettled: the copy has not ended yet
    """
    known = _PIVOTED.get(swap.phase)
    try:
        guest = driver._host.get_guest(instance)
    except exception.InstanceNotFound:
        # It has ended.
        return known
    if (guest.is_active() and swap.phase != operations.PIVOTED
            and (not swap.path or _source(guest, swap.disk) != swap.path)):
        device = guest.get_block_device(swap.disk)
        try:
            device.abort_job()
        except libvirt.libvirtError as error:
            LOG.debug('No copy of %s of instance %s is aborted: %s',
                      swap.disk, swap.instance, error)
        if device.get_job_info() is not None:
            # Perhaps it pivots just now.
            raise errors.NotSettled(
                reason='the copy of disk %s has not ended yet' % swap.disk)
    if not guest.has_persistent_configuration():
        driver._host.write_instance_config(guest.get_xml_desc(
            dump_inactive=False, dump_sensitive=True))
    return _source(guest, swap.disk) == swap.path if swap.path else known


def _source(guest: typing.Any, disk: str) -> str | None:
    """Return the path that a disk of a running guest has."""
    tree = ElementTree.fromstring(guest.get_xml_desc())
    for element in tree.iterfind('./devices/disk'):
        target, source = element.find('target'), element.find('source')
        if target is not None and target.get('dev') == disk:
            return source is not None and (
                source.get('file') or source.get('dev')) or None
    return None


def _disconnect(driver: typing.Any, context: nova_context.RequestContext,
                instance: objects.Instance, connection_info: dict) -> None:
    if not connection_info:
        return
    try:
        driver._disconnect_volume(context, connection_info, instance)
    except Exception:
        # As in Nova: what matters is which volume the guest has.
        LOG.exception('A volume of instance %s stays connected to this '
                      'host', instance.uuid)


class _Volumes:
    """What Cinder and the database have of a swap.

    :param api: nova.volume.cinder.API
    """

    def __init__(self, context: nova_context.RequestContext,
                 api: typing.Any, instance: objects.Instance,
                 swap: operations.Swap) -> None:
        self._context = context
        self._api = api
        self._instance = instance
        self._swap = swap

    def attachment(self, volume_id: str) -> str | None:
        """Return the attachment of a volume to the instance.

        Not by attachment_get_all: it has those of the project alone whose
        user is in nova.conf.
        """
        found = cinder.cinderclient(
            self._context, '3.44', skip_version_check=True
        ).attachments.list(search_opts={
            'all_tenants': True, 'instance_id': self._instance.uuid,
            'volume_id': volume_id})
        return next((one.id for one in found), None)

    def connection_info(self, attachment: str) -> dict:
        return self._api.attachment_get(
            self._context, attachment)['connection_info']

    def migration(self) -> str:
        """Return in which state Cinder has its migration.

        :returns: '' if it has none, or none any more; migrating if it waits
            for the completion; otherwise it does not
        """
        try:
            status = self._migration_status(self._swap.new_volume)
        except exception.VolumeNotFound:
            return ''
        if status != 'target:' + self._swap.old_volume:
            # Any other one is left from an earlier migration.
            return status if status == _DELETING else ''
        return (self._migration_status(self._swap.old_volume)
                or 'not %s' % _MIGRATING)

    def _migration_status(self, volume: str) -> str:
        return self._api.get(self._context, volume).get(
            'migration_status') or ''

    def require_old(self, bdm: objects.BlockDeviceMapping,
                    attachment: str | None, state: str) -> None:
        """Raise if others have it that the guest has the new volume.

        :param attachment: of the new volume
        :param state: of migration()
        :raises NotSettled:
        """
        if state == _COMPLETING or (
                attachment is not None and attachment == bdm.attachment_id):
            raise errors.NotSettled(
                reason='the guest has the old volume, but Nova has '
                'attachment %s and the migration status in Cinder is %s'
                % (bdm.attachment_id, state or 'none'))

    def require_new(self, attachment: str | None, state: str) -> str:
        """Return the attachment of the new volume, which the guest has.

        :param state: of migration()
        :raises NotSettled: there is none, or Cinder does not wait
        """
        if attachment is None or state not in ('', _MIGRATING):
            raise errors.NotSettled(
                reason='the guest has the new volume %s, which has '
                'attachment %s, and the migration status in Cinder is %s'
                % (self._swap.new_volume, attachment, state or 'none'))
        return attachment

    def back(self, attachment: str | None, state: str) -> None:
        """Have the instance keep its volume.

        :param attachment: of the new volume, None if it has none any more
        :param state: of migration()
        """
        self._api.roll_detaching(self._context, self._swap.old_volume)
        if attachment is not None:
            self._api.attachment_delete(self._context, attachment)
        if state == _MIGRATING:
            self._api.migrate_volume_completion(
                self._context, self._swap.old_volume,
                self._swap.new_volume, error=True)

    def forward(self, bdm: objects.BlockDeviceMapping, attachment: str,
                state: str) -> None:
        """Have the instance keep the new volume.

        :param attachment: of the new volume
        :param state: of migration()
        """
        self._api.attachment_complete(self._context, attachment)
        info = self.connection_info(attachment)
        if state == _MIGRATING:
            # Whatever becomes of Cinder, a guest that starts anew has to
            # have this one.
            self._save(bdm, self._swap.old_volume, attachment, info)
        old = self.attachment(self._swap.old_volume)
        if old not in (None, attachment):
            self._api.attachment_delete(self._context, old)
        if state == _MIGRATING:
            self._api.migrate_volume_completion(
                self._context, self._swap.old_volume,
                self._swap.new_volume, error=False)
        else:
            self._save(bdm, self._swap.new_volume, attachment, info)

    def renew(self, bdm: objects.BlockDeviceMapping) -> None:
        """Write the attachment that Cinder has left to the database."""
        attachment = self.attachment(self._swap.old_volume)
        if attachment is not None and attachment != bdm.attachment_id:
            self._save(bdm, self._swap.old_volume, attachment,
                       self.connection_info(attachment))

    @staticmethod
    def _save(bdm: objects.BlockDeviceMapping, volume_id: str,
              attachment: str, info: dict) -> None:
        info = {**info, 'serial': volume_id, 'volume_id': volume_id}
        if 'data' in info:
            info['data'] = {**info['data'], 'volume_id': volume_id}
        bdm.update({'connection_info': jsonutils.dumps(info),
                    'source_type': 'volume', 'destination_type': 'volume',
                    'snapshot_id': None, 'volume_id': volume_id,
                    'no_device': None, 'attachment_id': attachment})
        bdm.save()
