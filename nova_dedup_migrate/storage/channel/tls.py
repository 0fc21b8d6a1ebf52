# SPDX-License-Identifier: Apache-2.0
"""TLS of the data channel: both ends authenticate.

A host's certificate has the name under which Nova knows the host as a DNS
name, and may be used by servers and clients.
"""

from __future__ import annotations

import dataclasses
import socket
import ssl
from typing import Any

from nova_dedup_migrate.storage.channel import errors


@dataclasses.dataclass(frozen=True)
class Certificates:
    """PEM files: of the authority, of this host, and its key."""

    authority: str
    certificate: str
    key: str

    def context(self, server: bool) -> ssl.SSLContext:
        """Return the settings of one end.

        :raises NoCertificates:
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server
                                 else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_REQUIRED
        if server:
            # A session that is resumed would skip nothing we need, and
            # none is long enough to gain from it.
            context.num_tickets = 0
        try:
            context.load_verify_locations(self.authority)
            context.load_cert_chain(self.certificate, self.key)
        except (OSError, ssl.SSLError) as error:
            raise errors.NoCertificates(
                reason='%s, %s or %s cannot be loaded: %s' % (
                    self.authority, self.certificate, self.key, error)
            ) from error
        return context


def names(connection: ssl.SSLSocket) -> set[str]:
    """Return the DNS names in the peer's certificate, in lower case."""
    found: Any = connection.getpeercert() or {}
    return {value.lower() for kind, value in found.get('subjectAltName', ())
            if kind == 'DNS'}


def receive(connection: socket.socket, length: int) -> bytes:
    """Return exactly length bytes.

    :raises ChannelBroken:
    """
    buffer = bytearray(length)
    view = memoryview(buffer)
    while view:
        try:
            count = connection.recv_into(view)
        except OSError as error:
            raise errors.ChannelBroken(reason=error) from error
        if not count:
            raise errors.ChannelBroken(reason='the peer has closed it')
        view = view[count:]
    return bytes(buffer)
