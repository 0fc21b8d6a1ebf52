# SPDX-License-Identifier: Apache-2.0
"""What make bench-page-cache measures: cells, and variants of each.

A cell is a guest with a load and the rate of the link; its variants are ways
to migrate it.  Loads and rates are those of the second paper (papers.md P2).
"""

import dataclasses

from benchmarks.page_cache import rival

#: Seconds a load runs before the migration is asked for, and after the guest
#: has resumed, and of the latter those of the target.
BEFORE_S, AFTER_S, FIRST_S = 20, 60, 5
#: Times that an aged guest has used each of its files, on average.
AGED_ROUNDS = 4


@dataclasses.dataclass(frozen=True)
class Workload:
    """guest: small, the lab's guest without services, or debian.

    load: what it does meanwhile: '' nothing, read: the small guest reads its
    files at a steady rate, web, db: see guests/debian/client.py

    rounds: Debian has used each of its files so often before, see
    guests/src/age.h
    """

    name: str
    guest: str
    load: str = ''
    rounds: int = 0


@dataclasses.dataclass(frozen=True)
class Variant:
    """kind: of lab.instances.KINDS; drop: the guest drops its page cache
    right before; connections: of multifd, which is compressed; 0: without.
    """

    name: str
    kind: str
    drop: bool = False
    connections: int = 0


@dataclasses.dataclass(frozen=True)
class Cell:
    """rate: Mbit/s of the link"""

    workload: Workload
    rate: int
    variants: tuple[Variant, ...]

    @property
    def name(self) -> str:
        return f'{self.workload.name}, {self.rate} Mbit/s'


STOCK = 'stock'
TELEPORT = 'teleport'
VARIANTS = (
    Variant(STOCK, 'stock'),
    Variant(rival.NAME, 'stock', connections=rival.CONNECTIONS),
    Variant('caches dropped', 'stock', drop=True),
    Variant('tracking', 'tracking'),
    Variant(TELEPORT, 'page_cache'),
    Variant('both', 'both'),
)
#: Of a guest that cannot be asked, and of which nothing was recorded.
INDEX = Variant('content index', 'content_index')
#: Those that leave out pages.
OURS = ('tracking', TELEPORT, 'both', INDEX.name)

WEB = Workload('Debian, web server', 'debian', 'web')
DATABASE = Workload('Debian, database', 'debian', 'db')
WORKLOADS = (
    Workload('small guest, idle', 'small'),
    Workload('small guest, reads files', 'small', 'read'),
    WEB,
    DATABASE,
    Workload('Debian, idle', 'debian'),
    Workload('Debian, in use for long', 'debian', rounds=AGED_ROUNDS),
)
RATES = (100, 50)


def full() -> list[Cell]:
    return [
        Cell(workload, rate,
             VARIANTS + ((INDEX,) if workload.guest == 'debian' else ()))
        for workload in WORKLOADS
        for rate in RATES
    ]


def quick() -> list[Cell]:
    """The small guest once, stock and teleport."""
    pair = tuple(v for v in VARIANTS if v.name in (STOCK, TELEPORT))
    return [Cell(workload, 100, pair) for workload in WORKLOADS[:2]]
