# SPDX-License-Identifier: Apache-2.0
"""The command that lists what an instance's disks could be filled from.

Servers, volumes and snapshots are found with the credentials of the caller
(clouds.yaml or OS_*), backups through cinder-backup-assist.  A backup has as
many copies as there are daemons that would serve it now: each is requested
for a ticket, which is given back.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import datetime
import logging
import os
from typing import Any

from cliff import lister
import numpy
from oslo_config import cfg

from nova_dedup_migrate.backups import api as backups_api
from nova_dedup_migrate.backups import connection
from nova_dedup_migrate.backups import errors as backup_errors
from nova_dedup_migrate.backups import objects
from nova_dedup_migrate.backups import reader
from nova_dedup_migrate.cmd import clouds
from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.cmd import snapshots
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.swaps import fingerprints
from nova_dedup_migrate.swaps import watches

LOG = logging.getLogger(__name__)

#: Bytes of a disk that are read at a time.
_STEP = 1 << 20


class ListBackups(lister.Lister):
    """List the backups and snapshots of a server's disks or of a volume."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'subject', metavar='SERVER|VOLUME',
            help='name or ID of a server or volume')
        parser.add_argument(
            '--disk', metavar='PATH',
            help='raw file or device with the present disk of the volume; '
                 'it is read to tell how much of it each backup proves. '
                 'The backup store is not read')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        conf = configuration.load(self.app.options)
        cloud = clouds.connect()
        server, volumes = _find(cloud, parsed_args.subject)
        if parsed_args.disk and len(volumes) != 1:
            raise errors.CommandFailed(
                reason='--disk is of one volume, and %s has %d'
                % (parsed_args.subject, len(volumes)))
        rows: list[tuple[Any, ...]] = []
        for volume in volumes:
            rows += _backups(conf, volume, parsed_args.disk)
            rows += snapshots.of_volume(cloud, volume, _age)
        if server is not None:
            rows += snapshots.of_server(cloud, self.app.options, conf,
                                        server, _age)
        return (('volume', 'kind', 'id', 'status', 'age', 'size', 'chain',
                 'proves', 'copies', 'served_by', 'reason'), rows)


def _find(cloud: Any, name: str) -> tuple[Any, list[Any]]:
    """Return (server or None, volumes) of a name or an ID."""
    server = cloud.compute.find_server(name, all_projects=True)
    if server is None:
        volume = cloud.block_storage.find_volume(name, all_projects=True)
        if volume is None:
            raise errors.CommandFailed(
                reason='there is no server and no volume %s' % name)
        return None, [volume]
    return server, [
        cloud.block_storage.get_volume(attachment.volume_id)
        for attachment in cloud.compute.volume_attachments(server)]


def _backups(conf: cfg.ConfigOpts, volume: Any, disk: str | None
             ) -> list[tuple[Any, ...]]:
    api = backups_api.BackupAssistAPI.from_conf(conf)
    host = conf.host
    project = volume.project_id
    found = api.find(objects.DedupBackupFindRequest(
        volume_id=volume.id, project_id=project, host=host))
    rows = []
    compare, path = share, disk
    if path is None:
        compare, path = known_share, _fingerprints(conf, volume.id)
    hosts = list(found.hosts)
    for backup in found.backups:
        proves, servers = columns.text(''), []
        if backup.usable:
            servers = _servers(api, hosts, host, project, volume.id, backup)
            proves = snapshots.proves(
                None if path is None or not servers else
                _proves(conf, api, host, project, volume.id, backup, path,
                        compare),
                'no host serves it' if not servers else
                'the volume has not been read here' if path is None else
                'it could not be compared')
        rows.append((volume.id, 'backup', backup.backup_id, backup.status,
                     _age(backup.data_timestamp), columns.size(backup.size),
                     backup.chain_length, proves, len(servers),
                     columns.text(', '.join(servers)),
                     columns.text(backup.reason)))
    return rows


def _servers(api: backups_api.BackupAssistAPI, hosts: list[str], host: str,
             project: str, volume_id: str, backup: objects.DedupBackup
             ) -> list[str]:
    """Return the hosts whose daemon serves a backup.

    :param hosts: what does not answer is taken out
    :param host: this one
    """
    found = []
    for name in list(hosts):
        try:
            ticket = api.open(name, objects.DedupBackupOpenRequest(
                backup_id=backup.backup_id, volume_id=volume_id,
                project_id=project, host=host))
            found.append(name)
            api.close(name, ticket.ticket)
        except backup_errors.AssistRefused as error:
            LOG.info('%s', error)
        except backup_errors.AssistUnavailable as error:
            LOG.warning('%s', error)
            hosts.remove(name)
    return found


def _proves(conf: cfg.ConfigOpts, api: backups_api.BackupAssistAPI,
            host: str, project: str, volume_id: str,
            backup: objects.DedupBackup, path: str,
            compare: Callable[[Any, Any, int], float]) -> float | None:
    """Return the share of a disk that a backup has, None if not known.

    :param path: of the disk, or of what is known of it, as compare reads
    """
    source = reader.BackupReader(
        api, connection.tls_context(conf), host, volume_id, project,
        lambda one: '' if one.backup_id == backup.backup_id else 'another')
    try:
        with source.open() as manifest, open(path, 'rb') as content:
            return compare(content, manifest, source.unit)
    except (backup_errors.BackupError, OSError) as error:
        LOG.warning('%s', error)
        return None
    finally:
        source.close()


def share(content: Any, manifest: Any, unit: int) -> float:
    """Return which share of a disk's units a manifest has, 0 to 1.

    :param content: binary file of the disk
    :param manifest: binary file of SHA-256
    """
    manifest.seek(0)
    same = total = 0
    while data := content.read(max(_STEP // unit, 1) * unit):
        for at in range(0, len(data), unit):
            total += 1
            same += (blocks.digest(data[at:at + unit])
                     == manifest.read(blocks.DIGEST))
    return same / total if total else 0.0


def known_share(content: Any, manifest: Any, unit: int) -> float:
    """Return which share of a disk's blocks a manifest is known to have.

    What the guest has written since it was read is not looked at.

    :param content: file of fingerprints
    :param manifest: binary file of SHA-256
    """
    if unit != blocks.BLOCK:
        return 0.0
    content.seek(fingerprints.FIRST)
    manifest.seek(0)
    same = total = 0
    while data := content.read(fingerprints.PIECE * fingerprints.ENTRY):
        entries = numpy.frombuffer(data, 'u1').reshape(
            -1, fingerprints.ENTRY)
        digests = numpy.frombuffer(manifest.read(
            len(entries) * blocks.DIGEST), 'u1').reshape(-1, blocks.DIGEST)
        total += len(entries)
        same += int(fingerprints.equal(entries, digests).sum())
    return same / total if total else 0.0


def _fingerprints(conf: cfg.ConfigOpts, volume_id: str) -> str | None:
    """Return the path of what this host knows of a volume, if anything."""
    records = watches.Records(os.path.join(conf.dedup_migrate.volumes_path,
                                           'watches'))
    for name in records.names():
        record = records.load(*name)
        if record is not None and record.volume_id == volume_id:
            return records.fingerprints(*name)
    return None


def _age(moment: str) -> Any:
    then = datetime.datetime.strptime(
        moment[:19], '%Y-%m-%dT%H:%M:%S').replace(
            tzinfo=datetime.timezone.utc)
    return columns.duration((datetime.datetime.now(datetime.timezone.utc)
                             - then).total_seconds())

