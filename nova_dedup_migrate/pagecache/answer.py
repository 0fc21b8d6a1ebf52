# SPDX-License-Identifier: Apache-2.0
"""What became of asking a guest, for the planner and the report."""

import dataclasses

#: QEMU has taken all, or a part, of what the guest listed.
TAKEN, PARTIAL = 'taken', 'partial'
#: There was no need to ask, or no way; it did not answer; it answered
#: nonsense, or something else went wrong.
NOT_ASKED, UNAVAILABLE, TIMEOUT, REFUSED = (
    'not asked', 'unavailable', 'timeout', 'refused')
_MOST_NOTES = 32


@dataclasses.dataclass(frozen=True)
class Answer:
    """Pages are of 4096 bytes; None stands for not known.

    What the guest says of itself is not proven; only the number of
    taken_pages is QEMU's.

    :ivar outcome: see above
    :ivar reason: why it is not taken, or not whole
    :ivar way: port or agent, '' if none was found
    :ivar seconds: from the question until QEMU had the map
    :ivar status: listingformat.STATUSES, '' if the guest broke off
    :ivar method: listingformat.METHODS, likewise
    :ivar extents: in the listing
    :ivar listed_pages: in the listing
    :ivar taken_pages: of these, in QEMU's table
    :ivar cached_pages: page cache the lister has seen
    :ivar dirty_pages: of these, not listed: not yet written
    :ivar lister_seconds: as the guest says
    :ivar lister_cpu_seconds: likewise
    :ivar read_bytes: that the lister had the guest's disks read
    :ivar asked: how often; the figures are of the last useful answer
    :ivar notes: lines: what is not listed and why, in the guest's words,
        and disks that could not be told
    """

    outcome: str
    reason: str = ''
    way: str = ''
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
    asked: int = 1
    notes: tuple[str, ...] = ()

    @property
    def useful(self):
        """Whether QEMU knows something from it."""
        return self.outcome in (TAKEN, PARTIAL)


def figures(parser):
    """Return fields of Answer that a parser.ListingParser has read."""
    found = {'extents': parser.extents, 'listed_pages': sum(parser.pages),
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


def _note(skipped):
    if skipped.pages is None:
        return skipped.text
    return '%s: %d pages' % (skipped.text, skipped.pages)


def _seconds(microseconds):
    return None if microseconds is None else microseconds / 1e6
