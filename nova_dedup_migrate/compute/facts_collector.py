# SPDX-License-Identifier: Apache-2.0
"""Gathering the facts of a migration, at the source.

From the source's QEMU, libvirt, nova.conf, and by RPC from the agent of
the destination.  What does not depend on each other is asked at once.
"""

import concurrent.futures
import functools
import inspect

import libvirt
from nova.compute import vm_states
import nova.conf
from nova.virt.libvirt import migration as libvirt_migration
from oslo_log import log as logging

from nova_dedup_migrate.agent.identity import challenge
from nova_dedup_migrate.agent.identity import nodes
from nova_dedup_migrate.compute import disks as domain_disks
from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import survey
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_MIB = 1 << 20
#: Seconds for which the guest is looked at.
_SURVEY_S = 1
#: Seconds libvirt adds to a pause: measured in the lab.
_SWITCH_OVER_S = 0.15
#: Seconds for looking at the source's own disks.
_LOOK_S = 5.0


class FactsCollector:
    """Collects the Facts of one migration.

    :param driver: the LibvirtDriver
    :param agents: rpc.api.AgentAPI
    :param guest: hypervisor.libvirt.LibvirtGuest at the source
    :param instance: nova.objects.Instance
    :param migrate_data: nova.objects.LibvirtLiveMigrateData
    :param operation: operations.operation.Operation
    :param link_rate: callable(destination) -> bytes/s of an earlier
        migration, or None
    """

    def __init__(self, driver, agents, guest, instance, migrate_data,
                 operation, link_rate):
        self._driver = driver
        self._agents = agents
        self._guest = guest
        self._instance = instance
        self._migrate_data = migrate_data
        self._operation = operation
        self._link_rate = link_rate

    def collect(self, context):
        """Return planner.facts.Facts.

        :param context: nova.context.RequestContext
        """
        domain = domain_disks.parse(self._guest.domain().XMLDesc(0))
        mirrored, paths = self._mirrored(context)
        source = self._source()
        use = source.patched and self._operation.strategy != 'off'
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            # Each takes a second or so; none needs the others.
            guest = pool.submit(self._survey, domain)
            absent = self._absent(context)
            # The prediction of an ordinary migration needs it as well.
            link = pool.submit(self._link, context, not absent)
            destination, found = self._ask(
                context, absent if use else 'it was not asked', domain)
            return facts.Facts(
                guest=guest.result(),
                disks=tuple(self._disk(disk, found.get(disk.target),
                                       mirrored, destination)
                            for disk in domain.disks),
                source=source, destination=destination,
                link=link.result(), options=self._options(paths))

    # The source

    def _source(self):
        version = decode.mapping(self._guest.qmp('query-version'), 'version')
        version = decode.mapping(version.get('qemu', {}), 'qemu')
        patched = self._guest.is_patched()
        return facts.End(
            host=self._operation.source, patched=patched,
            version='.'.join(str(decode.count(version.get(part, 0), part))
                             for part in ('major', 'minor', 'micro')),
            reason='' if patched else
            'the QEMU of the instance cannot leave out pages')

    def _survey(self, domain):
        """Return facts.Guest."""
        found = survey.survey(
            self._guest, _SURVEY_S,
            running=self._instance.vm_state != vm_states.PAUSED)
        for what, error in found.warnings:
            self._operation.warn(what, error)
        memory = self._guest.domain().info()[1] * 1024
        in_use, hints = found.in_use, found.hints
        return facts.Guest(
            memory=memory, resident=self._resident(domain, memory),
            dirty_rate=found.dirty_rate or 0.0,
            disk_write_rate=found.disk_write_rate,
            in_use=in_use.bytes if in_use is not None else None,
            in_use_error=in_use.error if in_use is not None else 0.0,
            hint_pages=hints.pages if hints is not None else 0,
            map_pages=min(hints.map_pages, hints.pages)
            if hints is not None else 0)

    def _resident(self, domain, memory):
        if not domain.huge_pages:
            kib = self._guest.domain().memoryStats().get('rss')
            if kib is not None:
                return min(memory, kib * 1024)
        return memory

    def _mirrored(self, context):
        """Return the targets this migration copies, and their paths."""
        if not self._migrate_data.block_migration:
            return (), []
        guest = self._driver._host.get_guest(self._instance)
        paths, names = self._driver._live_migration_copy_disk_paths(
            context, self._instance, guest)
        return names, paths

    # The destination

    def _absent(self, context):
        """Return why nothing is asked of the agent, '' if it answers."""
        try:
            self._agents.hello(context, self._operation.destination)
        except errors.AgentUnavailable as error:
            return str(error)
        return ''

    def _ask(self, context, absent, domain):
        """Return its End, and DedupDiskAnswers by target."""
        host = self._operation.destination
        if absent:
            return facts.End(host, False, reason=absent), {}
        site = nodes.Site(ceph_conf=CONF.libvirt.images_rbd_ceph_conf,
                          ceph_key=self._ceph_key)
        there = self._volume_paths()
        looked_at = [disk.at(there.get(disk.serial))
                     for disk in domain.disks]
        with challenge.challenge(looked_at, site, _LOOK_S) as made:
            try:
                reply = self._agents.facts(
                    context, host, objects.DedupFactsRequest(
                        instance_uuid=self._instance.uuid,
                        migration_uuid=self._operation.migration_uuid,
                        emulator=domain.emulator, disks=made.disks,
                        sample_key=made.sample_key))
            except errors.AgentUnavailable as error:
                return facts.End(host, False, reason=str(error)), {}
        return (facts.End(host, reply.patched, reply.qemu_version,
                          reply.reason),
                {answer.target: answer for answer in reply.disks})

    def _volume_paths(self):
        """Map serials of volumes to their paths at the destination."""
        paths = {}
        if 'bdms' in self._migrate_data:
            get_config = self._driver._get_volume_config
            if 'instance' in inspect.signature(get_config).parameters:
                # Nova 2026.1 and earlier
                get_config = functools.partial(get_config, self._instance)
            for bdm in self._migrate_data.bdms:
                config = get_config(bdm.connection_info, bdm.as_disk_info())
                paths[bdm.serial] = config.source_path or config.source_name
        return paths

    def _ceph_key(self, secret):
        connection = self._driver._host.get_connection()
        return connection.secretLookupByUUIDString(secret).value()

    @staticmethod
    def _disk(disk, answer, mirrored, destination):
        """Return facts.Disk."""
        common = {'device': disk.device, 'target': disk.target}
        if answer is None:
            return facts.Disk(copy=facts.NONE, reason=destination.reason,
                              **common)
        common.update(size=answer.size or 0,
                      storage_rate=answer.storage_rate)
        if disk.target in mirrored:
            if answer.copy == 'own':
                return facts.Disk(copy=facts.OWN, to_copy=disk.allocated(),
                                  **common)
        elif answer.copy == 'shared':
            return facts.Disk(copy=facts.SHARED, **common)
        return facts.Disk(
            copy=facts.NONE, reason=answer.reason,
            to_copy=disk.allocated() if disk.target in mirrored else 0,
            **common)

    # The way

    def _link(self, context, use):
        bandwidth = CONF.libvirt.live_migration_bandwidth
        limit = CONF.dedup_migrate.link_bandwidth
        return facts.Link(
            configured=float(bandwidth * _MIB) or None,
            measured=self._link_rate(self._operation.destination),
            host_limit=limit * 1e6 or None)

    def _options(self, paths):
        conf = CONF.libvirt
        flags = self._driver._get_migration_flags(
            self._migrate_data.block_migration)
        channels = (conf.live_migration_parallel_connections
                    if flags & libvirt.VIR_MIGRATE_PARALLEL else 0)
        data_gb = self._driver._live_migration_data_gb(self._instance, paths)
        return facts.Options(
            downtime_ms=conf.live_migration_downtime,
            downtime_steps=tuple(libvirt_migration.downtime_steps(data_gb)),
            switch_over=_SWITCH_OVER_S, multifd_channels=channels,
            postcopy=(self._driver._is_post_copy_enabled(flags)
                      and self._instance.vm_state != vm_states.PAUSED),
            auto_converge=bool(flags & libvirt.VIR_MIGRATE_AUTO_CONVERGE),
            tls=bool(flags & libvirt.VIR_MIGRATE_TLS),
            block_migration=bool(self._migrate_data.block_migration),
            timeout=conf.live_migration_completion_timeout * data_gb,
            force_complete=(conf.live_migration_timeout_action
                            == 'force_complete'),
            strategy=self._operation.strategy,
            strategy_source=self._operation.strategy_source,
            min_gain=CONF.dedup_migrate.min_gain)
