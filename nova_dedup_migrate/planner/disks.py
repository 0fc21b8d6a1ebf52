# SPDX-License-Identifier: Apache-2.0
"""Whether a destination should build a disk before it is mirrored.

::

    ordinary   data / link
    built      the longer of reading the data at the source, but what a
               replica has current, and fetching and writing it at the
               destination, all at the same time; then
               (what is not near + what the guest has written) / link

An overlay over a base that both hosts have holds little that is anywhere
else: building it takes time in which nothing is copied, and the guest
writes to granules meanwhile.  So it pays only if much of the disk is near.

A prediction may be wrong, so a build that pays only if it is fast has to
keep up with the mirror it takes the place of::

    seconds so far <= what the link would have taken for what is proven
                      + MARGIN of ordinary + LEAST

When it does not, it ends, and the rest is mirrored.  So building and
mirroring take no longer than ordinary + MARGIN of it + LEAST.
"""

from collections.abc import Mapping
import dataclasses

from nova_dedup_migrate.planner import units

#: Bytes/s, if they are not known: a paced read of the guest's disk, a
#: write with reading back, a link of 1 Gbit/s.
READ_RATE = 150e6
BUILD_RATE = 100e6
LINK_RATE = 117e6
#: Seconds that preparing takes, whatever the disk is.
SET_UP = 2.0
#: A write of 4 KiB dirties a granule of 32 KiB; some are to the same one.
AMPLIFICATION = 4
#: A sample that is smaller says nothing.
LEAST_SAMPLE = 8
#: Bytes below which there is nothing to gain.
LEAST_DATA = 64 << 20
#: Seconds below which likewise: a prediction is not more exact than that.
LEAST_GAIN = 5.0
#: Of the time of an ordinary block migration, what building a disk may take
#: in vain, and seconds for that beside it, for all disks of an instance.
MARGIN = 0.1
LEAST = 8.0
#: Sources whose bytes an ordinary migration would not copy, either.
_EMPTY = ('zero', 'absent')


@dataclasses.dataclass(frozen=True)
class DiskFacts:
    """What is known of a disk; bytes, seconds.

    :ivar data: that an ordinary block migration would copy
    :ivar sampled: blocks of the data that were looked up
    :ivar found: of these, blocks that are near
    :ivar link_rate: bytes/s, None: not known
    :ivar read_rate: limit of reading at the source, None: none
    :ivar write_rate: bytes/s the guest writes, None: not known
    :ivar current: share of the disk that a replica at the destination has
        as it is now: it is not read at the source
    :ivar fetch_rate: bytes/s at which what is near is read, None: not
        slower than it is written
    :ivar image_store: in words, why images of the image store are not
        read; '' if they are, or if there are none
    """

    data: float
    sampled: int
    found: int
    link_rate: float | None = None
    read_rate: float | None = None
    write_rate: float | None = None
    current: float = 0.0
    fetch_rate: float | None = None
    image_store: str = ''


@dataclasses.dataclass(frozen=True)
class Decision:
    """:ivar build: whether to build it

    :ivar stock: seconds of an ordinary block migration
    :ivar seconds: of building and mirroring
    :ivar link: bytes/s of the ordinary one
    :ivar reason: in words, why not; '' if it is built
    """

    build: bool
    stock: float
    seconds: float
    link: float
    reason: str = ''

    @property
    def longest(self) -> float:
        """Seconds that building may take, beside LEAST."""
        return self.stock * (1 + MARGIN)

    def lost(self, seconds: float, proven: float) -> float:
        """Return how much longer than it may building takes, in seconds.

        :param seconds: that it has taken so far
        :param proven: bytes of data that are at the destination for it
        """
        saved = min(proven / self.link, self.stock)
        return max(0.0, seconds - saved - MARGIN * self.stock)


def copied(sources: Mapping[str, int]) -> int:
    """Return the bytes of what is built that QEMU would have copied.

    :param sources: bytes by source
    """
    return sum(count for name, count in sources.items()
               if name not in _EMPTY)


def decide(known: DiskFacts, min_gain: float, always: bool = False
           ) -> Decision:
    """Return the Decision for one disk.

    :param min_gain: share of the time that has to be saved
    :param always: build it whatever is predicted
    """
    link = known.link_rate or LINK_RATE
    near = max(known.current, known.found / known.sampled
               if known.sampled else 0.0)
    stock = known.data / link
    build = SET_UP + max(
        (1 - known.current) * known.data / min(
            READ_RATE, known.read_rate or READ_RATE),
        near * known.data / min(BUILD_RATE, known.fetch_rate or BUILD_RATE))
    written = min((known.write_rate or 0.0) * build * AMPLIFICATION,
                  known.data)
    seconds = build + ((1 - near) * known.data + near * written) / link
    reason = ''
    if known.data < LEAST_DATA:
        reason = 'it has only %s of data' % units.size(known.data)
    elif known.sampled < LEAST_SAMPLE:
        reason = 'too little of it was sampled'
    elif seconds > stock - max(stock * min_gain, LEAST_GAIN):
        reason = ('%s of its data is near the destination; building would '
                  'take %s, copying takes %s' % (
                      units.percent(near), units.duration(seconds),
                      units.duration(stock)))
    return Decision(always or not reason, stock, seconds, link,
                    '' if always else reason)
