# SPDX-License-Identifier: Apache-2.0
"""Blocks that another host's agent sends over the data channel."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import queue
import threading

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage.channel import client
from nova_dedup_migrate.storage.channel import errors as channel_errors
from nova_dedup_migrate.storage.sources import base

#: Connections at a time to one host.
CONNECTIONS = 4


class RemoteSource(base.Source):
    """Calls an agent.

    A connection that fails is closed; the next call makes another one,
    with a ticket of its own.

    :param connect: returns a new channel, or raises StorageError
    """

    def __init__(self, connect: Callable[[], client.Channel]) -> None:
        self._connect = connect
        self._idle: queue.LifoQueue[client.Channel] = (
            queue.LifoQueue())
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        self._guard = threading.Lock()
        self._open: set[client.Channel] = set()
        self._closed = False

    def have(self, wanted: Sequence[blocks.Block]) -> list[bool]:
        return self._call(lambda channel: channel.have(wanted))

    def read(self, wanted: Sequence[blocks.Block]) -> list[bytes | None]:
        return self._call(lambda channel: channel.read(wanted))

    def _call(self, function: Callable[[client.Channel], list]) -> list:
        with self._free:
            channel = self._channel()
            try:
                result = function(channel)
            except errors.StorageError as error:
                if isinstance(error, channel_errors.ChannelRefused):
                    self._idle.put(channel)
                else:
                    self._drop(channel)
                raise errors.SourceFailed(name=self.name,
                                          reason=error) from error
            self._idle.put(channel)
            return result

    def _channel(self) -> client.Channel:
        """Return a connection that no other thread uses."""
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        try:
            channel = self._connect()
        except errors.StorageError as error:
            raise errors.SourceFailed(name=self.name,
                                      reason=error) from error
        with self._guard:
            if not self._closed:
                self._open.add(channel)
                return channel
        channel.close()
        raise errors.SourceFailed(name=self.name, reason='it is closed')

    def _drop(self, channel: client.Channel) -> None:
        with self._guard:
            self._open.discard(channel)
        channel.close()

    def close(self) -> None:
        """Close the connections, which ends calls that wait."""
        with self._guard:
            self._closed = True
            channels, self._open = self._open, set()
        for channel in channels:
            channel.close()
