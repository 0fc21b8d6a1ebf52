# SPDX-License-Identifier: Apache-2.0
"""Conversion of a listing into the map that QEMU reads.

Extents of disks that were not identified are left out, and so are those of
disks that the destination cannot read.  Frames are converted one by one: a
listing may have millions of extents.
"""

from collections.abc import Iterator
from collections.abc import Mapping

import numpy

from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import mapformat
from nova_dedup_migrate.pagecache import parser as listing_parser
from nova_dedup_migrate.pagecache import transport

_EXTENT = numpy.dtype([('gpa', '<u8'), ('offset', '<u8'),
                       ('pages', '<u4'), ('disk', '<u4')])


class Converted:
    """The map of a listing.

    :param parser: parser.ListingParser that has read a listing
    :param ids: devices by index of the guest's disk, as identity.match
        returns them
    :param deadline: time.monotonic() after which NoAnswer is raised: the
        migration has gone on without the list
    :ivar disks: tuple of devices
    :ivar extents: number of extents
    :ivar pages: number of pages of these
    """

    def __init__(self, parser: listing_parser.ListingParser,
                 ids: Mapping[int, str], deadline: float) -> None:
        self._parser = parser
        self._deadline = deadline
        self.disks = tuple(ids.values())
        self._numbers = numpy.full(max(1, len(parser.disks)), -1,
                                   numpy.int64)
        for number, index in enumerate(ids):
            self._numbers[index] = number
        self.extents = self.pages = 0
        for _, keep, some in self._kept():
            self.extents += int(keep.sum())
            self.pages += int(some.pages[keep].sum())

    def _kept(self) -> Iterator[tuple[numpy.ndarray, numpy.ndarray,
                                      listing_parser.Extents]]:
        """Yield (disk numbers in the map, mask of valid ones, Extents)."""
        for some in self._parser.chunks():
            if not transport.left(self._deadline):
                raise errors.NoAnswer(
                    reason='the time limit was reached while %d extents '
                    'were converted; see page_cache_time'
                    % self._parser.extents)
            numbers = self._numbers[some.disk]
            yield numbers, numbers >= 0, some

    def _parts(self) -> Iterator[bytes]:
        yield mapformat.encode_disks(self.disks, self.extents)
        for numbers, keep, some in self._kept():
            made = numpy.empty(int(keep.sum()), _EXTENT)
            made['gpa'] = some.gpa[keep]
            made['offset'] = some.offset[keep]
            made['pages'] = some.pages[keep]
            made['disk'] = numbers[keep]
            yield made.tobytes()

    def to_memfd(self) -> int:
        """Return a descriptor, as PageCacheMap.to_memfd does.

        :raises MapError: the map has no disk
        :raises NoAnswer: the deadline has passed
        """
        return mapformat.to_memfd(self._parts())
