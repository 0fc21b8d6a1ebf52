# SPDX-License-Identifier: Apache-2.0
"""Errors of reading backups."""

from nova_dedup_migrate import errors


class BackupError(errors.DedupMigrateError):
    """Base: a backup is not read; the blocks come from elsewhere."""

    template = 'the backup cannot be read: {reason}'


class AssistUnavailable(BackupError):
    """A daemon gave no usable answer."""

    template = 'cinder-backup-assist of {host} is not available: {reason}'


class AssistRefused(AssistUnavailable):
    """A daemon works, and refuses this request; reason is its own."""

    template = 'cinder-backup-assist of {host} refuses the request: {reason}'


class StreamMalformed(BackupError):
    """What arrived on a data connection is not what the daemon sends."""

    template = ('cinder-backup-assist of {host} sent what is malformed: '
                '{reason}. Check that it is of the same release')


class NoBackup(BackupError):
    template = 'no backup of volume {volume_id} can be read: {reason}'
