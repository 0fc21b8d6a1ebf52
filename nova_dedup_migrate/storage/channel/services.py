# SPDX-License-Identifier: Apache-2.0
"""What an agent does for a host that shows a ticket."""

from __future__ import annotations

import abc
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator

from nova_dedup_migrate.storage import bitmap
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import canary as canaries
from nova_dedup_migrate.storage.channel import errors
from nova_dedup_migrate.storage.channel import frames
from nova_dedup_migrate.storage.sources import base


class Service(abc.ABC):
    """Answers the requests of one connection."""

    @abc.abstractmethod
    def answer(self, kind: int, payload: bytes) -> Iterable[bytes]:
        """Yield the payloads of the answer.

        :raises StorageError: is sent to the client
        :raises ChannelBroken: the request is malformed
        """


class BlockService(Service):
    """Returns blocks of a source.

    :param source: such as a LocalSource that has the owners of the ticket
    """

    def __init__(self, source: base.Source) -> None:
        self._source = source

    def answer(self, kind: int, payload: bytes) -> Iterator[bytes]:
        wanted = frames.unpack_blocks(payload)
        if kind == frames.HAVE:
            yield bytes(self._source.have(wanted))
        elif kind == frames.READ:
            # What is not what it should be is not sent at all.
            yield frames.pack_content([
                data if data is not None and len(data) == block.length
                and blocks.digest(data) == block.digest else None
                for block, data in zip(wanted, self._source.read(wanted),
                                       strict=True)])
        else:
            raise errors.ChannelBroken(
                reason='a request of type %d came for blocks' % kind)


class DiskService(Service):
    """A disk of a running guest: its manifest, its blocks, its result.

    :param size: bytes of the disk
    :param scan: yields the bytes of the manifest of ranges (offset,
        length), in an order of its own; see scan.scan
    :param source: reads its blocks; None: they are not sent
    :param on_proven: called when the destination is done
    :param written: returns the granules that the guest has written since
        they were read
    """

    def __init__(self, size: int,
                 scan: Callable[[list[tuple[int, int]]], Iterator[bytes]],
                 source: base.Source | None,
                 on_proven: Callable[[bitmap.Bitmap, canaries.Canary],
                                     None],
                 written: Callable[[], bitmap.Bitmap]) -> None:
        self._size = size
        self._scan = scan
        self._blocks = None if source is None else BlockService(source)
        self._on_proven = on_proven
        self._written = written

    def answer(self, kind: int, payload: bytes) -> Iterator[bytes]:
        if kind == frames.MANIFEST:
            wanted = frames.unpack_bitmap(payload)
            if wanted.size != blocks.count(self._size):
                raise errors.ChannelBroken(
                    reason='a manifest of %d blocks of %d was requested'
                    % (wanted.size, blocks.count(self._size)))
            for part in self._scan(list(wanted.extents(blocks.BLOCK,
                                                       self._size))):
                yield from _parts(part)
            yield b''
        elif kind == frames.WRITTEN:
            yield from _parts(frames.pack_bitmap(self._written()))
            yield b''
        elif kind == frames.PROVEN:
            self._on_proven(*frames.unpack_proven(payload))
            yield b''
        elif self._blocks is not None:
            yield from self._blocks.answer(kind, payload)
        else:
            raise errors.ChannelRefused(
                host='the source', reason='it does not send blocks')


def _parts(data: bytes) -> Iterator[bytes]:
    for at in range(0, len(data), frames.MAX_PART):
        yield data[at:at + frames.MAX_PART]
