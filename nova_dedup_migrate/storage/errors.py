# SPDX-License-Identifier: Apache-2.0
"""Errors of building disks."""

from nova_dedup_migrate import errors


class StorageError(errors.DedupMigrateError):
    """Base of all of this package."""

    template = 'the disk cannot be built: {reason}'


class ManifestMalformed(StorageError):
    """What arrived is no manifest of the disk."""

    template = ('the manifest is malformed: {reason}. Check that the agents '
                'of both hosts are of the same release')


class JournalUnusable(StorageError):
    """A journal is damaged or is of another disk, file or watch."""

    template = ('journal {path} cannot be used: {reason}. Remove it; the '
                'disk is then built from the beginning')


class TargetFailed(StorageError):
    """The file that is built cannot be opened, written or read."""

    template = '{path} cannot be filled: {reason}'


class TargetReplaced(StorageError):
    """The path names another file than the one that was filled."""

    template = ('{path} has been replaced or changed since it was filled: '
                '{reason}. The disk is mirrored in full')


class NoSpace(StorageError):
    """The file system of the target is full, or would soon be."""

    template = ('{path} is not filled any further: its file system has '
                '{free} bytes free, of which [dedup_migrate] '
                'storage_reserved_bytes keeps {reserve}. Free space there')


class Aborted(StorageError):
    """The caller has aborted the work."""

    template = '{path} is not filled any further: the work was aborted'


class TimedOut(StorageError):
    """The time for the work is over."""

    template = ('{path} is not filled any further: the time for that was '
                'over after {seconds:.0f} s')


class SourceFailed(StorageError):
    """A source of blocks cannot be used."""

    template = 'source {name} cannot be used: {reason}'


class DiskUnreadable(StorageError):
    """The disk of the running guest cannot be read."""

    template = 'the disk of the guest cannot be read: {reason}'
