# SPDX-License-Identifier: Apache-2.0
"""Errors of cinder-backup-assist."""

from nova_dedup_migrate import errors


class AssistError(errors.DedupMigrateError):
    """Base of the errors of this package."""

    template = 'cinder-backup-assist failed'


class MalformedBackup(AssistError):
    """The metadata of a backup is not as Cinder writes it."""

    template = ('the file {name} of the backup store is malformed: {reason}. '
                'Make a new full backup of the volume')


class MalformedChain(AssistError):
    """Backups that are well-formed do not make a volume together."""

    template = ('backup {backup_id} and its parents do not make a volume: '
                '{reason}. Make a new full backup of the volume')


class DamagedObject(AssistError):
    """An object is not what the metadata says."""

    template = 'the object {name} of the backup store is damaged: {reason}'


class StoreFailed(AssistError):
    """The backup store does not give out an object."""

    template = 'the object {name} of the backup store cannot be read: {reason}'


class DriverRefused(AssistError):
    """The configured backup driver's backups cannot be served."""

    template = 'backups of the driver {driver} cannot be served: {reason}'


class BackupRefused(AssistError):
    """Policy or state of a backup forbid to read it."""

    template = 'backup {backup_id} is not served: {reason}'


class RequestRefused(AssistError):
    """A request is malformed or beyond a limit."""

    template = 'the request is refused: {reason}'


class TicketRefused(AssistError):
    template = 'the ticket is refused: {reason}'


class Overloaded(AssistError):
    """This daemon has no room for one more."""

    template = 'cinder-backup-assist of {host} is busy: {reason}'
