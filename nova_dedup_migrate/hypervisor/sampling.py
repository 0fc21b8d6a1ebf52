# SPDX-License-Identifier: Apache-2.0
"""How much of a guest's memory is not zero, from a sample of its pages.

QEMU counts zero pages only while it migrates, and the memory its process
has touched (RSS) is no substitute: it includes QEMU itself, and pages the
guest has cleared.  If half of the memory is left to storage, a tenth too
much is a fifth too much on the link.

So some hundred pages are read through the monitor (HMP's xp), one from
each of as many equal parts of the memory, at random within it.  Of 1000
pages that is right within 1.6 % of the memory, and usually better,
because used pages lie together.

QEMU's memory map (info mtree) says which addresses are RAM, so that no
register of a device is read by mistake.
"""

import dataclasses
import math
import random
import re
import time

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import memory

#: Pages that are read, if there is time for so many.
PAGES = 1024
#: For fewer, twice the time may be taken.
ENOUGH = 256
#: Fewer tell nothing.  A host that is so slow gets four times the time.
LEAST = 64
#: Longest text that is parsed, in characters.
_MAX_TEXT = 1 << 20
#: 64-bit words of a page.
_WORDS = memory.PAGE // 8
_READ = 'xp/%dgx 0x%%x' % _WORDS
_RANGE = re.compile(r'\s+([0-9a-f]{16})-([0-9a-f]{16}) '
                    r'\(prio -?\d+, (?:nv-)?ram\): ')
_WORD = re.compile(r'0x([0-9a-f]{16})\b')
_ZERO = '0' * 16


@dataclasses.dataclass(frozen=True)
class InUse:
    """What memory is not zero.

    :ivar bytes: of the guest's RAM, estimated
    :ivar error: standard error of that, in bytes
    :ivar pages: number of pages that were read
    """

    bytes: float
    error: float
    pages: int


def in_use(monitor, seconds, draw=random.randrange):
    """Return InUse.

    :param monitor: callable(HMP command line) -> its text
    :param seconds: read no further page after this time; see ENOUGH
        and LEAST for when it is more
    :param draw: random.randrange
    :raises MalformedReply: the monitor returned something else
    :raises WaitTimeout: there was not enough time for LEAST pages
    """
    started = time.monotonic()
    ranges = ram(monitor('info mtree -f'))
    total = sum(part.size for part in ranges) // memory.PAGE
    seen = used = 0
    for number in _choice(total, draw):
        passed = time.monotonic() - started
        if passed > seconds * (1 if seen >= ENOUGH
                               else 2 if seen >= LEAST else 4):
            break
        holds = _holds_something(monitor(_READ % _address(ranges, number)))
        if holds is not None:
            seen += 1
            used += holds
    if seen < min(LEAST, total):
        raise errors.WaitTimeout(what='sampling memory',
                                 seconds=4 * seconds)
    # A sample in which all are alike does not prove that the rest is.
    share = (used + 1) / (seen + 2)
    return InUse(
        bytes=used / seen * total * memory.PAGE,
        error=math.sqrt(share * (1 - share) / seen) * total * memory.PAGE,
        pages=seen)


def ram(text):
    """Return the memory.RamRanges of whole pages in 'info mtree -f'."""
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise _malformed('info mtree', text, 'a text of some length')
    found = []
    for view in re.split(r'^FlatView ', text, flags=re.MULTILINE):
        if ' AS "memory", ' not in view:
            continue
        for line in view.splitlines():
            match = _RANGE.match(line)
            if match is None:
                continue
            start, last = (int(word, 16) for word in match.groups())
            start = -(-start // memory.PAGE) * memory.PAGE
            size = (last + 1 - start) // memory.PAGE * memory.PAGE
            if size > 0:
                found.append(memory.RamRange(start, size))
    if not found:
        raise _malformed('info mtree', text, 'RAM')
    return tuple(found)


def _choice(total, draw):
    """Yield numbers of pages, one of each part of the memory.

    Neighbouring parts come far apart, so that those that were read
    are spread evenly also when time is over early.
    """
    count = min(PAGES, total)
    parts = sorted(range(count), key=lambda part: int(
        '{:032b}'.format(part)[::-1], 2))
    for part in parts:
        first, end = part * total // count, (part + 1) * total // count
        yield first + draw(end - first)


def _address(ranges, number):
    """Return the physical address of the nth page of all RAM."""
    offset = number * memory.PAGE
    for part in ranges:
        if offset < part.size:
            return part.start + offset
        offset -= part.size
    raise IndexError(number)


def _holds_something(text):
    """Return whether a page is not zero, None if it is not there."""
    if not isinstance(text, str) or len(text) > _MAX_TEXT:
        raise _malformed('xp', text, 'a page')
    if 'Cannot access memory' in text:
        # unplugged meanwhile
        return None
    words = _WORD.findall(text)
    if len(words) != _WORDS:
        raise _malformed('xp', text, '%d words' % _WORDS)
    return any(word != _ZERO for word in words)


def _malformed(command, text, expected):
    return errors.MalformedReply(field=command, value=repr(text)[:80],
                                 expected=expected)
