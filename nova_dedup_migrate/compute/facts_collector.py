# SPDX-License-Identifier: Apache-2.0
"""Collecting the facts of a migration, at the source.

::

    agent of the source       figures of the guest, rate of the link: taken
                              now and then, so they are there at once
    agent of the destination  what it can read there, and how fast
    libvirt, nova.conf        everything else

If the agent of the source does not answer, or has no figures of the guest,
they are measured here, which takes a second.  Calls that do not depend on
each other run at the same time.
"""

import concurrent.futures
import dataclasses
import functools
import inspect

import libvirt
from nova.compute import vm_states
import nova.conf
from nova.virt.libvirt import migration as libvirt_migration
from oslo_log import log as logging

from nova_dedup_migrate import processors
from nova_dedup_migrate.compute import strategy
from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import survey
from nova_dedup_migrate.identity import challenge
from nova_dedup_migrate.identity import domain_disks
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import working_set
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import survey_objects

CONF = nova.conf.CONF
LOG = logging.getLogger(__name__)

_MIB = 1 << 20
#: Seconds for which the guest is measured.
_SURVEY_S = 1
#: Seconds for which a sample is one of now.
_FRESH_S = 5.0
#: Share of the link's rate above which a guest writes a lot.
_MUCH = 0.5
#: Seconds for reading samples of the source's own disks.
_CHALLENGE_S = 5.0
#: Fewer hints that were compared say nothing about the others.
_SAMPLE = 16


def obstacle(conf, strategy, strategy_source, guest):
    """Return why an instance migrates as with Nova's driver, '' if not.

    Cheap: for a guest that takes part one QMP command, otherwise nothing
    at all.  If there is a reason, FactsCollector is not needed.

    :param conf: group dedup_migrate of the options
    :param strategy: of the instance, see strategy.of_instance
    :param strategy_source: likewise
    :param guest: callable that returns the hypervisor.base.Guest
    """
    if not conf.enabled:
        return '[dedup_migrate] enabled is false on this host'
    if strategy == 'off':
        return 'strategy off is set in %s' % strategy_source
    if not guest().is_patched():
        return ('the instance runs on a QEMU that cannot leave pages out. '
                'Install the patched QEMU on this host and restart the '
                'instance, or migrate it to a host that has it')
    return ''


def _may_have_changed(reply):
    """Return whether a sample is of a guest that wrote a lot, and is old.

    A guest that starts or backs up writes many times as much as usual.  Its
    dirty rate decides how the migration goes, and may even have it given up,
    so it has to be that of now.  Of a guest that wrote little the watch
    notices what has changed.

    :param reply: DedupSurveyReply
    """
    return bool(reply.known and reply.age > _FRESH_S and reply.dirty_rate
                and reply.link_rate
                and reply.dirty_rate > _MUCH * reply.link_rate)


class FactsCollector:
    """Collects the Facts of one migration.

    :param driver: the LibvirtDriver
    :param agents: rpc.api.AgentAPI
    :param guest: hypervisor.libvirt.LibvirtGuest at the source, whose QEMU
        is the patched one
    :param instance: nova.objects.Instance
    :param migrate_data: nova.objects.LibvirtLiveMigrateData
    :param operation: operations.operation.Operation
    :param link_rate: callable(destination) -> bytes/s of an earlier
        migration or None; for when the agent of the source has no rate
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
        left = {disk.target: disk.size - disk.proven
                for disk in self._operation.disks if disk.proven is not None}
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            surveyed = pool.submit(self._surveyed, context)
            guest = pool.submit(self._figures, surveyed)
            compressed = pool.submit(self._compressed_share)
            absent = self._absent(context)
            link = pool.submit(self._link, surveyed)
            destination, reply = self._destination(context, absent, domain)
            figures = guest.result()
            answers = ({} if reply is None else
                       {answer.target: answer for answer in reply.disks})
            return facts.Facts(
                guest=dataclasses.replace(
                    self._facts_of_guest(domain, figures),
                    compressed_share=compressed.result()),
                disks=tuple(self._disk(disk, answers.get(disk.target),
                                       mirrored, left, destination,
                                       figures.disk_hints)
                            for disk in domain.disks),
                source=self._source(), destination=destination,
                link=dataclasses.replace(
                    link.result(), sharers=reply.incoming_migrations
                    if reply is not None else 0),
                options=self._options(paths))

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
            'the QEMU of the instance cannot leave pages out',
            processors=processors.idle())

    def _compressed_share(self):
        """Return what remains of a byte of memory, None: not known."""
        try:
            return self._guest.sample_compression().ratio
        except hypervisor_errors.DedupNotSupported:
            # an instance that was started by an older release
            return None
        except hypervisor_errors.HypervisorError as error:
            self._operation.warn('sampling memory for compression', error)
            return None

    def _surveyed(self, context):
        """Return the DedupSurveyReply of this host's agent, or None."""
        try:
            # It may have been killed: this takes 2 s at most.
            self._agents.hello(context, self._operation.source)
            reply = self._survey(context,
                                 CONF.dedup_migrate.survey_max_age)
            if _may_have_changed(reply):
                reply = self._survey(context, _FRESH_S)
            return reply
        except errors.AgentUnavailable as error:
            LOG.warning('The agent of this host has no figures of instance '
                        '%(instance)s: %(error)s. They are measured now, '
                        'which delays live migration %(migration)s by a '
                        'second. Check that nova-dedup-migrate-agent runs '
                        'on this host.',
                        {'instance': self._instance.uuid, 'error': error,
                         'migration': self._operation.migration_uuid})
            return None

    def _survey(self, context, max_age):
        return self._agents.survey(
            context, self._operation.source,
            survey_objects.DedupSurveyRequest(
                instance_uuid=self._instance.uuid,
                destination=self._operation.destination, max_age=max_age))

    def _figures(self, surveyed):
        """Return a _Figures of the guest.

        :param surveyed: Future of _surveyed()
        """
        reply = surveyed.result()
        if reply is not None and reply.known:
            return _Figures.of_reply(reply)
        running = self._instance.vm_state != vm_states.PAUSED
        found = survey.survey(self._guest, _SURVEY_S, running=running)
        for what, error in found.warnings:
            self._operation.warn(what, error)
        return _Figures.of_survey(found)

    def _facts_of_guest(self, domain, figures):
        memory = self._guest.domain().info()[1] * 1024
        running = self._instance.vm_state != vm_states.PAUSED
        return facts.Guest(
            memory=memory, resident=self._resident(domain, memory),
            # The sample may be of a time when it was running.
            dirty_rate=(figures.dirty_rate or 0.0) if running else 0.0,
            disk_write_rate=figures.disk_write_rate if running else 0.0,
            in_use=figures.in_use, in_use_error=figures.in_use_error or 0.0,
            hint_pages=figures.hint_pages,
            map_pages=min(figures.map_pages, figures.hint_pages),
            valid_share=_valid_share(figures.disk_hints or ()),
            windows=figures.windows)

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
        """Return why its agent is not asked, '' if it answers."""
        try:
            self._agents.hello(context, self._operation.destination)
        except errors.AgentUnavailable as error:
            return str(error)
        return ''

    def _destination(self, context, absent, domain):
        """Return its End, and its DedupFactsReply or None."""
        host = self._operation.destination
        if absent:
            return facts.End(host, False, reason=absent), None
        site = nodes.Site(ceph_conf=CONF.libvirt.images_rbd_ceph_conf,
                          ceph_key=self._ceph_key)
        there = self._volume_paths()
        disks = [disk.at(there.get(disk.serial)) for disk in domain.disks]
        with challenge.challenge(disks, site, _CHALLENGE_S) as made:
            try:
                reply = self._agents.facts(
                    context, host, objects.DedupFactsRequest(
                        instance_uuid=self._instance.uuid,
                        migration_uuid=self._operation.migration_uuid,
                        emulator=domain.emulator, disks=made.disks,
                        sample_key=made.sample_key))
            except errors.AgentUnavailable as error:
                return facts.End(host, False, reason=str(error)), None
        return (facts.End(host, reply.patched, reply.qemu_version,
                          reply.reason, reply.idle_processors), reply)

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
    def _disk(disk, answer, mirrored, left, destination, hints):
        """Return facts.Disk.

        :param left: by target, bytes that the destination did not prove
        :param hints: DiskHints or DedupDiskHints of all disks that have
            any; None if they were not counted by disk
        """
        common = {'device': disk.device, 'target': disk.target}
        if hints is not None:
            own = [one for one in hints if one.device == disk.device]
            common.update(hint_pages=sum(one.pages for one in own),
                          valid_share=_valid_share(own))
        if answer is None:
            return facts.Disk(copy=facts.NONE, reason=destination.reason,
                              **common)
        common.update(size=answer.size or 0,
                      storage_rate=answer.storage_rate,
                      scattered_rate=answer.scattered_rate)
        if disk.target in mirrored:
            allocated = disk.allocated()
            common['to_copy'] = min(allocated,
                                    left.get(disk.target, allocated))
            if answer.copy == 'own':
                return facts.Disk(copy=facts.OWN, **common)
        elif answer.copy == 'shared':
            return facts.Disk(copy=facts.SHARED, **common)
        return facts.Disk(copy=facts.NONE, reason=answer.reason, **common)

    # The link

    def _link(self, surveyed):
        """Return facts.Link.

        :param surveyed: Future of _surveyed()
        """
        bandwidth = CONF.libvirt.live_migration_bandwidth
        limit = CONF.dedup_migrate.link_bandwidth
        reply = surveyed.result()
        rate = reply.link_rate if reply is not None else None
        if not rate:
            rate = self._link_rate(self._operation.destination)
        return facts.Link(configured=float(bandwidth * _MIB) or None,
                          measured=rate, host_limit=limit * 1e6 or None)

    def _options(self, paths):
        conf, ours = CONF.libvirt, CONF.dedup_migrate
        flags = self._driver._get_migration_flags(
            self._migrate_data.block_migration)
        channels = (conf.live_migration_parallel_connections
                    if flags & libvirt.VIR_MIGRATE_PARALLEL else 0)
        data_gb = self._driver._live_migration_data_gb(self._instance, paths)
        compression, set_in = strategy.compression_of(self._instance,
                                                      ours.compression)
        return facts.Options(
            downtime_ms=conf.live_migration_downtime,
            downtime_steps=tuple(libvirt_migration.downtime_steps(data_gb)),
            adapt_downtime_limit=ours.adapt_downtime_limit,
            max_extra_downtime_ms=ours.max_extra_downtime,
            switch_over=facts.SWITCH_OVER, multifd_channels=channels,
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
            min_gain=ours.min_gain, fetch_share=ours.fetch_share,
            fetch_rate=ours.fetch_rate << 20, fetch_iops=ours.fetch_iops,
            fetch_in_postcopy=ours.fetch_in_postcopy,
            defer_redirtied_pages=ours.defer_redirtied_pages,
            compression=compression, compression_source=set_in)


@dataclasses.dataclass(frozen=True)
class _Figures:
    """Figures of a guest, whoever has measured them.

    :ivar disk_hints: DiskHints or DedupDiskHints, or None
    :ivar windows: working_set.Window of its working set
    """

    dirty_rate: float | None
    disk_write_rate: float | None
    in_use: float | None
    in_use_error: float | None
    hint_pages: int
    map_pages: int
    disk_hints: tuple | None
    windows: tuple = ()

    @classmethod
    def of_reply(cls, reply):
        """Return those of a DedupSurveyReply."""
        by_disk = bool(reply.hints) or not reply.hint_pages
        return cls(reply.dirty_rate, reply.disk_write_rate, reply.in_use,
                   reply.in_use_error, reply.hint_pages, reply.map_pages,
                   tuple(reply.hints) if by_disk else None,
                   tuple(working_set.Window(one.seconds, one.bytes, one.most,
                                            one.age)
                         for one in reply.windows))

    @classmethod
    def of_survey(cls, found):
        """Return those of a survey.Survey."""
        in_use, hints = found.in_use, found.hints
        return cls(found.dirty_rate, found.disk_write_rate,
                   in_use.bytes if in_use is not None else None,
                   in_use.error if in_use is not None else None,
                   hints.pages if hints is not None else 0,
                   hints.map_pages if hints is not None else 0,
                   found.disk_hints)


def _valid_share(hints):
    """Return the share of the hints that hold, None: not known.

    :param hints: DiskHints of some disks, or DedupDiskHints
    """
    sampled = [one for one in hints if one.sampled >= _SAMPLE]
    pages = sum(one.pages for one in sampled)
    if not pages:
        return None
    return sum(one.pages * one.valid / one.sampled
               for one in sampled) / pages
