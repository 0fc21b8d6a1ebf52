# SPDX-License-Identifier: Apache-2.0
"""What a guest writes to in a time, from digests of some of its pages.

QEMU takes digests of one page of each of some thousand parts of the memory,
always the same pages for a seed (x-dedup-sample-digests).  Of two such
samples, the digests that differ are those of pages that were written to::

    0 s        1 s                  10 s                          60 s
    |-- 1 s ---|                     |                              |
    |------------- 10 s -------------|                              |
    |---------------------------- 60 s -----------------------------|
    digests    digests              digests                  digests

QEMU keeps nothing between two samples.  So windows of any length are measured
at a time, and calc-dirty-rate, which a guest can do once at a time and which
cannot be cancelled, is free for those who need the dirty rate of this moment.
"""

import base64
import binascii
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import time

from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import memory

#: The command of QEMU.
COMMAND = 'x-dedup-sample-digests'
#: Pages that are looked at: as many as for a dirty rate.
PAGES = 8192
_BYTES = 4


@dataclasses.dataclass(frozen=True)
class PageDigests:
    """Digests of some pages.

    :ivar total: pages of the guest's RAM
    :ivar digests: of 4 bytes each, at most PAGES
    """

    total: int
    digests: bytes = dataclasses.field(repr=False)

    @classmethod
    def from_qmp(cls, reply):
        """Decode DedupDigestSample.

        :raises MalformedReply: it is none, or of another number of pages
        """
        reply = decode.mapping(reply, COMMAND)
        total = decode.count(reply.get('pages'), 'pages')
        text = reply.get('digests')
        try:
            # Longer ones are not looked at.
            found = (base64.b64decode(text, validate=True)
                     if isinstance(text, str) and len(text) <= 8 * PAGES
                     else b'')
        except (binascii.Error, ValueError):
            found = b''
        if not found or len(found) != _BYTES * min(PAGES, total):
            raise errors.MalformedReply(
                field=COMMAND, value=repr(text)[:80],
                expected='%d bytes for each of %d pages, or all there are, '
                         'in base64' % (_BYTES, PAGES))
        return cls(total, found)

    def written_since(self, before: 'PageDigests') -> float | None:
        """Return the bytes that hold something else now, estimated.

        :param before: taken with the same seed
        :returns: None if memory was plugged or unplugged in between
        """
        if self.total != before.total:
            return None
        differing = sum(
            self.digests[at:at + _BYTES] != before.digests[at:at + _BYTES]
            for at in range(0, len(self.digests), _BYTES))
        return (differing * _BYTES / len(self.digests)
                * self.total * memory.PAGE)


@dataclasses.dataclass(frozen=True)
class Written:
    """What was written to in one window.

    :ivar window: seconds it was to have
    :ivar seconds: it had, a little more
    :ivar bytes: written to at least once
    """

    window: int
    seconds: float
    bytes: float


def measure(look: Callable[[], PageDigests], windows: Sequence[int],
            wait: Callable[[float], object] | None = None
            ) -> Iterator[Written]:
    """Yield a Written at the end of each window; all begin together.

    :param look: returns digests of now, always with the same seed; what it
        raises is passed on
    :param windows: seconds, ascending
    :param wait: waits so many seconds, default time.sleep; if it returns
        something true, there is no further window
    """
    begun, before = time.monotonic(), look()
    for window in windows:
        if (wait or time.sleep)(max(0.0, begun + window - time.monotonic())):
            return
        passed = time.monotonic() - begun
        written = look().written_since(before)
        if written is None:
            return
        yield Written(window, passed, written)
