# SPDX-License-Identifier: Apache-2.0
"""Settles a swap of volumes that nova-compute did not bring to its end.

If nova-compute is killed in a swap, Nova leaves a guest that is not
defined, a copy that never ends, and volumes that are neither moved nor
not.  What is true is read from libvirt, Cinder and the database::

    the copy still runs, or has failed       -> it is aborted; back
    the guest runs from the new volume       -> forward
    Cinder has completed, the BDM is older   -> the BDM
    nothing of the new volume is left        -> done

Back and forward are the steps of Nova's compute manager after the driver's.
Each may be done again.
"""

from __future__ import annotations

import logging
import typing
from xml.etree import ElementTree

import libvirt
from nova import context as nova_context
from nova import exception
from nova import objects
from nova.volume import cinder
from oslo_serialization import jsonutils

from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import operations

LOG = logging.getLogger(__name__)


def settle(driver: typing.Any, swap: operations.Swap) -> None:
    """Bring a swap to one of its ends.

    :param driver: the DedupMigrateLibvirtDriver
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
    attachment = volumes.attachment(swap.new_volume)
    if attachment is None:
        volumes.renew(bdm)
    elif attachment == bdm.attachment_id:
        return
    elif pivoted:
        LOG.warning('The swap of volume %s of instance %s was interrupted '
                    'after the guest had its new volume. Completing it',
                    swap.old_volume, swap.instance)
        _disconnect(driver, context, instance,
                    jsonutils.loads(bdm.connection_info or '{}'))
        volumes.forward(bdm, attachment)
    else:
        LOG.warning('The swap of volume %s of instance %s was interrupted. '
                    'The guest keeps its volume', swap.old_volume,
                    swap.instance)
        _disconnect(driver, context, instance,
                    volumes.connection_info(attachment))
        volumes.back(attachment)


def _end_copy(driver: typing.Any, instance: objects.Instance,
              swap: operations.Swap) -> bool:
    """Abort the copy, define the guest; return whether it was swapped."""
    try:
        guest = driver._host.get_guest(instance)
    except exception.InstanceNotFound:
        # It has ended, and starts from what the database has.
        return False
    if not swap.path:
        raise errors.NotFillable(
            reason='whether the guest runs from the new volume is not '
            'known: it is neither a file nor a device')
    if _source(guest, swap.disk) != swap.path:
        try:
            guest.get_block_device(swap.disk).abort_job()
        except libvirt.libvirtError as error:
            LOG.debug('No copy of %s of instance %s is aborted: %s',
                      swap.disk, swap.instance, error)
    if not guest.has_persistent_configuration():
        driver._host.write_instance_config(guest.get_xml_desc(
            dump_inactive=False, dump_sensitive=True))
    return _source(guest, swap.disk) == swap.path


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

    def back(self, attachment: str) -> None:
        """Have the instance keep its volume."""
        migrating = self._is_migrating()
        self._api.roll_detaching(self._context, self._swap.old_volume)
        self._api.attachment_delete(self._context, attachment)
        if migrating:
            self._api.migrate_volume_completion(
                self._context, self._swap.old_volume,
                self._swap.new_volume, error=True)

    def forward(self, bdm: objects.BlockDeviceMapping, attachment: str
                ) -> None:
        """Have the instance keep the new volume."""
        migrating = self._is_migrating()
        self._api.attachment_complete(self._context, attachment)
        info = self.connection_info(attachment)
        if bdm.attachment_id:
            self._api.attachment_delete(self._context, bdm.attachment_id)
        volume_id = self._swap.new_volume
        if migrating:
            volume_id = self._api.migrate_volume_completion(
                self._context, self._swap.old_volume,
                self._swap.new_volume, error=False)['save_volume_id']
        self._save(bdm, volume_id, attachment, info)

    def renew(self, bdm: objects.BlockDeviceMapping) -> None:
        """Write the attachment that Cinder has left to the database."""
        attachment = self.attachment(self._swap.old_volume)
        if attachment is not None and attachment != bdm.attachment_id:
            self._save(bdm, self._swap.old_volume, attachment,
                       self.connection_info(attachment))

    def _is_migrating(self) -> bool:
        return self._api.get(self._context, self._swap.old_volume).get(
            'migration_status') == 'migrating'

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
