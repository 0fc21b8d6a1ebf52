# SPDX-License-Identifier: Apache-2.0
"""The transports to the lister in a guest.

Each implementation passes the suite in tests/unit/pagecache/transports.py.
Whatever the guest does, a request ends at its deadline.
"""

import abc
from collections.abc import Callable
import dataclasses
import time
import typing

from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat
from nova_dedup_migrate.pagecache import parser

#: The lister's part of the time limit; the rest is for the transfer.
_LISTER_SHARE = 0.6


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a request.

    :ivar seconds: from the request until QEMU has read the map
    :ivar memory_kib: KiB of guest memory for the tables of the lister
    :ivar extents: number of extents in the listing
    """

    seconds: float = 5.0
    memory_kib: int = 65536
    extents: int = 1 << 22

    def request(self, nonce: int, seconds: float) -> listingformat.Request:
        """Return a listingformat.Request.

        :param nonce: 0 if the transport needs none
        :param seconds: left until the deadline
        """
        return listingformat.Request(
            nonce=nonce,
            time_ms=max(1, min(int(seconds * _LISTER_SHARE * 1000),
                               listingformat.MAX_TIME_MS)),
            memory_kib=max(listingformat.MIN_MEMORY_KIB,
                           min(self.memory_kib, (1 << 32) - 1)),
            extents=max(1, min(self.extents, listingformat.MAX_EXTENTS)))


class Transport(abc.ABC):
    """A transport to the lister of one guest.

    :cvar name: as in page_cache_transports and in reports
    """

    name: typing.ClassVar[str]

    @abc.abstractmethod
    def obstacle(self) -> str:
        """Return why no request can be sent, '' if one can.

        This sends nothing to the guest.
        """

    @abc.abstractmethod
    def request(self, limits: Limits,
                deadline: float) -> parser.ListingParser:
        """Request a listing; return a parser.ListingParser.

        The listing is complete, or cut off because the guest closed the
        connection or the deadline was reached.

        :param limits: Limits
        :param deadline: of time.monotonic()
        :raises GuestUnreachable: the request could not be sent
        :raises NoAnswer: nothing came back
        :raises ListingError: the answer breaks the format
        """


def left(deadline: float) -> float:
    """Return the seconds until deadline, 0 if it has passed."""
    return max(0.0, deadline - time.monotonic())


class Sink(typing.Protocol):
    """A parser, or the skipping of what precedes its data."""

    @property
    def complete(self) -> bool:
        """Whether the listing has ended."""

    @property
    def page_size(self) -> int | None:
        """None before the first frame."""

    def feed(self, data: bytes) -> None:
        """Take the next bytes.

        :raises ListingError: they break the format
        """


def read(sink: Sink, receive: Callable[[], bytes],
         deadline: float) -> None:
    """Feed a Sink until it is complete or no more data comes.

    :param receive: callable() -> the next bytes, b'' at the end; raises
        a HypervisorError if none come
    :raises NoAnswer: not even the first frame came
    """
    reason = 'the time limit was reached; see page_cache_time'
    try:
        while not sink.complete and left(deadline):
            data = receive()
            if not data:
                reason = 'the guest closed the connection'
                break
            sink.feed(data)
    except hypervisor_errors.HypervisorError as error:
        reason = str(error)
    if sink.page_size is None:
        raise errors.NoAnswer(reason=reason)
