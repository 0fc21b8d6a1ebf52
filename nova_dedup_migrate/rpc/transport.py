# SPDX-License-Identifier: Apache-2.0
"""The message bus, and what the agent is called on it."""

from __future__ import annotations

import importlib

from oslo_config import cfg
import oslo_messaging as messaging

from nova_dedup_migrate.rpc import serializer

TOPIC = 'dedup_migrate_agent'
#: Of the controller: any engine takes a request.
ENGINE_TOPIC = 'dedup_migrate_engine'
#: The default differs between nova-compute and everybody else.
EXCHANGE = 'nova_dedup_migrate'


def get_transport(conf: cfg.ConfigOpts) -> messaging.RPCTransport:
    """Return a transport to the bus of [DEFAULT] transport_url.

    It is Nova's own bus: in a cloud with cells, that of the cell of the
    two hosts.
    """
    for name in 'metrics', 'tracing':
        _register(conf, name)
    return messaging.get_rpc_transport(conf)


def _register(conf: cfg.ConfigOpts, name: str) -> None:
    """Make known what oslo.messaging reads of any configuration.

    It registers these options (18.3.1) with oslo.config's global one
    alone, and no call works with another.
    """
    try:
        module = importlib.import_module('oslo_messaging._%s.client' % name)
        group = 'oslo_messaging_' + name
        options = getattr(module, group)
    except (ImportError, AttributeError):
        # of another release
        return
    conf.register_opts(options, group=group)


def get_client(transport: messaging.RPCTransport, timeout: float,
               version_cap: str | None = None,
               topic: str = TOPIC) -> messaging.RPCClient:
    """Return an RPCClient.

    :param timeout: seconds to wait for an answer
    :param topic: TOPIC or ENGINE_TOPIC
    """
    return messaging.get_rpc_client(
        transport, messaging.Target(exchange=EXCHANGE, topic=topic,
                                    version='1.0'),
        timeout=timeout, version_cap=version_cap,
        # One more attempt if the bus is down, instead of for ever.
        retry=1,
        # Fail at once if no agent has ever been on that host.
        transport_options=messaging.TransportOptions(at_least_once=True),
        serializer=serializer.DedupSerializer())


def get_server(transport: messaging.RPCTransport, host: str,
               endpoints: list, topic: str = TOPIC
               ) -> messaging.rpc.server.RPCServer:
    """Return a server that calls endpoints in threads."""
    return messaging.get_rpc_server(
        transport, messaging.Target(exchange=EXCHANGE, topic=topic,
                                    server=host), endpoints,
        executor='threading', serializer=serializer.DedupSerializer(),
        access_policy=messaging.ExplicitRPCAccessPolicy)
