# SPDX-License-Identifier: Apache-2.0
"""The steps of Nova's last part of a live migration, in their order.

nova/compute/manager.py of 34.0.0: _post_live_migration with
_do_post_live_migration_at_destination, and _rollback_live_migration with
_do_rollback_live_migration_at_destination.
"""

from collections.abc import Callable
import dataclasses

from nova.compute import task_states

from nova_dedup_migrate.tests.nova_functional import faults

_ALL = (faults.BUS, faults.DEATH)
_DRIVER = (faults.BUS, faults.LIBVIRT, faults.DEATH)


#: An operator has to remove it before the instance migrates there again.
DIRECTORY = 'dest instance directories'
#: What stays if the destination fails to clean up: the source casts its
#: request, and does not hear of it.
_UNHEARD = ('dest interfaces', DIRECTORY, 'binding of port')


@dataclasses.dataclass(frozen=True)
class Step:
    """A call that can fail.

    :ivar name: for the table
    :ivar path: see boundary.Boundary.owner
    :ivar host: whose nova-compute makes the call
    :ivar kinds: faults to inject, see faults.py
    :ivar quick: those that are part of the short form
    :ivar after: whether the call is carried out and only its answer lost
    :ivar when: callable(arguments) -> whether it is this call
    :ivar late: whether the calls before the guest has arrived do not fail
    :ivar ignored: beginnings of lines about what stays because Nova logs
        the error and goes on; no driver can do anything about it
    """

    name: str
    path: str
    host: str = 'src'
    kinds: tuple = _ALL
    quick: tuple = ()
    after: bool = False
    when: Callable | None = None
    ignored: tuple = ()
    late: bool = False


def _tears_down(context, instance, host=None, teardown=False):
    return teardown


def _sets_up(context, instance, host=None, teardown=False):
    return not teardown


def _phase(end):
    def when(context, instance, name, *args, **kwargs):
        return name.endswith(end)
    return when


def _is(wanted):
    def when(migration, status):
        return status == wanted
    return when


def _completes(migration, *args, **kwargs):
    return migration.status == 'completed'


def _fails(migration, *args, **kwargs):
    return migration.status == 'failed'


def _arrives(instance, *args, **kwargs):
    return (kwargs.get('expected_task_state') == task_states.MIGRATING
            and instance.host == 'dest')


def _stays(instance, *args, **kwargs):
    return kwargs.get('expected_task_state') == [task_states.MIGRATING]


#: Of a migration whose guest has arrived.
POST = (
    Step('port bindings of the destination activated',
         'src.manager.network_api.migrate_instance_start',
         quick=(faults.BUS,)),
    Step("the source's volumes disconnected",
         'src.manager.driver.post_live_migration', kinds=_DRIVER,
         quick=(faults.LIBVIRT,)),
    Step('a volume of the source disconnected',
         'src.manager.driver._disconnect_volume', kinds=(faults.LIBVIRT,),
         ignored=('src volumes',)),
    Step('an attachment of the source deleted',
         'src.manager.volume_api.attachment_delete', kinds=(faults.BUS,),
         ignored=('attachments of volume',)),
    Step("the source's attachments deleted",
         'src.manager._post_live_migration_remove_source_vol_connections'),
    Step("the source's interfaces unplugged",
         'src.manager.driver.post_live_migration_at_source', kinds=_DRIVER,
         quick=(faults.DEATH,)),
    Step("the source's PCI devices freed",
         'src.manager.rt.free_pci_device_allocations_for_instance'),
    Step('the source cleaned up', 'src.manager.driver.cleanup',
         kinds=_DRIVER, quick=(faults.BUS,)),
    Step('the destination told',
         'src.manager.compute_rpcapi.post_live_migration_at_destination',
         quick=_ALL),
    Step('the destination told, answer lost',
         'src.manager.compute_rpcapi.post_live_migration_at_destination',
         after=True, quick=(faults.DEATH,)),
    Step('ports of the destination updated',
         'dest.manager.network_api.migrate_instance_finish', host='dest'),
    Step('network information of the destination read',
         'dest.manager.network_api.get_instance_nw_info', host='dest',
         kinds=(faults.BUS,), late=True),
    Step("the destination's PCI devices allocated",
         'dest.manager.rt.allocate_pci_devices_for_instance', host='dest'),
    Step('the destination completes',
         'dest.manager.driver._reattach_instance_vifs',
         host='dest', kinds=_DRIVER, quick=(faults.LIBVIRT,)),
    Step('power state read at the destination',
         'dest.manager._get_power_state', host='dest', kinds=_DRIVER),
    Step('the instance saved by the destination', 'Instance.save',
         host='dest', when=_arrives),
    Step("the source's port bindings deleted",
         'dest.manager.network_api.setup_networks_on_host', host='dest',
         when=_tears_down, quick=(faults.BUS,)),
    Step('networks set up at the destination',
         'dest.manager.network_api.setup_networks_on_host', host='dest',
         when=_sets_up, late=True),
    Step('resources of the source updated',
         'src.manager.update_available_resource'),
    Step('the scheduler told', 'src.manager._update_scheduler_instance_info'),
    Step('notifications of the end sent',
         'src.manager._notify_about_instance_usage',
         when=_phase('_post.end')),
    Step('console tokens deleted',
         'src.manager._clean_instance_console_tokens'),
    Step('the migration saved', 'Migration.save', when=_completes,
         quick=(faults.DEATH,)),
    Step("the source's allocation deleted",
         'src.manager._delete_allocation_after_move', quick=(faults.BUS,)),
)

#: Of one whose guest has stayed.
ROLLBACK = (
    Step('the allocation reverted', 'src.manager._revert_allocation',
         quick=(faults.DEATH,)),
    Step('networks set up at the source',
         'src.manager.network_api.setup_networks_on_host', when=_sets_up),
    Step("the source's interfaces attached again",
         'src.manager.driver.rollback_live_migration_at_source',
         kinds=_DRIVER),
    Step('a volume of the destination disconnected',
         'src.manager.compute_rpcapi.remove_volume_connection',
         ignored=('dest volumes',)),
    Step("the destination's volumes disconnected",
         'src.manager._remove_remote_volume_connections', quick=(faults.BUS,)),
    Step("the destination's volumes disconnected, answer lost",
         'src.manager._remove_remote_volume_connections', after=True),
    Step("the destination's attachments deleted",
         'src.manager._rollback_volume_bdms', quick=(faults.DEATH,)),
    Step("the destination's attachments deleted, answer lost",
         'src.manager._rollback_volume_bdms', after=True),
    Step('notifications of the beginning sent',
         'src.manager._notify_about_instance_usage',
         when=_phase('_rollback.start')),
    Step('the destination told to clean up',
         'src.manager.compute_rpcapi.rollback_live_migration_at_destination',
         quick=(faults.BUS,)),
    Step('the destination told to clean up, answer lost',
         'src.manager.compute_rpcapi.rollback_live_migration_at_destination',
         after=True),
    Step("the destination's port bindings deleted",
         'dest.manager.network_api.setup_networks_on_host', host='dest',
         when=_tears_down, ignored=_UNHEARD),
    Step("the destination's PCI claims freed",
         'dest.manager.rt.free_pci_device_claims_for_instance',
         host='dest', ignored=_UNHEARD),
    Step('the destination cleans up',
         'dest.manager.driver.destroy',
         host='dest', kinds=_DRIVER, ignored=_UNHEARD),
    Step('the instance saved', 'Instance.save', when=_stays,
         quick=(faults.DEATH,)),
    Step('notifications of the end sent',
         'src.manager._notify_about_instance_usage',
         when=_phase('_rollback.end')),
    Step('the migration saved', 'Migration.save', when=_fails,
         quick=(faults.BUS,)),
)

TOLD = Step(
    'the destination told',
    'src.manager.compute_rpcapi.post_live_migration_at_destination')
_CLEANED_UP = Step(
    'the source cleaned up', 'src.manager.driver.cleanup', quick=(faults.BUS,))
_CLAIM_DROPPED = Step(
    "the destination's claim dropped",
    'src.manager.compute_rpcapi.drop_move_claim_at_destination',
    quick=(faults.BUS,))

#: The hosts share the directory of the instances.
POST_SHARED = (TOLD,)
ROLLBACK_SHARED = (
    Step("the destination's port bindings deleted by the source",
         'src.manager.network_api.setup_networks_on_host',
         when=_tears_down),
)

#: The instance has claims on its hosts.
POST_CLAIMS = (TOLD, _CLEANED_UP)
ROLLBACK_CLAIMS = (
    _CLAIM_DROPPED,
    dataclasses.replace(_CLAIM_DROPPED, after=True, quick=(),
                        name=_CLAIM_DROPPED.name + ', answer lost'),
    Step('the instance saved', 'Instance.save', when=_stays),
)

#: The hosts have a secret of the instance.
POST_VTPM = (
    dataclasses.replace(TOLD, quick=(faults.DEATH,)),
    Step('the secret and the volumes of the source removed',
         'src.manager.driver.post_live_migration', kinds=_DRIVER),
)
ROLLBACK_VTPM = (
    Step('the allocation reverted', 'src.manager._revert_allocation',
         quick=(faults.DEATH,)),
    Step('the destination told to clean up',
         'src.manager.compute_rpcapi.rollback_live_migration_at_destination'),
)

#: Before Nova calls the driver.
BEFORE = (
    Step('the status set to preparing', 'src.manager._set_migration_status',
         when=_is('preparing'), quick=(faults.BUS,)),
    Step('the request taken from the queue', 'src.manager._do_live_migration',
         kinds=(faults.DEATH,), quick=(faults.DEATH,)),
    Step('the destination prepared',
         'src.manager.compute_rpcapi.pre_live_migration'),
    Step('the destination prepared, answer lost',
         'src.manager.compute_rpcapi.pre_live_migration', after=True,
         quick=(faults.DEATH,), ignored=('dest volumes',)),
    Step('the status set to running', 'src.manager._set_migration_status',
         when=_is('running')),
)

#: In the thread that calls libvirt, before it does.
UNCALLED = (
    Step('direct interfaces detached',
         'src.manager.driver._detach_direct_passthrough_vifs',
         kinds=(faults.LIBVIRT,), quick=(faults.LIBVIRT,)),
)
