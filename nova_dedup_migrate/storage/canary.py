# SPDX-License-Identifier: Apache-2.0
"""Random bytes that show QEMU that a target is the one that was filled.

They are in a granule that remains dirty, so that the mirror job writes over
them.  A target without them is mirrored in full.
"""

from __future__ import annotations

import dataclasses
import secrets

from nova_dedup_migrate.storage import bitmap

LENGTH = 512


@dataclasses.dataclass(frozen=True)
class Canary:
    """LENGTH bytes of data at an offset in bytes."""

    offset: int
    data: bytes = dataclasses.field(repr=False)


def choose(proven: bitmap.Bitmap, granularity: int) -> Canary:
    """Return one in a granule that is not proven.

    :param proven: granules; one loses its bit if all have it
    """
    proven_runs = proven.runs()
    first, count = next(proven_runs, (0, 0))
    # The first granule that is not proven, or the last one there is.
    number = count if first == 0 else 0
    number = min(number, proven.size - 1)
    proven.clear(number)
    return Canary(number * granularity, secrets.token_bytes(LENGTH))
