# SPDX-License-Identifier: Apache-2.0
"""Images of the image store as sources of blocks.

Agents have no credentials of Keystone.  Which images serve, and the token
to read them with, come with the request; the token is kept in memory while
the disk is built.
"""

from __future__ import annotations

from collections.abc import Callable
import concurrent.futures
import contextlib
import time

from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import image_store
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage.sources import base
from nova_dedup_migrate.storage.sources import image

#: Blocks of a sample that are looked for, and seconds for all of them.
TRIED = 32
PATIENCE = 4.0
#: Seconds that one of these reads may take without a byte.
_TIMEOUT = 2.0
#: What it costs until it has been measured: more than any file of this
#: host.
_COST = base.Cost(rate=30e6, latency=0.05)


class StoredImages:
    """Makes the sources.

    :param tls: how Glance is checked
    :param cached: returns the path of an image in this host's cache: such
        an image is not read from the store
    """

    def __init__(self, tls: image_store.Tls,
                 cached: Callable[[str], str | None]) -> None:
        self._tls = tls
        self._cached = cached

    def sources(self, store: image_objects.DedupImageStore | None,
                size: int, timeout: float = image_store.TIMEOUT
                ) -> dict[str, base.Source]:
        """Return image -> its source.

        Each image is a source of its own: a block that the newest has with
        other bytes may be right in an older one.

        :param size: of the disk
        :raises SourceFailed: the endpoint cannot be used
        """
        if store is None:
            return {}
        return {each.image: image.ImageSource(
            [image_store.ImageLayer(store.endpoint, each.image, each.size,
                                    store.token, self._tls, timeout)],
            size, name=image_store.NAME, cost=_COST)
            for each in store.images if not self._cached(each.image)}

    def try_(self, request: image_objects.DedupTryImagesRequest
             ) -> image_objects.DedupTryImagesReply:
        """Look for a part of a sample, by reading it.

        What is not read in time counts as not found.

        :raises ValueError: it is no sample of a disk of that size
        """
        left = tried = _part(request)
        end = time.monotonic() + PATIENCE
        having, reasons = [], []
        rate: float | None = None
        try:
            sources = self.sources(request.store, request.size, _TIMEOUT)
        except errors.SourceFailed as error:
            sources = {}
            reasons.append(str(error))
        with contextlib.ExitStack() as stack:
            for source in sources.values():
                stack.callback(source.close)
            for name, source in sources.items():
                if time.monotonic() > end:
                    reasons.append('image %s was not tried in time' % name)
                    continue
                try:
                    found = _look(source, left, end)
                    if found:
                        having.append(name)
                        rate = rate or _rate(source, found[0], request.size)
                except errors.SourceFailed as error:
                    reasons.append(str(error))
                    continue
                left = [block for block in left if block not in found]
        return image_objects.DedupTryImagesReply(
            tried=len(tried), found=len(tried) - len(left), images=having,
            rate=rate, reason='; '.join(reasons)[:objects.MAX_REASON])


def _part(request: image_objects.DedupTryImagesRequest
          ) -> list[blocks.Block]:
    """Return at most TRIED blocks of a sample, from all of the disk.

    :raises ValueError:
    """
    digests = [bytes.fromhex(text) for text in request.sample.digests]
    offsets = request.sample.offsets
    if len(digests) != len(offsets) or any(
            len(digest) != blocks.DIGEST for digest in digests) or any(
            offset % blocks.BLOCK or offset >= request.size
            for offset in offsets):
        raise ValueError('the sample is not one of a disk of %d bytes'
                         % request.size)
    step = max(1, -(-len(digests) // TRIED))
    return [blocks.Block(digest, offset, blocks.length(
        offset // blocks.BLOCK, request.size))
        for digest, offset in list(zip(digests, offsets, strict=True))[::step]]


def _look(source: base.Source, wanted: list[blocks.Block], end: float
          ) -> list[blocks.Block]:
    """Return which blocks a source has, of those that are read by end.

    :raises SourceFailed: none was read
    """
    found = []
    for block in wanted:
        if time.monotonic() > end:
            break
        data, = source.read([block])
        if data is not None and blocks.digest(data) == block.digest:
            found.append(block)
    return found


def _rate(source: base.Source, beside: blocks.Block, size: int) -> float:
    """Return bytes a second of reads as they are when a disk is filled.

    Several at a time, because Glance takes long to begin with each.

    :param beside: a block that the source has
    :raises SourceFailed:
    """
    threads = rebuild.Limits.threads
    first = beside.offset // blocks.BLOCK
    wanted = [blocks.Block(b'', number * blocks.BLOCK,
                           blocks.length(number, size))
              for number in range(first, min(
                  first + threads * base.MAX_BLOCKS, blocks.count(size)))]
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        length = sum(len(data or b'') for part in pool.map(source.read, (
            wanted[at:at + base.MAX_BLOCKS]
            for at in range(0, len(wanted), base.MAX_BLOCKS)))
            for data in part)
    return length / max(1e-6, time.monotonic() - begun)
