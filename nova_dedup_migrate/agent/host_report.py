# SPDX-License-Identifier: Apache-2.0
"""What the controller learns of this host, now and then."""

from __future__ import annotations

from collections.abc import Callable
import time

import libvirt
from oslo_config import cfg

from nova_dedup_migrate.agent import emulator
from nova_dedup_migrate.agent import guest_samples
from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.agent import local
from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.identity import answer
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import replica_objects

_MIB = 1 << 20


class HostReports:
    """:param conf: with conf.libvirt and conf.dedup_migrate
    :param release: of this package
    :param replicas: returns those of this host
    """

    def __init__(self, conf: cfg.ConfigOpts, release: str,
                 guests: local.LocalLibvirt,
                 emulators: emulator.Emulators,
                 samples: guest_samples.GuestSamples,
                 links: link_rates.LinkRates,
                 replicas: Callable[[], list[replica_objects.DedupReplica]]
                 ) -> None:
        self._conf = conf
        self._release = release
        self._guests = guests
        self._emulators = emulators
        self._samples = samples
        self._links = links
        self._replicas = replicas

    def make(self, waiting: int) -> objects.DedupHostReport:
        """Return a DedupHostReport of now.

        :param waiting: reports that no engine has got yet
        :raises HypervisorError: libvirt does not answer
        """
        found = self._emulators.describe()
        options = self._conf.dedup_migrate
        return objects.DedupHostReport(
            host=self._conf.host, release=self._release[:64],
            patched=found.patched and options.enabled,
            qemu_version=found.version,
            reason=answer.cut(
                found.reason if options.enabled else
                '[dedup_migrate] enabled is off on this host'),
            max_outbound=self._conf.max_concurrent_live_migrations,
            link_rate=self._links.best(), options=self._options(),
            guests=self._guest_samples(), waiting_reports=waiting,
            replicas=self._replicas())

    def _options(self) -> objects.DedupMigrationOptions:
        nova, ours = self._conf.libvirt, self._conf.dedup_migrate
        return objects.DedupMigrationOptions(
            strategy=ours.strategy,
            downtime_ms=float(nova.live_migration_downtime),
            downtime_steps=nova.live_migration_downtime_steps,
            downtime_delay=float(nova.live_migration_downtime_delay),
            adapt_downtime_limit=ours.adapt_downtime_limit,
            max_extra_downtime_ms=float(ours.max_extra_downtime),
            min_gain=float(ours.min_gain),
            bandwidth=float(nova.live_migration_bandwidth * _MIB) or None,
            post_copy=nova.live_migration_permit_post_copy,
            auto_converge=nova.live_migration_permit_auto_converge,
            timeout_per_gb=float(nova.live_migration_completion_timeout),
            force_complete=(nova.live_migration_timeout_action
                            == 'force_complete'))

    def _guest_samples(self) -> list[objects.DedupGuestSample]:
        with libvirt_monitor.converting('of this host', 'list'):
            domains = self._guests.host.connection.listAllDomains(
                libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
        made = []
        for domain in domains[:objects.MAX_GUESTS]:
            try:
                memory = domain.info()[1] * 1024
            except libvirt.libvirtError:
                # It has ended since.
                continue
            made.append(_sample(domain.UUIDString(), memory,
                                self._samples.last(domain.UUIDString())))
        return made


def _sample(uuid: str, memory: int, sample: guest_samples.Sample | None
            ) -> objects.DedupGuestSample:
    if sample is None:
        return objects.DedupGuestSample(uuid=uuid, memory=memory)
    found = sample.found
    in_use, hints = found.in_use, found.hints
    return objects.DedupGuestSample(
        uuid=uuid, memory=memory, tracked=True,
        age=time.monotonic() - sample.taken, dirty_rate=found.dirty_rate,
        disk_write_rate=found.disk_write_rate,
        in_use=None if in_use is None else float(in_use.bytes),
        in_use_error=None if in_use is None else in_use.error,
        hint_pages=0 if hints is None else hints.pages,
        map_pages=0 if hints is None else hints.map_pages)
