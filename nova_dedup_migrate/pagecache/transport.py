# SPDX-License-Identifier: Apache-2.0
"""Ways to a guest's lister.

Each implementation passes the suite in tests/unit/pagecache/transports.py.
Whatever the guest does, asking it ends at the deadline.
"""

import abc
import dataclasses
import time

from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat

#: Of the time there is, what the lister may take; the listing has to get
#: here as well.
_LISTER_SHARE = 0.6


@dataclasses.dataclass(frozen=True)
class Limits:
    """What asking may cost.

    :ivar seconds: all in all
    :ivar memory_kib: of the lister's tables in the guest
    :ivar extents: of the listing
    """

    seconds: float = 5.0
    memory_kib: int = 65536
    extents: int = 1 << 22

    def request(self, nonce, seconds):
        """Return a listingformat.Request.

        :param seconds: that are left
        """
        return listingformat.Request(
            nonce=nonce,
            time_ms=max(1, min(int(seconds * _LISTER_SHARE * 1000),
                               listingformat.MAX_TIME_MS)),
            memory_kib=max(listingformat.MIN_MEMORY_KIB,
                           min(self.memory_kib, (1 << 32) - 1)),
            extents=max(1, min(self.extents, listingformat.MAX_EXTENTS)))


class Transport(abc.ABC):
    """A way to the lister of one guest.

    :cvar name: for people, and for the option that lists them
    """

    name = None

    @abc.abstractmethod
    def obstacle(self):
        """Return why the guest cannot be asked this way, '' if it can.

        The guest is not asked for that.
        """

    @abc.abstractmethod
    def ask(self, limits, deadline):
        """Return a parser.ListingParser that has begun to read.

        It is complete, or what had come when the guest broke off or the
        time was over.

        :param limits: Limits
        :param deadline: of time.monotonic()
        :raises NoWay: it cannot be asked this way
        :raises NoAnswer: it answered nothing
        :raises ListingError: it answered nonsense
        """


def left(deadline):
    """Return the seconds until deadline, 0 if it has passed."""
    return max(0.0, deadline - time.monotonic())


def read(parser, receive, deadline):
    """Feed parser until it is complete or nothing more comes.

    :param receive: callable() -> the next bytes, b'' at the end; raises
        a HypervisorError where nothing comes
    :raises NoAnswer: nothing came at all
    """
    reason = 'the time was over'
    try:
        while not parser.complete and left(deadline):
            data = receive()
            if not data:
                reason = 'it broke off'
                break
            parser.feed(data)
    except hypervisor_errors.HypervisorError as error:
        reason = str(error)
    if parser.page_size is None:
        raise errors.NoAnswer(reason=reason)
