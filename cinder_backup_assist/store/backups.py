# SPDX-License-Identifier: Apache-2.0
"""Which backups of a volume may be read, from Cinder's database.

A backup is served if it and every backup it needs are available, have been
made by this host's driver of the same volume in the same project, and are
not encrypted: those of encrypted volumes hold ciphertext.  A volume that
was created from a backup may be filled from that one, too.  Chains follow
parent_id; times order nothing but the answer.
"""

from __future__ import annotations

from typing import Any

from cinder import context as cinder_context
from cinder import exception
from cinder import objects
from cinder.objects import fields
from oslo_utils import units

from cinder_backup_assist import errors
from cinder_backup_assist.blockmap import chain
from cinder_backup_assist.store import drivers
from nova_dedup_migrate.backups import objects as backup_objects

_BINARY = 'cinder-backup'
#: Times in answers, in UTC.
TIME = '%Y-%m-%dT%H:%M:%SZ'


class Backups:
    """:param store: of this host"""

    def __init__(self, store: drivers.BackupStore) -> None:
        self._store = store

    def find(self, volume_id: str, project_id: str
             ) -> list[backup_objects.DedupBackup]:
        """Return the backups of a volume, the newest first."""
        context = cinder_context.get_admin_context()
        found = [backup for backup in objects.BackupList.get_all_by_volume(
            context, volume_id, project_id)
            if backup.project_id == project_id]
        found += [backup for backup in self._made_from(context, volume_id)
                  if backup.project_id == project_id]
        known = {backup.id: backup for backup in found}
        described = [self._describe(context, backup, known)
                     for backup in known.values()]
        described.sort(key=lambda one: one.data_timestamp, reverse=True)
        return described[:backup_objects.MAX_BACKUPS]

    def chain(self, backup_id: str, volume_id: str, project_id: str
              ) -> list[Any]:
        """Return a backup and its parents, the full one last.

        :returns: Cinder's objects
        :raises BackupRefused:
        """
        context = cinder_context.get_admin_context()
        backup = self._get(context, backup_id, backup_id)
        if backup.volume_id != volume_id and backup_id not in {
                one.id for one in self._made_from(context, volume_id)}:
            raise _refused(backup_id, 'it is of another volume than %s'
                           % volume_id)
        if backup.project_id != project_id:
            raise _refused(backup_id, 'it is of another project than %s'
                           % project_id)
        return self._chain(context, backup, {})

    def hosts(self) -> list[str]:
        """Return the hosts on which cinder-backup is up."""
        services = objects.ServiceList.get_all(
            cinder_context.get_admin_context(),
            {'binary': _BINARY, 'disabled': False})
        return sorted({service.host for service in services
                       if service.is_up})[:backup_objects.MAX_HOSTS - 1]

    def _describe(self, context: Any, backup: Any, known: dict[str, Any]
                  ) -> backup_objects.DedupBackup:
        length, reason = 0, ''
        try:
            length = len(self._chain(context, backup, known))
        except errors.BackupRefused as error:
            reason = error.reason
        moment = backup.data_timestamp or backup.created_at
        return backup_objects.DedupBackup(
            backup_id=backup.id, volume_id=backup.volume_id,
            status=backup.status or '', size=(backup.size or 0) * units.Gi,
            data_timestamp=moment.strftime(TIME),
            of_snapshot=bool(backup.snapshot_id),
            chain_length=length, host=backup.host or '',
            usable=not reason, reason=reason)

    def _chain(self, context: Any, backup: Any, known: dict[str, Any]
               ) -> list[Any]:
        found = [backup]
        while found[-1].parent_id:
            if len(found) >= chain.MAX_DEPTH:
                raise _refused(backup.id, 'it needs more than %d backups'
                               % chain.MAX_DEPTH)
            parent = known.get(found[-1].parent_id) or self._get(
                context, found[-1].parent_id, backup.id)
            found.append(parent)
        for one in found:
            self._check(one, backup)
        return found

    def _check(self, one: Any, backup: Any) -> None:
        """:raises BackupRefused: one cannot be read for backup"""
        if one.status != fields.BackupStatus.AVAILABLE:
            raise _refused(backup.id, 'the status of %s is %s'
                           % (one.id, one.status))
        if (one.volume_id != backup.volume_id
                or one.project_id != backup.project_id):
            raise _refused(backup.id, 'its parent %s is of another volume '
                           'or project' % one.id)
        if one.encryption_key_id is not None:
            raise _refused(backup.id, 'the volume is encrypted, and its '
                           'backup holds ciphertext')
        if not self._store.made(one.service):
            raise _refused(backup.id, '%s was made by the driver %s, and '
                           'this host has %s' % (one.id, one.service,
                                                 self._store.driver_name))

    def _get(self, context: Any, wanted: str, backup_id: str) -> Any:
        try:
            return objects.Backup.get_by_id(context, wanted)
        except exception.BackupNotFound as error:
            raise _refused(backup_id, 'backup %s does not exist' % wanted
                           ) from error

    def _made_from(self, context: Any, volume_id: str) -> list[Any]:
        """Return the backup that a volume was created from, if any."""
        try:
            volume = objects.Volume.get_by_id(context, volume_id)
            name = volume.metadata.get('src_backup_id')
            return [objects.Backup.get_by_id(context, name)] if name else []
        except (exception.VolumeNotFound, exception.BackupNotFound):
            return []


def _refused(backup_id: str, reason: str) -> errors.BackupRefused:
    return errors.BackupRefused(backup_id=backup_id, reason=reason)
