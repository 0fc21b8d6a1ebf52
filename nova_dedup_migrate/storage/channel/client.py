# SPDX-License-Identifier: Apache-2.0
"""The calling end of the data channel; frames.py has the protocol."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import contextlib
import dataclasses
import socket
import ssl
import threading

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import canary as canaries
from nova_dedup_migrate.storage import errors as storage_errors
from nova_dedup_migrate.storage.channel import errors
from nova_dedup_migrate.storage.channel import frames
from nova_dedup_migrate.storage.channel import tls

#: Seconds to connect, and to wait for a part of an answer.
CONNECT = 10.0
ANSWER = 120.0


@dataclasses.dataclass(frozen=True)
class Offer:
    """Where an agent is, and a ticket of it.

    :ivar host: its name, which its certificate has
    """

    host: str
    address: str
    port: int
    ticket: bytes = dataclasses.field(repr=False)


class Channel:
    """A connection; requests of several threads come one after the other.

    :param offer: is used up
    :param certificates: of this host
    :raises ChannelError: it cannot be made
    """

    def __init__(self, offer: Offer, certificates: tls.Certificates
                 ) -> None:
        self.host = offer.host
        self._guard = threading.Lock()
        self._streaming = False
        context = certificates.context(server=False)
        with contextlib.ExitStack() as stack:
            try:
                plain = stack.enter_context(socket.create_connection(
                    (offer.address, offer.port), CONNECT))
                # Likewise the end of a request.
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._socket = stack.enter_context(context.wrap_socket(
                    plain, server_hostname=offer.host))
                self._socket.sendall(frames.MAGIC + offer.ticket)
                self._answer()
                self._socket.settimeout(ANSWER)
            except (OSError, ssl.SSLError) as error:
                raise errors.ChannelBroken(
                    reason='host %s, %s port %d: %s' % (
                        offer.host, offer.address, offer.port, error)
                ) from error
            self._stack = stack.pop_all()

    def have(self, wanted: Sequence[blocks.Block]) -> list[bool]:
        answer = self._request(frames.HAVE, frames.pack_blocks(wanted))
        if len(answer) != len(wanted):
            raise errors.ChannelBroken(
                reason='%d answers came for %d blocks'
                % (len(answer), len(wanted)))
        return [bool(byte) for byte in answer]

    def read(self, wanted: Sequence[blocks.Block]) -> list[bytes | None]:
        return frames.unpack_content(
            self._request(frames.READ, frames.pack_blocks(wanted)),
            len(wanted))

    def manifest(self, wanted: bitmap.Bitmap) -> Callable[[int], bytes]:
        """Request the manifest of blocks; return a function that reads it.

        It has to be read to its end before another request is made.  The
        function raises DiskUnreadable if the source cannot read on.
        """
        self._send(frames.MANIFEST, frames.pack_bitmap(wanted))
        left = bytearray()
        self._streaming = True

        def read(length: int) -> bytes:
            while len(left) < length and self._streaming:
                left.extend(self._part())
            data = bytes(left[:length])
            del left[:length]
            return data

        return read

    def _part(self) -> bytes:
        """Return the next part of a manifest, empty if it has ended."""
        try:
            part = self._answer()
        except errors.ChannelError as error:
            self._streaming = False
            if isinstance(error, errors.ChannelRefused):
                # What came before holds.
                raise storage_errors.DiskUnreadable(reason=error) from error
            raise
        self._streaming = bool(part)
        return part

    def written(self, granules: int) -> bitmap.Bitmap:
        """Return what the guest has written since it was read last.

        :param granules: bits that it must have
        """
        with self._guard:
            self._send(frames.WRITTEN, b'')
            data = bytearray()
            while part := self._answer():
                data += part
                if len(data) > frames.bitmap_bytes(granules):
                    raise errors.ChannelBroken(
                        reason='a bitmap of %d bits has more than that'
                        % granules)
        found = frames.unpack_bitmap(bytes(data))
        if found.size != granules:
            raise errors.ChannelBroken(
                reason='a bitmap of %d bits came instead of %d'
                % (found.size, granules))
        return found

    def proven(self, proven: bitmap.Bitmap, canary: canaries.Canary) -> None:
        """Send what is proven."""
        self._request(frames.PROVEN, frames.pack_proven(proven, canary))

    def _request(self, kind: int, payload: bytes) -> bytes:
        with self._guard:
            self._send(kind, payload)
            return self._answer()

    def _send(self, kind: int, payload: bytes) -> None:
        if self._streaming and self._part():
            raise errors.ChannelBroken(
                reason='a manifest was not read to its end')
        try:
            self._socket.sendall(frames.frame(kind, payload))
        except OSError as error:
            raise errors.ChannelBroken(reason=error) from error

    def _answer(self) -> bytes:
        kind, payload = frames.read(
            lambda length: tls.receive(self._socket, length),
            (frames.OK, frames.FAILED))
        if kind == frames.FAILED:
            reason = payload.decode(errors='replace')
            raise errors.ChannelRefused(
                host=self.host,
                reason=''.join(char if char.isprintable() else '?'
                               for char in reason))
        return payload

    def end(self) -> None:
        """End requests that wait; may be called by any thread."""
        with contextlib.suppress(OSError):
            # That of ssl would have what is left read without TLS.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection."""
        self.end()
        self._stack.close()
