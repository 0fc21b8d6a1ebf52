# SPDX-License-Identifier: Apache-2.0
"""The transport over the virtio-serial port of the lister.

The lister waits at the guest's end.  A port may still hold an answer to an
earlier request, or the rest of one: everything up to the BEGIN frame with
the nonce of this request is skipped.
"""

from __future__ import annotations

import secrets

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.pagecache import parser as listing_parser
from nova_dedup_migrate.pagecache import transport

#: The name of the port; in the guest it is a file in /dev/virtio-ports.
PORT = 'org.nova_dedup_migrate.page_cache.0'

_BEGIN = form.HEADER.pack(form.MAGIC, form.BEGIN, 0,
                          form.BEGIN_PAYLOAD.size, 0)
_LENGTH = len(_BEGIN) + form.BEGIN_PAYLOAD.size
_NONCE = slice(len(_BEGIN) + 8, len(_BEGIN) + 16)


class PortTransport(transport.Transport):
    """The port PORT of a guest.

    :param guest: hypervisor.base.Guest
    """

    name = 'port'

    def __init__(self, guest: hypervisor.Guest) -> None:
        self._guest = guest

    def obstacle(self) -> str:
        return {channel.MISSING: 'the guest has no page-cache port; set the '
                'image property dedup_migrate:page_cache_port',
                channel.CLOSED: 'no page-cache lister runs in the guest',
                }.get(self._guest.channel_state(PORT), '')

    def request(self, limits: transport.Limits,
                deadline: float) -> listing_parser.ListingParser:
        nonce = secrets.randbits(63) + 1
        wanted = limits.request(nonce, transport.left(deadline))
        try:
            connection = self._guest.open_channel(PORT)
        except hypervisor_errors.ChannelUnavailable as error:
            raise errors.GuestUnreachable(reason=str(error)) from error
        with connection:
            try:
                connection.send(wanted.encode(), deadline)
            except hypervisor_errors.HypervisorError as error:
                raise errors.NoAnswer(reason=str(error)) from error
            made = listing_parser.ListingParser(wanted.extents, nonce)
            start = _Start(nonce)
            transport.read(
                _AfterStart(start, made),
                lambda: connection.receive(deadline), deadline)
        return made


class _AfterStart:
    """Feeds a parser the data from the start on."""

    def __init__(self, start: _Start,
                 parser: listing_parser.ListingParser) -> None:
        self._start = start
        self._parser = parser

    @property
    def complete(self) -> bool:
        return self._parser.complete

    @property
    def page_size(self) -> int | None:
        return self._parser.page_size

    def feed(self, data: bytes) -> None:
        data = self._start.skip(data)
        if data:
            self._parser.feed(data)


class _Start:
    """Finds the start of the answer."""

    def __init__(self, nonce: int) -> None:
        self._nonce = nonce.to_bytes(8, 'little')
        self._tail = b''
        self._found = False

    def skip(self, data: bytes) -> bytes:
        """Return the part of data that belongs to the answer."""
        if self._found:
            return data
        data = self._tail + data
        at = data.find(_BEGIN)
        while 0 <= at <= len(data) - _LENGTH:
            if data[at:at + _LENGTH][_NONCE] == self._nonce:
                self._found = True
                return data[at:]
            at = data.find(_BEGIN, at + 1)
        # At most the part of a frame that has not come yet.
        self._tail = data[-(_LENGTH - 1):]
        return b''
