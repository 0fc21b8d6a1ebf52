# SPDX-License-Identifier: Apache-2.0
"""Blocks of the running disk itself, which the source's agent reads.

They come through another network than QEMU's mirror job, or before it.
"""

from __future__ import annotations

from collections.abc import Sequence
import threading

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage.libnbd import nbd
from nova_dedup_migrate.storage.sources import base
from nova_dedup_migrate.storage.sources import remote


class GuestDiskSource(base.Source):
    """The agent's end: reads the node of the guest's disk.

    :param disk: connected, as for scan.scan
    """

    name = 'source'
    cost = base.Cost(rate=200e6, latency=0.001)

    def __init__(self, disk: nbd.NBD) -> None:
        self._disk = disk
        self._size = disk.get_size()
        self._guard = threading.Lock()

    def have(self, wanted: Sequence[blocks.Block]) -> list[bool]:
        return [block.offset + block.length <= self._size
                for block in wanted]

    def read(self, wanted: Sequence[blocks.Block]) -> list[bytes | None]:
        try:
            with self._guard:
                return [bytes(self._disk.pread(block.length, block.offset))
                        if has else None
                        for block, has in zip(wanted, self.have(wanted),
                                              strict=True)]
        except nbd.Error as error:
            raise errors.SourceFailed(name=self.name,
                                      reason=error) from error


class SourceSource(remote.RemoteSource):
    """The destination's end."""

    name = 'source'
    cost = base.Cost(rate=50e6, latency=0.005)
