# SPDX-License-Identifier: Apache-2.0
"""What the driver adds on the destination of a live migration.

A request to prepare waits in the queue of a destination whose nova-compute
is away.  When it is read, the source may have rolled back long ago, and
nobody would roll back what is prepared then.  So a request that is not
wanted any more is refused, before and after it is carried out; and a
rollback waits until the preparation for the same instance has ended.
"""

from __future__ import annotations

import contextlib
import typing

import libvirt
from nova import context as nova_context
from nova import exception
from nova import objects
from oslo_concurrency import lockutils
from oslo_log import log as logging
import oslo_messaging

LOG = logging.getLogger(__name__)

#: Statuses of a migration that its destination may have to prepare.
_WANTED = ('accepted', 'queued', 'preparing')


def preparing(instance: objects.Instance, locks: lockutils.Semaphores
              ) -> contextlib.AbstractContextManager:
    """Return the lock of what is done here before an instance arrives.

    :param locks: those of this host
    """
    return lockutils.lock('dedup-migrate-preparing-' + instance.uuid,
                          semaphores=locks)


def require_wanted(context: nova_context.RequestContext,
                   instance: objects.Instance, host: str) -> None:
    """Raise unless a migration to a host is still being prepared.

    What cannot be read counts as wanted: Nova could not do better either.

    :raises MigrationError: it was cancelled or rolled back
    """
    try:
        migrations = objects.MigrationList.get_by_filters(
            context, {'instance_uuid': instance.uuid, 'host': host,
                      'status': list(_WANTED)})
    except oslo_messaging.MessagingException as error:
        LOG.warning('The migrations of the instance could not be read: %s. '
                    'It is prepared.', error, instance=instance)
        return
    if not any(one.dest_compute == host for one in migrations):
        raise exception.MigrationError(
            reason='the live migration of instance %s to %s was cancelled; '
                   'nothing is prepared' % (instance.uuid, host))


def require_no_guest(host: typing.Any, instance: objects.Instance) -> None:
    """Raise if the guest that a rollback would destroy runs here.

    :param host: nova.virt.libvirt.host.Host
    :raises MigrationError: it has arrived
    """
    try:
        guest = host.get_guest(instance)
    except exception.InstanceNotFound:
        return
    # A guest that is still arriving is paused.  Of one that runs, a libvirtd
    # that was started again does not know why; Nova decides then.
    state, reason = guest._domain.state()
    if (state == libvirt.VIR_DOMAIN_RUNNING
            and reason != libvirt.VIR_DOMAIN_RUNNING_UNKNOWN):
        raise exception.MigrationError(
            reason='the guest of instance %s runs on this host; its live '
                   'migration is not rolled back here' % instance.uuid)
