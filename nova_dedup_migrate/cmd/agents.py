# SPDX-License-Identifier: Apache-2.0
"""How commands reach the agents and libvirt of this host."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib

from oslo_config import cfg

from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.conf import nova as nova_options
from nova_dedup_migrate.hypervisor import libvirt as libvirt_guest
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import transport


@contextlib.contextmanager
def open_agents(arguments: argparse.Namespace
                ) -> Iterator[tuple[rpc_api.AgentAPI, cfg.ConfigOpts]]:
    """Give a client of the agents, and the configuration.

    :param arguments: with the options of add_options
    :raises ConfigurationError: nova.conf cannot be used
    """
    conf = configuration.load(arguments)
    try:
        nova_options.register_opts(conf)
        bus = transport.get_transport(conf)
    except Exception as error:
        # of any driver of oslo.messaging
        raise errors.ConfigurationError(reason=error) from error
    try:
        yield rpc_api.AgentAPI.from_conf(conf, bus), conf
    finally:
        bus.cleanup()


@contextlib.contextmanager
def local_guest(conf: cfg.ConfigOpts, uuid: str
                ) -> Iterator[libvirt_guest.LibvirtGuest]:
    """Give an instance of this host.

    :raises HypervisorError:
    """
    host = libvirt_host.LibvirtHost(conf.libvirt.connection_uri
                                    or 'qemu:///system')
    try:
        yield libvirt_guest.LibvirtGuest.from_domain(
            host.domain(uuid, uuid), host)
    finally:
        host.close()


def domain_xml(conf: cfg.ConfigOpts, uuid: str) -> str:
    """Return what libvirt of this host has of an instance.

    :raises HypervisorError:
    """
    host = libvirt_host.LibvirtHost(conf.libvirt.connection_uri
                                    or 'qemu:///system')
    try:
        with libvirt_monitor.converting(uuid, 'read the XML'):
            return host.domain(uuid, uuid).XMLDesc()
    finally:
        host.close()
