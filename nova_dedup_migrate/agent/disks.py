# SPDX-License-Identifier: Apache-2.0
"""What an agent has for disks: index, data channel, disks that are built."""

from __future__ import annotations

from collections.abc import Sequence
import os

from oslo_config import cfg

from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.agent import indexer
from nova_dedup_migrate.agent import local
from nova_dedup_migrate.agent import owners
from nova_dedup_migrate.rpc import api as rpc_api
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
        self.owners = owners.Owners(
            lambda: libvirt.host.connection,
            os.path.join(conf.instances_path,
                         conf.image_cache.subdirectory_name))
        self._index = store.Index(options.index_path,
                                  options.index_max_entries)
        self.channel = disk_channel.DiskChannel(
            conf.host, options.channel_address
            or conf.libvirt.live_migration_inbound_addr or conf.my_ip,
            options.channel_port, tls.Certificates(
                options.channel_ca_file, options.channel_cert_file,
                options.channel_key_file),
            self._index, roots, options.channel_rate)
        self.fillings = fillings.Fillings(
            self.channel, self._index, api, roots, options.journals_path,
            options.storage_reserved_bytes, options.storage_daemon)
        self._indexer = indexer.Indexer(
            self._index, self.owners.files, roots, options.index_interval,
            options.index_rate, libvirt.is_busy, options.index_max_load)
        self._enabled = options.enabled

    def start(self) -> None:
        if self._enabled:
            self.fillings.start()
            self.channel.start()
            self._indexer.start()

    def stop(self) -> None:
        self._indexer.stop()
        self.fillings.stop()
        self.channel.stop()
        self._index.close()
