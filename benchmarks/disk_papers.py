# SPDX-License-Identifier: Apache-2.0
"""Published figures of the third and the fourth paper, about disks.

They are of other machines, disks and links.  What compares best: the third
paper's destination has base image and snapshots from a backup server, and its
time is that of FullMig against its own; the fourth one's has systems that are
similar, and is compared with a copy of the whole disk.
"""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    """What a paper has for a cell.

    :ivar link: Mbit/s, None: not that of one of our cells
    :ivar guests: that move at once
    :ivar fewer_bytes: share that is saved against a full copy
    :ivar less_time: the same of time
    :ivar faster: times, than FullMig
    """

    name: str
    link: int | None
    guests: int
    fewer_bytes: float | None = None
    less_time: float | None = None
    faster: float | None = None


ROWS = (
    Row('paper 3: 663 s to 351 s', None, 1, faster=1.89),
    Row('paper 3: 2028 s to 694 s', None, 2, faster=2.92),
    Row('paper 4: system of 32 GB', 100, 1, 0.66, 0.59),
    Row('paper 4: system of 300 GB', 100, 1, 0.86, 0.82),
    Row('paper 4: over a WAN', 50, 1, less_time=0.69),
)


def rows(link: int, guests: int) -> list[Row]:
    """Return what is beside a cell."""
    return [row for row in ROWS if row.guests == guests
            and row.link in (None, link)]
