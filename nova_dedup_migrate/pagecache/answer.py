# SPDX-License-Identifier: Apache-2.0
"""The outcome of a request for a page-cache listing.

The planner counts the pages, the report shows all of it.
"""

from __future__ import annotations

import dataclasses
import typing

if typing.TYPE_CHECKING:
    # Reports are read without numpy, which the parser imports.
    from nova_dedup_migrate.pagecache import listingformat
    from nova_dedup_migrate.pagecache import parser as listing_parser

#: QEMU uses the whole listing, or a part of it.
TAKEN, PARTIAL = 'taken', 'partial'
#: The request was not needed; it could not be sent; nothing came back in
#: time; the guest or QEMU sent an error.
SKIPPED, UNAVAILABLE, TIMEOUT, REFUSED = (
    'skipped', 'unavailable', 'timeout', 'refused')
_MOST_NOTES = 32


@dataclasses.dataclass(frozen=True)
class Answer:
    """Pages have 4096 bytes; None stands for "not known".

    The guest supplies most of these figures and none of them is proven;
    only taken_pages comes from QEMU.

    :ivar outcome: one of the constants above
    :ivar reason: why the listing is not used, or not all of it
    :ivar transport: port or agent; '' if the guest could not be reached
    :ivar seconds: from the request until QEMU has read the map
    :ivar status: one of listingformat.STATUSES; '' if the listing is cut
        off
    :ivar method: one of listingformat.METHODS; '' likewise
    :ivar extents: in the listing
    :ivar listed_pages: in the listing
    :ivar taken_pages: of these, in QEMU's table
    :ivar cached_pages: page cache that the lister found
    :ivar dirty_pages: of these, not listed as not written to disk yet
    :ivar lister_seconds: by the guest's clock
    :ivar lister_cpu_seconds: processor time of the lister
    :ivar read_bytes: read from the guest's disks by the lister
    :ivar requests: number sent in this migration; the figures are those
        of the last useful answer
    :ivar notes: lines from the guest: content that is not listed, and why;
        and disks that could not be identified
    """

    outcome: str
    reason: str = ''
    transport: str = ''
    seconds: float = 0.0
    status: str = ''
    method: str = ''
    extents: int = 0
    listed_pages: int = 0
    taken_pages: int = 0
    cached_pages: int | None = None
    dirty_pages: int | None = None
    lister_seconds: float | None = None
    lister_cpu_seconds: float | None = None
    read_bytes: int | None = None
    requests: int = 1
    notes: tuple[str, ...] = ()

    @property
    def useful(self) -> bool:
        """Whether QEMU has pages from it."""
        return self.outcome in (TAKEN, PARTIAL)


def figures(parser: listing_parser.ListingParser) -> dict[str, typing.Any]:
    """Return the fields of Answer that are in a listing, as a dict.

    :param parser: parser.ListingParser
    """
    found: dict[str, typing.Any] = {
        'extents': parser.extents, 'listed_pages': sum(parser.pages),
             'notes': tuple(map(_note, parser.skipped[:_MOST_NOTES]))}
    end = parser.end
    if end is not None:
        found.update(
            status=end.status, method=end.method,
            cached_pages=end.cached_pages, dirty_pages=end.dirty_pages,
            lister_seconds=_seconds(end.time_us),
            lister_cpu_seconds=_seconds(end.cpu_us),
            read_bytes=end.read_bytes)
    return found


def _note(skipped: listingformat.Skipped) -> str:
    if skipped.pages is None:
        return skipped.text
    return '%s: %d pages' % (skipped.text, skipped.pages)


def _seconds(microseconds: int | None) -> float | None:
    return None if microseconds is None else microseconds / 1e6
