# SPDX-License-Identifier: Apache-2.0
"""Blocks that agents have: that of this host, and those of neighbours.

Their indexes know images, disks and replicas, and each agent gives only what
is of the instance's project, of its image or public.  nova-compute has the
files of the agent's certificate on this host, and is another client of the
data channel.
"""

from __future__ import annotations

import functools
import typing

from nova import context as nova_context
from nova import objects
from oslo_config import cfg
from oslo_log import log as logging

from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage.channel import client
from nova_dedup_migrate.storage.channel import errors as channel_errors
from nova_dedup_migrate.storage.channel import tls
from nova_dedup_migrate.storage.sources import base
from nova_dedup_migrate.storage.sources import neighbour
from nova_dedup_migrate.storage.sources import remote

LOG = logging.getLogger(__name__)


class OwnHostSource(remote.RemoteSource):
    """The agent of this host."""

    name = 'local'
    cost = base.Cost(rate=300e6, latency=0.003)


def sources(conf: cfg.ConfigOpts, agents: api.AgentAPI,
            instance: objects.Instance, key: str) -> list[base.Source]:
    """Return a source for each agent; none has been called yet.

    :param conf: Nova's, with the options of the agent
    :param key: UUID under which agents issue tickets
    """
    options = conf.dedup_migrate
    certificates = tls.Certificates(
        options.channel_ca_file, options.channel_cert_file,
        options.channel_key_file)
    try:
        certificates.context(server=False)
    except channel_errors.NoCertificates as error:
        LOG.info('Agents are not called for blocks of the volumes of '
                 'instance %s: %s', instance.uuid, error)
        return []
    connect = functools.partial(_connect, conf.host, agents, certificates, {
        'migration_uuid': key, 'project_id': instance.project_id,
        'images': [instance.image_ref] if instance.image_ref else []})
    hosts = [host for host in options.disk_neighbours
             if host != conf.host][:disk_objects.MAX_NEIGHBOURS]
    return [OwnHostSource(functools.partial(connect, conf.host)),
            *(neighbour.NeighbourSource(functools.partial(connect, host))
              for host in hosts)]


def _connect(own: str, agents: api.AgentAPI, certificates: tls.Certificates,
             fields: dict[str, typing.Any], host: str) -> client.Channel:
    """Return a connection to the agent of a host.

    :raises StorageError: it cannot be made
    """
    try:
        offer = agents.channel_offer(
            nova_context.get_admin_context(), host,
            disk_objects.DedupChannelRequest(host=own, **fields))
    except rpc_errors.AgentUnavailable as error:
        raise errors.SourceFailed(name=host, reason=error) from error
    return client.Channel(client.Offer(
        host, offer.address, offer.port, bytes.fromhex(offer.ticket)),
        certificates)
