# SPDX-License-Identifier: Apache-2.0
"""Errors of reading the page cache of a guest."""

from nova_dedup_migrate import errors


class PageCacheError(errors.DedupMigrateError):
    """Base of the errors of this package."""

    template = 'page cache error'


class ListingError(PageCacheError, ValueError):
    """The listing breaks its format; reason has the rule."""

    template = 'the page-cache listing of the guest is malformed: {reason}'


class MapError(PageCacheError, ValueError):
    """A page-cache map breaks its format; reason has the rule."""

    template = 'page-cache map: {reason}'


class GuestUnreachable(PageCacheError):
    """The request cannot be sent to the guest."""

    template = ('the request for the page-cache listing cannot be sent to '
                'the guest: {reason}')


class NoAnswer(PageCacheError):
    """The request was sent and no listing came back."""

    template = 'the guest sent no page-cache listing: {reason}'


class MapRejected(PageCacheError):
    """QEMU rejected the map."""

    template = 'QEMU rejected the page-cache map: {reason}'
