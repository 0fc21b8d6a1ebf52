# SPDX-License-Identifier: Apache-2.0
"""Errors of the store of operations."""

from nova_dedup_migrate import errors


class StoreError(errors.DedupMigrateError):
    """Base of the errors of the store."""

    template = 'the store of operations failed'


class InvalidName(StoreError):
    template = ('{name!r} is not the UUID of a migration; one looks like '
                '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11')


class OperationNotFound(StoreError):
    template = ('{path} has no live migration {name}; reports are kept on '
                'the source host of a migration')


class OperationDamaged(StoreError):
    template = ('{path} cannot be read: {reason}; remove the file if the '
                'instance is not migrating any more')


class StoreUnusable(StoreError):
    template = ('{path} cannot be used: {reason}; check its permissions '
                'and the free space of its file system')
