# SPDX-License-Identifier: Apache-2.0
"""Blocks of zeros, in case a manifest has their digest."""

from __future__ import annotations

from collections.abc import Sequence

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.sources import base


class ZeroSource(base.Source):
    """Has every block of zeros, whatever its length."""

    name = 'zero'
    cost = base.Cost(rate=10e9, latency=0.0)

    def have(self, wanted: Sequence[blocks.Block]) -> list[bool]:
        return [block.digest == _digest(block.length) for block in wanted]

    def read(self, wanted: Sequence[blocks.Block]) -> list[bytes | None]:
        return [bytes(block.length)
                if block.digest == _digest(block.length) else None
                for block in wanted]


def _digest(length: int) -> bytes:
    return (blocks.ZERO_DIGEST if length == blocks.BLOCK
            else blocks.digest(bytes(length)))
