# SPDX-License-Identifier: Apache-2.0
"""Errors of the data channel."""

from nova_dedup_migrate.storage import errors


class ChannelError(errors.StorageError):
    """Base of these."""

    template = 'the data channel failed: {reason}'


class ChannelBroken(ChannelError):
    """The connection is gone, or the peer does not keep to the protocol."""

    template = 'the data channel is broken: {reason}'


class ChannelRefused(ChannelError):
    """The peer refuses a request, for a reason of its own."""

    template = 'the agent of {host} refuses the request: {reason}'


class TicketRefused(ChannelError):
    """A ticket is not known, used, too old or of another host."""

    template = 'the ticket of {host} is refused: {reason}'


class NoCertificates(ChannelError):
    """The host has no certificates that can be used."""

    template = ('the data channel is off: {reason}. Check [dedup_migrate] '
                'channel_ca_file, channel_cert_file and channel_key_file')
