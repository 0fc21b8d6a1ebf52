# SPDX-License-Identifier: Apache-2.0
"""Compute hosts that live-migrate, die and start again, and what they hold.

Nova's services and its database are real.  libvirt, Neutron and Cinder are
Nova's fixtures, with what these do not do added: libvirt of the source
forgets a guest that has left, and volumes and network interfaces that a host
has connected are counted.
"""

import os
import threading
import time
import types
from unittest import mock

import fixtures
import libvirt
from nova import context as nova_context
from nova import objects
from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.libvirt import base as libvirt_base
from nova.virt.libvirt import driver as libvirt_driver
from nova.virt.libvirt import vif
from nova.volume import cinder
from oslo_utils import importutils

from nova_dedup_migrate.tests.nova_functional import adopt
from nova_dedup_migrate.tests.nova_functional import faults
from nova_dedup_migrate.tests.nova_functional import hosts
from nova_dedup_migrate.tests.nova_functional import internals

# Nova 32 and 33 do not have it.
thread_pool_factory = importutils.try_import('nova.thread_pool_factory')

#: Seconds in which all that is begun comes to an end, on a busy machine.
SETTLE_S = 90.0
_LOOK_S = 0.1
#: Time for what is not waited for: a cast that goes on when all else is done.
_QUIET_S = 0.5


class GuestStayed(libvirt.libvirtError, fakelibvirt.libvirtError):
    """As libvirt says it, for Nova with the fixture and for us."""

    def __init__(self, message):
        fakelibvirt.libvirtError.__init__(self, message)
        self.err = (libvirt.VIR_ERR_OPERATION_FAILED,
                    libvirt.VIR_FROM_QEMU, message, 2, None, None, None, 0, 0)


class World(adopt.WithOurDriver, libvirt_base.ServersTestBase):
    """Two compute hosts, src and dest, with directories of their own."""

    microversion = '2.74'
    ADMIN_API = True
    CAST_AS_CALL = False
    #: Whether the instances' directories are on storage that hosts share.
    shared = False

    def setUp(self):
        self.hosts = hosts.HostsFixture(
            self.useFixture(fixtures.TempDir()).path, internals.options,
            self.shared)
        super().setUp()
        # a call to a host that is dead must not last a minute
        self.flags(rpc_response_timeout=10, long_rpc_timeout=10)
        self.useFixture(self.hosts)
        self.faults = self.useFixture(faults.Faults())
        #: Whether guests arrive, by UUID; they do unless told otherwise.
        self.stays = set()
        #: Hosts whose agent and libvirt do not answer other hosts.
        self.unreachable = set()
        self.volumes, self.interfaces = {}, {}
        self.restarted = {}
        self._leave_for = {}
        #: Guests whose migration libvirt does not end yet:
        #: {UUID: (begun, may end)}
        self._held = {}
        self._replace_outside()
        internals.hurry(self.replace)
        internals.remove_monitors(self.replace)
        internals.replace_agents(self.replace, self._state_at,
                                 self._forget_at)
        for host in self.names():
            self.start_compute(hostname=host)

    def names(self):
        return ['src', 'dest']

    def replace(self, owner, name, value):
        """Replace an attribute for the time of the test."""
        patcher = mock.patch.object(owner, name, value, create=True)
        patcher.start()
        self.addCleanup(patcher.stop)

    # What is outside of Nova

    def _replace_outside(self):
        world = self
        # which Nova itself does not ask for
        self.replace(fakelibvirt.Domain, 'state',
                     lambda domain, flags=0: [
                         domain._state, getattr(domain, 'reason', 0)])
        self.replace(fakelibvirt.Domain, 'isActive', lambda domain: int(
            domain._state != fakelibvirt.VIR_DOMAIN_SHUTOFF))
        self.replace(fakelibvirt.Domain, 'migrateToURI3',
                     lambda domain, uri, params=None, flags=0:
                     world._migrate_guest(domain, params))
        self.replace(libvirt_driver.LibvirtDriver,
                     '_check_shared_storage_test_file',
                     lambda driver, filename, instance: world.shared)
        self._count(libvirt_driver.LibvirtDriver, '_connect_volume',
                    '_disconnect_volume', self.volumes,
                    lambda context, info, *rest, **more:
                    info['data'].get('volume_id'))
        self._count(vif.LibvirtGenericVIFDriver, 'plug', 'unplug',
                    self.interfaces, lambda instance, one: one['id'])
        self.replace(cinder, 'cinderclient', self._cinder_client)
        get = self.cinder.fake_attachment_get

        def attachment_get(context, attachment_id):
            attachment = get(context, attachment_id)
            # as Cinder has it since 3.44
            ids = [one for attachments in
                   self.cinder.volume_to_attachment.values()
                   for one in attachments]
            attachment['connection_info']['attached_at'] = (
                '2026-01-01T00:00:%02d' % ids.index(attachment_id))
            return attachment

        self.replace(cinder.API, 'attachment_get',
                     lambda api, context, one: attachment_get(context, one))

    def _count(self, owner, add, remove, found, key):
        added, removed = getattr(owner, add), getattr(owner, remove)

        def with_added(this, *args, **kwargs):
            result = added(this, *args, **kwargs)
            found.setdefault(hosts.current(), set()).add(
                key(*args, **kwargs))
            return result

        def with_removed(this, *args, **kwargs):
            result = removed(this, *args, **kwargs)
            found.setdefault(hosts.current(), set()).discard(
                key(*args, **kwargs))
            return result

        self.replace(owner, add, with_added)
        self.replace(owner, remove, with_removed)

    def _cinder_client(self, context, *args, **kwargs):
        def find(search_opts):
            return [types.SimpleNamespace(volume_id=volume, id=one['id'])
                    for volume, attachments in
                    self.cinder.volume_to_attachment.items()
                    for one in attachments.values()
                    if one['instance_uuid'] == search_opts['instance_id']]
        return types.SimpleNamespace(
            attachments=types.SimpleNamespace(list=find))

    def connection(self, host):
        """Return a host's libvirt."""
        return self.computes[host].driver._host.get_connection()

    def domain(self, host, uuid):
        """Return a host's domain, None if it has none."""
        try:
            return self.connection(host).lookupByUUIDString(uuid)
        except fakelibvirt.libvirtError:
            return None

    def _migrate_guest(self, domain, params):
        """As libvirt leaves it: the guest is at one of the hosts."""
        uuid = domain.UUIDString()
        domain._job_type = fakelibvirt.VIR_DOMAIN_JOB_UNBOUNDED
        if uuid in self._held:
            begun, may_end = self._held[uuid]
            begun.set()
            may_end.wait()
        if uuid in self.stays:
            # as libvirt has it when a job has failed
            domain._job_type = fakelibvirt.VIR_DOMAIN_JOB_NONE
            raise GuestStayed('the guest has stayed')
        self.arrive(uuid, domain, params['destination_xml'])
        self.leave(domain)

    def arrive(self, uuid, domain, xml=None):
        """Have a guest run on its destination."""
        arrived = self.connection(self._leave_for[uuid]).createXML(
            xml or domain.XMLDesc(0), 0)
        arrived._transient = False

    @staticmethod
    def leave(domain):
        """Have libvirt of the source forget a guest that has left."""
        domain.complete_job()
        domain.destroy()
        domain.undefine()

    def hold(self, server):
        """Have the next migration of a server not end.

        :returns: (threading.Event that is set when it has begun, one that
            lets it end)
        """
        events = self._held[server['id']] = (threading.Event(),
                                             threading.Event())
        # before all else is taken down
        self.addCleanup(events[1].set)
        return events

    def _state_at(self, host, uuid):
        if host in self.unreachable:
            return None
        domain = self.domain(host, uuid)
        return 'here' if domain is not None and domain.isActive() else 'none'

    def _forget_at(self, host, uuid):
        domain = self.domain(host, uuid)
        if domain is not None and not domain.isActive():
            domain.undefine()

    # What the tests do

    def boot(self, host='src', networks=None, volume=None, **more):
        """Return a server, by default with two volumes and a port.

        :param volume: UUID of the only one it is to have
        """
        body = self._build_server(host=host, networks=networks or [
            {'port': self.neutron.port_1['id']}], **more)
        if not self.shared:
            del body['imageRef']
            body['block_device_mapping_v2'] = [{
                'boot_index': 0,
                'uuid': volume or self.cinder.IMAGE_BACKED_VOL,
                'source_type': 'volume', 'destination_type': 'volume'}]
        server = self.api.post_server({'server': body})
        server = self._wait_for_state_change(server, 'ACTIVE',
                                             max_retries=60)
        # Nova's fixture makes no disks, and so no directory.
        os.makedirs(self.instance_directory(host, server), exist_ok=True)
        if volume is None:
            self.attach(server, self.cinder.ISCSI_BACKED_VOL)
        return server

    def instance_directory(self, host, server):
        """Return the path of the directory of an instance on a host."""
        return os.path.join(self.hosts.directory(host, 'instances_path'),
                            server['id'])

    def attach(self, server, volume):
        """Attach a volume to a server."""
        self.api.post_server_volume(server['id'], {
            'volumeAttachment': {'volumeId': volume}})
        self._wait_for_volume_attach(server['id'], volume)

    def migrate(self, server, host):
        """Begin to migrate a server."""
        self._leave_for[server['id']] = host
        self.api.post_server_action(server['id'], {
            'os-migrateLive': {'host': host, 'block_migration': 'auto'}})

    def release(self, server):
        """Let it end, and later ones as well."""
        self._held.pop(server['id'])[1].set()

    def die(self, host):
        """End a nova-compute as SIGKILL does.

        Whatever of it is inside a call that a fault has stopped does not
        return from it.
        """
        dead = self.computes.pop(host)
        self.compute_rp_uuids.pop(host)
        self.restarted[host] = dead
        for server in (dead.rpcserver, dead.rpcserver_alt):
            server.stop()
        internals.end_threads(dead.driver)
        # All hosts share it here, and a thread of it may be stopped.
        executors = thread_pool_factory.FACTORY._all_executors
        executor = executors.pop(
            thread_pool_factory.ExecutorType.LIVE_MIGRATION, None)
        if executor is not None:
            self.addCleanup(executor.shutdown, False)
        return dead

    def start_again(self, host):
        """Start a nova-compute that has died; its guests still run."""
        dead = self.restarted[host]
        self.start_compute(
            host, connection=dead.driver._host.get_connection(),
            cell_name=self.host_mappings[host].cell_mapping.name)

    def until(self, condition, limit=SETTLE_S):
        """Wait for a condition.

        :returns: what it returned last
        """
        deadline = time.monotonic() + limit
        while not (result := condition()) and time.monotonic() < deadline:
            time.sleep(_LOOK_S)
        return result

    def settled(self, server):
        """Wait until no thread runs a server's migration any more.

        :returns: whether that is so
        """
        if not self.until(lambda: self._is_settled(server)):
            return False
        time.sleep(_QUIET_S)
        return True

    def _is_settled(self, server):
        now = self.api.get_server(server['id'])
        return (now['OS-EXT-STS:task_state'] is None
                and self.status(server) not in (
                    '', 'accepted', 'queued', 'preparing', 'running')
                and not any(self.kept(host) for host in self.names()))

    # What there is

    def kept(self, host):
        return internals.kept(self.hosts.directory(host, 'state_path'))

    def migration(self, server):
        """Return nova.objects.Migration, the newest; None if none."""
        return max(objects.MigrationList.get_by_filters(
            nova_context.get_admin_context(),
            {'instance_uuid': server['id']}), key=lambda one: one.id,
            default=None)

    def status(self, server):
        """Return the status of the newest migration, '' if none."""
        migration = self.migration(server)
        return migration.status if migration is not None else ''

    def said(self, server):
        """Return what Nova says of a server, in one line."""
        now = self.api.get_server(server['id'])
        return '%s at %s, task %s; migration %s' % (
            now['status'], now['OS-EXT-SRV-ATTR:host'],
            now['OS-EXT-STS:task_state'], self.status(server))

    def snapshot(self, server):
        """Return all that a server has anywhere, as a flat dict.

        Hosts' figures are those after their next periodic task.
        """
        context = nova_context.get_admin_context()
        for compute in self.computes.values():
            compute.manager.update_available_resource(context)
        found = {'migration': self.status(server)}
        found.update(self._instance(context, server))
        found.update(self._network())
        found.update(self._storage(context, server))
        found.update(self._placement(context, server))
        for host, compute in self.computes.items():
            found.update(self._host(context, host, compute, server))
        return found

    def _instance(self, context, server):
        instance = objects.Instance.get_by_uuid(
            context, server['id'], expected_attrs=['migration_context'])
        return {'instance %s' % name: getattr(instance, name) for name in (
            'host', 'node', 'task_state', 'vm_state', 'power_state',
            'progress', 'migration_context')}

    def _network(self):
        return {'binding of port %s' % port: {
            host: binding['status'] for host, binding in bindings.items()}
            for port, bindings in self.neutron._port_bindings.items()}

    def _storage(self, context, server):
        found, hosts_of = {}, {}
        for volume, attachments in self.cinder.volume_to_attachment.items():
            for one in attachments.values():
                if one['instance_uuid'] == server['id']:
                    host = (one['connector'] or {}).get('host')
                    hosts_of[one['id']] = host
                    found.setdefault('attachments of volume %s' % volume,
                                     []).append(host)
        for bdm in objects.BlockDeviceMappingList.get_by_instance_uuid(
                context, server['id']):
            if bdm.is_volume:
                found['block device %s is attached to' % bdm.device_name] = (
                    hosts_of.get(bdm.attachment_id, 'nothing'))
                info = bdm.connection_info or ''
                found['block device %s has its connection' %
                      bdm.device_name] = str(bdm.attachment_id) in info
        return {name: sorted(map(str, value)) if isinstance(value, list)
                else value for name, value in found.items()}

    def _placement(self, context, server):
        names = {uuid: host for host, uuid in self.compute_rp_uuids.items()}
        consumers = {'instance': server['id']}
        for migration in objects.MigrationList.get_by_filters(
                context, {'instance_uuid': server['id']}):
            consumers['migration'] = migration.uuid
        found = {}
        for name, uuid in consumers.items():
            allocations = self.placement.get(
                '/allocations/' + uuid).body['allocations']
            found['allocations of the ' + name] = {
                names.get(provider, provider): one['resources']
                for provider, one in allocations.items()}
        return found

    def _host(self, context, host, compute, server):
        node = objects.ComputeNode.get_by_host_and_nodename(
            context, host, host)
        tracker = compute.manager.rt
        return {
            '%s uses' % host: (node.vcpus_used, node.memory_mb_used,
                               node.local_gb_used, node.running_vms),
            '%s claims' % host: sorted(
                set(tracker.tracked_migrations) & {server['id']}),
            '%s PCI devices' % host: sorted(
                (device.address, device.status) for device in
                objects.PciDeviceList.get_by_compute_node(context, node.id)),
            '%s pinned CPUs' % host: self._pinned(node),
            '%s domains' % host: sorted(
                (one.UUIDString() == server['id'], one._state)
                for one in self.connection(host)._vms.values()),
            '%s volumes' % host: sorted(
                map(str, self.volumes.get(host, ()))),
            '%s interfaces' % host: sorted(self.interfaces.get(host, ())),
            '%s secrets' % host: len(self.connection(host)._secrets),
            '%s instance directories' % host: hosts.listing(
                self.hosts.directory(host, 'instances_path'), server['id']),
            '%s keeps' % host: self.kept(host),
        }

    @staticmethod
    def _pinned(node):
        if not node.numa_topology:
            return []
        topology = objects.NUMATopology.obj_from_db_obj(node.numa_topology)
        return [sorted(cell.pinned_cpus) for cell in topology.cells]


def difference(wanted, found):
    """Return what differs between two snapshots, one line for each."""
    return ['%s: %s instead of %s' % (
        name, found.get(name, 'nothing'), wanted.get(name, 'nothing'))
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)]
