# SPDX-License-Identifier: Apache-2.0
"""Parser of a page-cache listing, fed as data arrives.

The guest may send anything.  Each frame is checked before memory is
allocated for it; at most one frame is buffered, and extents need 16 bytes
each, up to the requested number.  The extents of a frame are checked
together, as arrays: a large guest has millions.

A listing that breaks the format ends in ListingError.  A well-formed one
may still be wrong: each extent is a hint, and a wrong one costs a read.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses
import typing

import numpy

from nova_dedup_migrate.pagecache import compact
from nova_dedup_migrate.pagecache import listingformat as form

_WORD = numpy.dtype('<u8')
_LENGTH = numpy.uint64(form.PAGE - 1)
_ADDRESS = ~_LENGTH
_DISK = numpy.uint64(form.MAX_DISKS - 1)
_OFFSET = ~numpy.uint64(form.SECTOR - 1)
#: What is left of an offset's low bits is the kind.
_KIND_SHIFT = numpy.uint64(6)
_KIND_BITS = numpy.uint64(7)


@dataclasses.dataclass(frozen=True)
class Extents:
    """Some extents, ascending, as arrays of the same length.

    :ivar gpa: guest-physical addresses, bytes
    :ivar pages: lengths in pages of 4096 bytes
    :ivar offset: on the disk, bytes
    :ivar disk: indices
    :ivar kind: indices into listingformat.KINDS
    """

    gpa: numpy.ndarray
    pages: numpy.ndarray
    offset: numpy.ndarray
    disk: numpy.ndarray
    kind: numpy.ndarray

    @classmethod
    def of_words(cls, words: numpy.ndarray) -> Extents:
        """Unpack an array of n rows of two 64-bit words."""
        place = words[:, 1]
        return cls(gpa=words[:, 0] & _ADDRESS,
                   pages=(words[:, 0] & _LENGTH) + numpy.uint64(1),
                   offset=place & _OFFSET,
                   disk=(place & _DISK).astype(numpy.intp),
                   kind=place >> _KIND_SHIFT & _KIND_BITS)

    @property
    def length(self) -> numpy.ndarray:
        """Lengths in bytes."""
        return self.pages * numpy.uint64(form.PAGE)


class ListingParser:
    """Parses one listing.

    :param max_extents: a listing with more is refused
    :param nonce: of the request, which BEGIN repeats; 0 if none was sent
    :ivar page_size: of the guest's kernel; None before BEGIN
    :ivar disks: list of listingformat.Disk
    :ivar skipped: list of listingformat.Skipped
    :ivar end: listingformat.End; None before END
    :ivar extents: number of extents
    :ivar pages: number of pages of them, data and metadata
    """

    def __init__(self, max_extents: int = form.MAX_EXTENTS,
                 nonce: int = 0) -> None:
        self._max_extents = max_extents
        self._nonce = nonce
        self._buffer = bytearray()
        self._frames = 0
        self._end_address = 0
        self._words: list[numpy.ndarray] = []
        self._sizes = numpy.zeros(form.MAX_DISKS, numpy.uint64)
        self.page_size: int | None = None
        self.disks: list[form.Disk] = []
        self.skipped: list[form.Skipped] = []
        self.end: form.End | None = None
        self.extents = 0
        self.pages = [0] * len(form.KINDS)

    @property
    def complete(self) -> bool:
        """Whether END has been read."""
        return self.end is not None

    def chunks(self) -> Iterator[Extents]:
        """Yield Extents, all of them in order."""
        for words in self._words:
            yield Extents.of_words(words)

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; data after END is ignored.

        :param data: bytes, of any length
        :raises ListingError: do not feed any more data
        """
        self._buffer += data
        view = memoryview(bytes(self._buffer))
        at = 0
        while not self.complete and len(view) - at >= form.HEADER.size:
            body = at + form.HEADER.size
            kind, length, number = form.decode_header(view[at:body])
            self._announced(kind, length, number)
            if len(view) - body < length:
                break
            self._frame(kind, view[body:body + length])
            self._frames += 1
            at = body + length
        del self._buffer[:at]

    def _announced(self, kind: int, length: int, number: int) -> None:
        """Check a header before its payload has arrived."""
        if number != self._frames:
            form.refuse('frame %d instead of frame %d', number,
                        self._frames)
        if (kind == form.BEGIN) != (number == 0):
            form.refuse('frame %d of type %d', number, kind)
        if kind == form.EXTENTS:
            if not length or length % form.EXTENT_LEN:
                form.refuse('EXTENTS of %d bytes', length)
            count = self.extents + length // form.EXTENT_LEN
            if count > self._max_extents:
                form.refuse('more than %d extents', self._max_extents)

    def _frame(self, kind: int, payload: memoryview) -> None:
        handler = _HANDLERS.get(kind)
        if handler is None:
            form.refuse('frame of unknown type %d', kind)
        handler(self, payload)

    def _begin(self, payload: memoryview) -> None:
        self.page_size, nonce = form.decode_begin(payload)
        if nonce != self._nonce:
            form.refuse('it belongs to another request')

    def _disk(self, payload: memoryview) -> None:
        number = len(self.disks)
        if number == form.MAX_DISKS:
            form.refuse('more than %d disks', form.MAX_DISKS)
        disk = form.decode_disk(payload, number)
        self.disks.append(disk)
        self._sizes[number] = disk.size

    def _skip(self, payload: memoryview) -> None:
        if len(self.skipped) == form.MAX_SKIPPED:
            form.refuse('more than %d SKIPPED frames', form.MAX_SKIPPED)
        self.skipped.append(form.decode_skipped(payload))

    def _take(self, payload: memoryview) -> None:
        # A copy: the buffer of the view is reused.
        self._add(numpy.frombuffer(payload, _WORD).reshape(-1, 2).copy())

    def _take_compact(self, payload: memoryview) -> None:
        words = compact.decode(payload)
        if self.extents + len(words) > self._max_extents:
            form.refuse('more than %d extents', self._max_extents)
        self._add(words)

    def _add(self, words: numpy.ndarray) -> None:
        some = Extents.of_words(words)
        self._check(some)
        ends = some.gpa + some.length
        if int(some.gpa[0]) < self._end_address or (
                some.gpa[1:] < ends[:-1]).any():
            form.refuse('extents overlap or are not in order')
        self._end_address = int(ends[-1])
        self._words.append(words)
        self.extents += len(words)
        for kind in range(len(form.KINDS)):
            self.pages[kind] += int(some.pages[some.kind == kind].sum())

    def _check(self, some: Extents) -> None:
        length = some.length
        if some.kind.max() >= len(form.KINDS):
            form.refuse('extent of an unknown kind')
        if int(some.disk.max()) >= len(self.disks):
            form.refuse('extent of disk %d; only %d are listed',
                        some.disk.max(), len(self.disks))
        top = numpy.uint64(form.MAX_OFFSET)
        if (some.gpa >= top - length).any():
            form.refuse('extent beyond the largest address')
        size = self._sizes[some.disk]
        if ((some.offset > size) | (length > size - some.offset)).any():
            form.refuse('extent beyond the end of its disk')

    def _finish(self, payload: memoryview) -> None:
        end = form.decode_end(payload)
        if end.extents not in (None, self.extents):
            form.refuse('%d extents before END, which has %d', self.extents,
                        end.extents)
        self.end = end


_HANDLERS: dict[int, typing.Callable[[ListingParser, memoryview], None]] = {
    form.BEGIN: ListingParser._begin,
    form.DISK: ListingParser._disk,
    form.EXTENTS: ListingParser._take,
    form.COMPACT: ListingParser._take_compact,
    form.SKIPPED: ListingParser._skip,
    form.END: ListingParser._finish,
}
