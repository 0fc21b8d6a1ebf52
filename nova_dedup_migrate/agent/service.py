# SPDX-License-Identifier: Apache-2.0
"""The agent, put together."""

from __future__ import annotations

import logging
import threading

from oslo_config import cfg
import oslo_messaging as messaging

from nova_dedup_migrate.agent import disks
from nova_dedup_migrate.agent import emulator
from nova_dedup_migrate.agent import endpoint
from nova_dedup_migrate.agent import facts
from nova_dedup_migrate.agent import guest_samples
from nova_dedup_migrate.agent import host_report
from nova_dedup_migrate.agent import incoming
from nova_dedup_migrate.agent import link
from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.agent import local
from nova_dedup_migrate.agent import outbox
from nova_dedup_migrate.agent import peers
from nova_dedup_migrate.agent import remains
from nova_dedup_migrate.agent import storage_rates
from nova_dedup_migrate.agent import surveys
from nova_dedup_migrate.conf import nova as nova_options
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import engine_api
from nova_dedup_migrate.rpc import transport as rpc_transport

LOG = logging.getLogger(__name__)


class AgentService:
    """The server of one host.

    :param conf: oslo.config's ConfigOpts with conf.agent, conf.nova and
        conf.dedup_migrate registered
    :param transport: of rpc.transport.get_transport
    :param release: of this package
    :param store: operations.store.OperationStore of this host; None:
        nothing is sent to the controller
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 transport: messaging.RPCTransport, release: str,
                 store: outbox.Store | None = None) -> None:
        options = conf.dedup_migrate
        self._migrations = incoming.IncomingMigrations()
        self._libvirt = local.LocalLibvirt(
            conf.libvirt.connection_uri or 'qemu:///system',
            self._migrations.on_event)
        self._emulators = emulator.Emulators(self._libvirt.emulators)
        directories = image_directories(conf)
        agents = rpc_api.AgentAPI.from_conf(conf, transport)
        self._disks = disks.Disks(conf, agents, self._libvirt, directories)
        site = nodes.Site(roots=directories,
                          ceph_conf=conf.libvirt.images_rbd_ceph_conf,
                          ceph_key=self._libvirt.ceph_key)
        ports = range(options.probe_port_min, options.probe_port_max + 1)
        samples = guest_samples.GuestSamples(self._libvirt.host,
                                             self._libvirt.is_busy)
        links = link_rates.LinkRates(
            agents, conf.host,
            peers.Peers(ports, options.probe_networks),
            options.probe_time, options.probe_bytes,
            options.probe_cache_time, self._libvirt.is_busy)
        self._surveys = surveys.Surveys(samples, links,
                                        options.survey_interval,
                                        options.enabled)
        self._outbox: outbox.Outbox | None = None
        if store is not None:
            self._outbox = outbox.Outbox(
                store, engine_api.EngineAPI.from_conf(conf, transport),
                conf.host, host_report.HostReports(
                    conf, release, self._libvirt, self._emulators, samples,
                    links, lambda: self._disks.replicas.list().replicas
                    ).make)
        receiver = link.Receiver(
            options.probe_address or conf.libvirt.live_migration_inbound_addr
            or conf.my_ip, ports, conf.host, self._libvirt.is_busy)
        rates = storage_rates.StorageRates(
            site, options.probe_time, options.probe_bytes,
            options.probe_cache_time)
        self._host = conf.host
        self._guard = threading.Lock()
        self._stopped = False
        self._listening = threading.Event()
        self._server = rpc_transport.get_server(transport, conf.host, [
            endpoint.Endpoint(
                facts.Facts(conf.host, release, site, self._emulators,
                            rates, options.enabled),
                self._migrations, receiver, self._libvirt,
                remains.Remains(self._libvirt.host, self._migrations),
                self._surveys, self._disks)])

    @property
    def outbox(self) -> outbox.Outbox | None:
        """None if nothing is sent to the controller."""
        return self._outbox

    def start(self) -> None:
        """Begin to answer, as soon as the bus is there."""
        self._libvirt.start()
        self._surveys.start()
        if self._outbox is not None:
            self._outbox.start()
        self._disks.start()
        threading.Thread(target=self._listen, name='dedup-listen',
                         daemon=True).start()

    def _listen(self) -> None:
        # It waits for the bus without end, which stop() must not do.
        self._server.start()
        with self._guard:
            if self._stopped:
                # The bus came after stop().
                self._server.stop()
                return
            self._listening.set()
        LOG.info('The dedup agent of %s serves requests', self._host)
        # so that the first migration does not wait for QEMU to start
        self._emulators.describe()

    def stop(self) -> None:
        """Serve the requests that are under way, and end."""
        with self._guard:
            self._stopped = True
        self._surveys.stop()
        if self._outbox is not None:
            self._outbox.stop()
        if self._listening.is_set():
            self._server.stop()
            self._migrations.close()
            self._server.wait()
        self._disks.stop()
        self._libvirt.stop()


def image_directories(conf: cfg.ConfigOpts) -> tuple[str, ...]:
    """Return the directories images may be in."""
    found = (conf.instances_path, *conf.dedup_migrate.image_directories,
             *nova_options.volume_directories(conf))
    return tuple(dict.fromkeys(path for path in found if path))
