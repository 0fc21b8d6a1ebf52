# SPDX-License-Identifier: Apache-2.0
"""A source of blocks: the contract.

Whoever fills a disk has digests, and sources that may have the bytes.

* have() looks blocks up without reading them.  It may be mistaken; True
  is a hint.
* read() returns the bytes, None for a block it does not have after all.
  Bytes that are wrong do no harm: the caller hashes what it gets.
* Both take at most MAX_BLOCKS, may block, are called from several threads,
  and raise SourceFailed if the source cannot be used.  The caller gives up
  waiting after a while and goes to another source; a source that has been
  left may still be in a call.
* close() ends calls that hang, if it can.  It may be called twice.

tests/unit/storage/sources/conformance.py has a suite that each source
passes.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
import dataclasses

from nova_dedup_migrate.storage import blocks

#: Blocks in one call: 2 MiB.
MAX_BLOCKS = 64


@dataclasses.dataclass(frozen=True)
class Cost:
    """What a call is expected to take, until it has been measured.

    :ivar rate: bytes a second
    :ivar latency: seconds for the first byte
    """

    rate: float
    latency: float


class Source(abc.ABC):
    """:ivar name: as reports have it, such as 'local'"""

    name: str
    cost: Cost

    @abc.abstractmethod
    def have(self, wanted: Sequence[blocks.Block]) -> list[bool]:
        """Return for each block whether read() would return it.

        :raises SourceFailed:
        """

    @abc.abstractmethod
    def read(self, wanted: Sequence[blocks.Block]) -> list[bytes | None]:
        """Return the bytes of each block, or None.

        :raises SourceFailed:
        """

    def close(self) -> None:  # noqa: B027 most have nothing to close
        """Free what the source holds."""
