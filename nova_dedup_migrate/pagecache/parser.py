# SPDX-License-Identifier: Apache-2.0
"""Reading a guest's listing as it arrives.

The guest may send anything.  What it says is checked frame by frame,
before memory is taken for it; at most one frame is buffered, and extents
take 16 bytes each, up to the number that was asked for.  A frame's extents
are checked together, as arrays: a large guest has millions.

What is not as specified ends it with ListingError.  A listing that is
well-formed may still be wrong: it is a hint, and costs a read.
"""

import dataclasses

import numpy

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
    def of_words(cls, words):
        """Unpack an array of n rows of two 64-bit words."""
        place = words[:, 1]
        return cls(gpa=words[:, 0] & _ADDRESS,
                   pages=(words[:, 0] & _LENGTH) + numpy.uint64(1),
                   offset=place & _OFFSET,
                   disk=(place & _DISK).astype(numpy.intp),
                   kind=place >> _KIND_SHIFT & _KIND_BITS)

    @property
    def length(self):
        """Lengths in bytes."""
        return self.pages * numpy.uint64(form.PAGE)


class ListingParser:
    """Takes a listing apart.

    :param max_extents: more of them are refused
    :param nonce: that BEGIN has to repeat, 0 where none was sent
    :ivar page_size: of the guest's kernel; None before BEGIN
    :ivar disks: list of listingformat.Disk
    :ivar skipped: list of listingformat.Skipped
    :ivar end: listingformat.End; None before END, or if it never came
    :ivar extents: number of extents
    :ivar pages: number of pages of them, data and metadata
    """

    def __init__(self, max_extents=form.MAX_EXTENTS, nonce=0):
        self._max_extents = max_extents
        self._nonce = nonce
        self._buffer = bytearray()
        self._frames = 0
        self._end_address = 0
        self._words = []
        self._sizes = numpy.zeros(form.MAX_DISKS, numpy.uint64)
        self.page_size = None
        self.disks = []
        self.skipped = []
        self.end = None
        self.extents = 0
        self.pages = [0] * len(form.KINDS)

    @property
    def complete(self):
        """Whether END has been read."""
        return self.end is not None

    def chunks(self):
        """Yield Extents, all of them in order."""
        for words in self._words:
            yield Extents.of_words(words)

    def feed(self, data):
        """Take the next bytes; what follows END is not looked at.

        :param data: bytes, of any length
        :raises ListingError: then nothing more can be fed
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

    def _announced(self, kind, length, number):
        """Check what a header says before its payload is waited for."""
        if number != self._frames:
            form.refuse('frame %d where frame %d was due', number,
                        self._frames)
        if (kind == form.BEGIN) != (number == 0):
            form.refuse('frame %d of type %d', number, kind)
        if kind == form.EXTENTS:
            if not length or length % form.EXTENT_LEN:
                form.refuse('EXTENTS of %d bytes', length)
            count = self.extents + length // form.EXTENT_LEN
            if count > self._max_extents:
                form.refuse('more than %d extents', self._max_extents)

    def _frame(self, kind, payload):
        handler = _HANDLERS.get(kind)
        if handler is None:
            form.refuse('frame of unknown type %d', kind)
        handler(self, payload)

    def _begin(self, payload):
        self.page_size, nonce = form.decode_begin(payload)
        if nonce != self._nonce:
            form.refuse('it answers another request')

    def _disk(self, payload):
        number = len(self.disks)
        if number == form.MAX_DISKS:
            form.refuse('more than %d disks', form.MAX_DISKS)
        disk = form.decode_disk(payload, number)
        self.disks.append(disk)
        self._sizes[number] = disk.size

    def _skip(self, payload):
        if len(self.skipped) == form.MAX_SKIPPED:
            form.refuse('more than %d times SKIPPED', form.MAX_SKIPPED)
        self.skipped.append(form.decode_skipped(payload))

    def _take(self, payload):
        # A copy: the view is of what arrived, and that goes.
        words = numpy.frombuffer(payload, _WORD).reshape(-1, 2).copy()
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

    def _check(self, some):
        length = some.length
        if some.kind.max() >= len(form.KINDS):
            form.refuse('extent of an unknown kind')
        if int(some.disk.max()) >= len(self.disks):
            form.refuse('extent of disk %d, of %d listed',
                        some.disk.max(), len(self.disks))
        top = numpy.uint64(form.MAX_OFFSET)
        if (some.gpa >= top - length).any():
            form.refuse('extent beyond all memory')
        size = self._sizes[some.disk]
        if ((some.offset > size) | (length > size - some.offset)).any():
            form.refuse('extent beyond the end of its disk')

    def _finish(self, payload):
        end = form.decode_end(payload)
        if end.extents not in (None, self.extents):
            form.refuse('END after %d extents, it says %d', self.extents,
                        end.extents)
        self.end = end


_HANDLERS = {
    form.BEGIN: ListingParser._begin,
    form.DISK: ListingParser._disk,
    form.EXTENTS: ListingParser._take,
    form.SKIPPED: ListingParser._skip,
    form.END: ListingParser._finish,
}
