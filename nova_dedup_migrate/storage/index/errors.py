# SPDX-License-Identifier: Apache-2.0
"""Errors of the index."""

from nova_dedup_migrate.storage import errors


class IndexInUse(errors.StorageError):
    """Another process writes to the index."""

    template = ('index {path} is in use by another process, the agent of '
                'this host. Stop it first')


class IndexDamaged(errors.StorageError):
    """A file of the index is not what it should be."""

    template = ('{path} is no part of an index: {reason}. Remove the '
                'directory of the index; it is then built again')
