# SPDX-License-Identifier: Apache-2.0
"""Errors of asking a guest what it caches.

Each has one message template and keeps what it was made of.
"""

from nova_dedup_migrate import errors


class PageCacheError(errors.DedupMigrateError):
    """Base of everything this package raises on purpose."""

    template = 'page cache error'


class ListingError(PageCacheError, ValueError):
    """What the guest says is no listing; reason says what is wrong."""

    template = 'the listing of the guest is malformed: {reason}'


class NoWay(PageCacheError):
    """The guest cannot be asked at all."""

    template = 'the guest cannot be asked: {reason}'


class NoAnswer(PageCacheError):
    """The guest was asked in vain."""

    template = 'the guest did not answer: {reason}'


class NotTaken(PageCacheError):
    """QEMU did not take the map."""

    template = 'QEMU did not take the page-cache map: {reason}'
