# SPDX-License-Identifier: Apache-2.0
"""Asking over a virtio-serial port of our own.

The lister waits at the guest's end.  A port outlives those who use it, so
an answer to somebody earlier may still be in it, whole or from its middle
on: all is skipped up to the BEGIN that repeats the nonce of this request.
"""

import secrets

from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.pagecache import errors
from nova_dedup_migrate.pagecache import listingformat as form
from nova_dedup_migrate.pagecache import parser as listing_parser
from nova_dedup_migrate.pagecache import transport

#: Its name, in the guest /dev/virtio-ports/...
PORT = 'org.nova_dedup_migrate.page_cache.0'

_BEGIN = form.HEADER.pack(form.MAGIC, form.BEGIN, 0,
                          form.BEGIN_PAYLOAD.size, 0)
_LENGTH = len(_BEGIN) + form.BEGIN_PAYLOAD.size
_NONCE = slice(len(_BEGIN) + 8, len(_BEGIN) + 16)


class PortTransport(transport.Transport):
    """Over the port PORT of a guest.

    :param guest: hypervisor.base.Guest
    """

    name = 'port'

    def __init__(self, guest):
        self._guest = guest

    def obstacle(self):
        return {channel.MISSING: 'it has no port for that',
                channel.CLOSED: 'no lister waits at its port',
                }.get(self._guest.channel_state(PORT), '')

    def ask(self, limits, deadline):
        nonce = secrets.randbits(63) + 1
        request = limits.request(nonce, transport.left(deadline))
        try:
            connection = self._guest.open_channel(PORT)
        except hypervisor_errors.ChannelUnavailable as error:
            raise errors.NoWay(reason=str(error)) from error
        with connection:
            try:
                connection.send(request.encode(), deadline)
            except hypervisor_errors.HypervisorError as error:
                raise errors.NoAnswer(reason=str(error)) from error
            made = listing_parser.ListingParser(request.extents, nonce)
            start = _Start(nonce)
            transport.read(
                _Behind(start, made),
                lambda: connection.receive(deadline), deadline)
        return made


class _Behind:
    """Feeds a parser what comes behind the start."""

    def __init__(self, start, parser):
        self._start = start
        self._parser = parser

    @property
    def complete(self):
        return self._parser.complete

    @property
    def page_size(self):
        return self._parser.page_size

    def feed(self, data):
        data = self._start.skip(data)
        if data:
            self._parser.feed(data)


class _Start:
    """Finds where the answer begins."""

    def __init__(self, nonce):
        self._nonce = nonce.to_bytes(8, 'little')
        self._tail = b''
        self._found = False

    def skip(self, data):
        """Return what of data belongs to the answer."""
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
