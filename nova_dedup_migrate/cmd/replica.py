# SPDX-License-Identifier: Apache-2.0
"""The commands that prepare live migrations."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import logging
import time
from typing import Any
import uuid
from xml.etree import ElementTree

from cliff import command
from cliff import lister

from nova_dedup_migrate import errors as base_errors
from nova_dedup_migrate.agent import owners
from nova_dedup_migrate.cmd import agents
from nova_dedup_migrate.cmd import arguments
from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.hypervisor import libvirt_xml
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import watch_objects

LOG = logging.getLogger(__name__)

#: Seconds of one wait for a disk.
_WAIT = 10.0
#: Runs for one disk, if an agent is restarted meanwhile, and seconds between
#: two of them.  What is in the replica is compared and kept.
_ATTEMPTS = 3
_PAUSE = 10.0
#: Hours that a replica is kept.
_LEASE = 24.0


@dataclasses.dataclass(frozen=True)
class Guest:
    """An instance on this host.

    :ivar project: its ID
    :ivar targets: of its disks
    :ivar images: IDs of those it was made of
    """

    project: str
    targets: list[str]
    images: list[str]


def guest(description: str) -> Guest:
    """Return what the XML of a domain has of an instance of Nova.

    :raises ValueError: it is none
    """
    domain = ElementTree.fromstring(description)
    project = owners.project(domain)
    if project is None:
        raise ValueError('the domain is none of Nova')
    private = owners.private_targets(description)
    return Guest(project, [target for target in
                           libvirt_xml.disks(description)
                           if target in private], owners.images(domain))


class Prepare(command.Command):
    """Build the disks of an instance on another host before it migrates.

    Run it on the host of the instance.  The other host refreshes the replicas
    from time to time.  Run again, it compares all of them; only what has
    changed is sent.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='SERVER', type=arguments.uuid,
                            help='UUID of the instance')
        parser.add_argument('--host', required=True, metavar='HOST',
                            help='destination of the migration, as Nova '
                                 'names it')
        parser.add_argument('--lease', type=float, default=_LEASE,
                            metavar='HOURS',
                            help='remove the replicas after this time '
                                 '(default: %(default)g)')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with agents.open_agents(self.app.options) as (api, conf):
            found = self._guest(conf, parsed_args.server)
            for target in found.targets:
                work = _Preparation(api, conf.host, parsed_args,
                                    found, str(uuid.uuid4()), target)
                try:
                    work.run()
                except BaseException:
                    # The destination first: it is the one who reads.
                    work.end()
                    raise

    @staticmethod
    def _guest(conf: Any, server: str) -> Guest:
        """:raises PreparationFailed:"""
        try:
            return guest(agents.domain_xml(conf, server))
        except (base_errors.DedupMigrateError, ValueError) as error:
            raise errors.PreparationFailed(server=server,
                                           reason=error) from error


class _Preparation:
    """One disk."""

    def __init__(self, api: rpc_api.AgentAPI, source: str,
                 arguments: argparse.Namespace, found: Guest,
                 preparation: str, target: str) -> None:
        self._api = api
        self._source = source
        self._host = arguments.host
        self._server = arguments.server
        self._lease = arguments.lease * 3600
        self._guest = found
        self._preparation = preparation
        self._target = target

    def run(self) -> None:
        """Build the replica.

        :raises AgentUnavailable:
        :raises PreparationFailed:
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._attempt()
            except rpc_errors.AgentRefused:
                raise
            except (rpc_errors.AgentUnavailable,
                    errors.PreparationFailed) as error:
                if attempt == _ATTEMPTS:
                    raise
                LOG.warning('Disk %s: %s. Attempt %d of %d follows in %g s.',
                            self._target, error, attempt + 1, _ATTEMPTS,
                            _PAUSE)
                time.sleep(_PAUSE)

    def _attempt(self) -> None:
        watch = self._api.watch_disk({}, self._source,
                                     watch_objects.DedupWatchRequest(
                                         instance_uuid=self._server,
                                         migration_uuid=self._preparation,
                                         target=self._target,
                                         replica=True))
        fill = disk_objects.DedupFillRequest(
            instance_uuid=self._server, migration_uuid=self._preparation,
            project_id=self._guest.project, images=self._guest.images,
            target=self._target,
            image=disk_objects.DedupImageFile(path='-', format='raw'),
            size=watch.size, granularity=watch.granularity,
            watch=watch.watch, source=self._source, source_blocks=True,
            seconds=self._lease)
        reply = self._api.prepare_disk(
            {}, self._host, replica_objects.DedupPrepareRequest(
                fill=fill, data=watch.data, lease=self._lease))
        while reply.state == 'running':
            reply = self._api.filling({}, self._host, self._preparation,
                                      self._target, _WAIT)
            LOG.info('Disk %s: %d of %d blocks', self._target, reply.done,
                     reply.total)
        if reply.state != 'done':
            raise errors.PreparationFailed(
                server=self._server, reason='disk %s on host %s: %s'
                % (self._target, self._host, reply.reason))
        LOG.info('Disk %s is prepared on host %s: %s', self._target,
                 self._host, ', '.join(
                     '%s %d bytes' % (each.name, each.bytes)
                     for each in reply.sources))

    def end(self) -> None:
        """Have both hosts forget the work; what there is stays."""
        for host, call in ((self._host, self._api.abort_filling),
                           (self._source, self._api.forget_disks)):
            try:
                call({}, host, self._preparation)
            except base_errors.DedupMigrateError as error:
                LOG.warning('Preparation %s is still known on host %s: %s',
                            self._preparation, host, error)


class List(lister.Lister):
    """List the replicas on a host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--host', metavar='HOST',
                            help='default: this host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        with agents.open_agents(self.app.options) as (api, conf):
            found = api.list_replicas({}, parsed_args.host or conf.host)
        return (('instance', 'disk', 'state', 'done', 'size', 'allocated',
                 'source', 'refreshed', 'expires', 'reason'),
                [(each.instance_uuid, each.target, each.state,
                  columns.share(each.done / each.total if each.total
                                else None),
                  columns.size(each.size), columns.size(each.allocated),
                  each.source,
                  columns.time(_time(each.refreshed) if each.refreshed
                               else None),
                  columns.time(_time(each.expires)),
                  columns.text(each.reason))
                 for each in found.replicas])


class Cancel(command.Command):
    """Remove the replicas of an instance from a host."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='SERVER', type=arguments.uuid,
                            help='UUID of the instance')
        parser.add_argument('--host', metavar='HOST',
                            help='default: this host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with agents.open_agents(self.app.options) as (api, conf):
            host = parsed_args.host or conf.host
            count = api.cancel_replicas({}, host, parsed_args.server)
        if not count:
            raise errors.PreparationFailed(
                server=parsed_args.server,
                reason='host %s has no replica of it' % host)
        LOG.info('%d replicas are removed from host %s', count, host)


def _time(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
