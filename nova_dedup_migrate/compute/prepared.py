# SPDX-License-Identifier: Apache-2.0
"""What was prepared for a migration that was lost.

While a migration is ``preparing``, its destination makes a folder for the
instance, disks in it, attachments of its volumes.  What of that has to be
undone is known to nova-compute of the source alone, and if that ends, to
nobody: the folder then makes every later migration to that host fail, and
the instance has the attachments of a host that it is not on.

So the destination is asked once more whether it can take the instance:
its answer is what a rollback goes by.  The check claims what an instance
with NUMA or PCI devices needs, a second time, so those are left alone.

A request to prepare waits in the queue of a destination whose nova-compute
is away.  By the time it is read the source has long given up, and rolled
back what there was; nobody would roll back what is prepared then.
"""

from nova import objects
from nova.volume import cinder
from oslo_log import log as logging
import oslo_messaging

from nova_dedup_migrate.compute import journal

LOG = logging.getLogger(__name__)

#: Statuses of a migration that its destination may have to prepare.
_WANTED = ('accepted', 'queued', 'preparing')
#: Microversion of Cinder that has them, as Nova uses it.
_ATTACHMENTS = '3.44'


class NotKnown(Exception):
    """What has to be undone cannot be told, and why."""


def is_wanted(context, instance, host):
    """Whether there is a migration that a host has to prepare for.

    Also true where that is not known, and where the instance is on the host:
    what Nova does about an error of ours there is no better.

    :param instance: nova.objects.Instance, as it came with the request
    """
    try:
        migrations = objects.MigrationList.get_by_filters(
            context, {'instance_uuid': instance.uuid,
                      'status': list(_WANTED)})
        return (any(one.dest_compute == host for one in migrations)
                or objects.Instance.get_by_uuid(
                    context, instance.uuid).host == host)
    except oslo_messaging.MessagingException as error:
        LOG.warning('Whether the instance still has to migrate here is not '
                    'known: %s', error, instance=instance)
        return True


def entry(manager, context, instance, migration):
    """Return the journal.Entry that the migration would have got.

    :param manager: nova.compute.manager.ComputeManager of the source
    :raises NotKnown:
    :raises: what the destination, or Cinder, answer
    """
    if not migration.dest_compute:
        raise NotKnown('no destination was chosen')
    if instance.numa_topology is not None or (
            instance.pci_requests and instance.pci_requests.requests):
        raise NotKnown('the instance has claims at the destination')
    data = manager.compute_rpcapi.check_can_live_migrate_destination(
        context, instance, migration.dest_compute, None, None, migration,
        None)
    data.old_vol_attachment_ids = _attachments(manager, context, instance)
    return journal.Entry(migration.uuid, instance.uuid,
                         migration.dest_compute, bool(data.block_migration),
                         data)


def _attachments(manager, context, instance):
    """Return {volume: attachment of this host}, of those not in use."""
    bdms = [bdm for bdm in
            objects.BlockDeviceMappingList.get_by_instance_uuid(
                context, instance.uuid)
            if bdm.is_volume and bdm.attachment_id]
    if not bdms:
        return {}
    # Nova's own method sees those of Nova's project alone.
    known = cinder.cinderclient(
        context, _ATTACHMENTS, skip_version_check=True).attachments.list(
            search_opts={'instance_id': instance.uuid, 'all_tenants': 1})
    return {bdm.volume_id: old for bdm in bdms
            if (old := _older(manager, context, bdm, known))}


def _older(manager, context, bdm, known):
    """Return the attachment that a volume had before, '' if none.

    :raises NotKnown: it is not clear which one that is
    """
    others = [one.id for one in known
              if one.volume_id == bdm.volume_id
              and one.id != bdm.attachment_id]
    if not others:
        return ''
    if len(others) > 1 or not (
            _made(manager, context, others[0])
            < _made(manager, context, bdm.attachment_id)):
        raise NotKnown('volume %s has %d other attachments' % (
            bdm.volume_id, len(others)))
    return others[0]


def _made(manager, context, attachment):
    """Return when an attachment was made, as a text that can be sorted."""
    info = manager.volume_api.attachment_get(
        context, attachment)['connection_info']
    return info.get('attached_at') or ''
