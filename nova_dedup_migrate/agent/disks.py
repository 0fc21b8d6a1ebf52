# SPDX-License-Identifier: Apache-2.0
"""What an agent has for disks: index, data channel, disks that are built."""

from __future__ import annotations

from collections.abc import Sequence
import functools
import os

from oslo_config import cfg

from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.agent import indexer
from nova_dedup_migrate.agent import local
from nova_dedup_migrate.agent import owners
from nova_dedup_migrate.agent import replicas
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import libvirt as libvirt_guests
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import image_store
from nova_dedup_migrate.storage.channel import tls
from nova_dedup_migrate.storage.index import store


class Disks:
    """All of it, from the configuration.

    :param conf: with conf.agent, conf.nova and conf.dedup_migrate
    :param api: of the agents
    :param libvirt: of this host
    :param roots: directories that images may be in
    :raises IndexDamaged:
    """

    def __init__(self, conf: cfg.ConfigOpts, api: rpc_api.AgentAPI,
                 libvirt: local.LocalLibvirt, roots: Sequence[str]) -> None:
        options = conf.dedup_migrate
        roots = (*roots, options.replicas_path)
        self.owners = owners.Owners(
            lambda: libvirt.host.connection,
            os.path.join(conf.instances_path,
                         conf.image_cache.subdirectory_name),
            options.public_images_lifetime)
        self._index = store.Index(options.index_path,
                                  options.index_max_entries)
        self.channel = disk_channel.DiskChannel(
            conf.host, options.channel_address
            or conf.libvirt.live_migration_inbound_addr or conf.my_ip,
            options.channel_port, tls.Certificates(
                options.channel_ca_file, options.channel_cert_file,
                options.channel_key_file),
            self._index, roots, options.channel_rate, self.owners.allowed)
        self.fillings = fillings.Fillings(
            self.channel, self._index, api, roots, options.journals_path,
            options.storage_reserved_bytes, options.storage_daemon,
            self.owners.cached, options.replicas_path, image_store.Tls(
                conf.glance.cafile or '', conf.glance.insecure,
                conf.glance.certfile or '', conf.glance.keyfile or ''))
        self.watchings = watchings.Watchings(
            lambda uuid: libvirt_guests.LibvirtGuest(libvirt.host, uuid),
            self.channel, options.disk_read_rate or float('inf'))
        libvirt.when_back(self.watchings.settle)
        self.replicas = replicas.Replicas(
            options.replicas_path, options.replicas_max_bytes,
            self.fillings, self._index,
            functools.partial(_is_here, libvirt), api,
            options.replicas_interval, libvirt.is_busy)
        self._indexer = indexer.Indexer(
            self._index, lambda: {**self.owners.files(),
                                  **self.replicas.files()},
            roots, options.index_interval, options.index_rate,
            libvirt.is_busy, options.index_max_load)
        self._enabled = options.enabled

    def have(self, request: watch_objects.DedupHaveRequest) -> int:
        """Return how many blocks of a sample the index has.

        :raises ValueError: what should be a digest is none
        """
        digests = [bytes.fromhex(text) for text in request.digests]
        if any(len(digest) != blocks.DIGEST for digest in digests):
            raise ValueError('a digest does not have %d bytes'
                             % blocks.DIGEST)
        source = self.channel.local_source(request.project_id,
                                           request.images)
        return sum(source.have([blocks.Block(digest, 0, blocks.BLOCK)
                                for digest in digests]))

    def try_images(self, request: image_objects.DedupTryImagesRequest
                   ) -> image_objects.DedupTryImagesReply:
        """Read a part of a sample from the image store.

        :raises ValueError: it is no sample
        """
        return self.fillings.stored.try_(request)

    def start(self) -> None:
        if self._enabled:
            self.fillings.start()
            self.channel.start()
            self.replicas.start()
            self._indexer.start()

    def stop(self) -> None:
        self._indexer.stop()
        self.replicas.stop()
        self.watchings.stop()
        self.fillings.stop()
        self.channel.stop()
        self._index.close()


def _is_here(libvirt: local.LocalLibvirt, instance: str) -> bool:
    """Return whether an instance is on this host, False if in doubt."""
    try:
        return libvirt.guest_state_at_once(instance) == 'here'
    except hypervisor_errors.HypervisorError:
        return False
