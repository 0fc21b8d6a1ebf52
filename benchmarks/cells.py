# SPDX-License-Identifier: Apache-2.0
"""What make bench-shared-storage measures: cells, and variants of each.

A cell is a guest and a link; its variants are ways to migrate it.  The
grid and the applications are those of the first paper (papers.md P1).
"""

import dataclasses

from benchmarks import paper
from benchmarks.options import Options

GROUPS = ('grid', 'applications', 'baselines', 'storage', 'writers',
          'compression')


@dataclasses.dataclass(frozen=True)
class Rate:
    """Mbit/s; see Options for the fields."""

    name: str
    link: float = 0.0
    start_link: float = 0.0
    wire: float = 0.0


def _adaptive(start: int, maximum: int) -> Rate:
    return Rate(f'{start}/{maximum}', maximum, start, maximum)


#: unlimited: as fast as one machine can, without the relay, which would
#: be what limits it; 1 GbE: QEMU has no limit, the link has, which is what
#: the paper calls unlimited.
RATES = (
    Rate('unlimited'),
    Rate('1 GbE', wire=1000),
    _adaptive(200, 500),
    _adaptive(100, 500),
    _adaptive(100, 250),
    _adaptive(50, 500),
)
_RATE = {rate.name: rate for rate in RATES}
#: Faster than a thread compresses.
_10_GBE = Rate('10 GbE', wire=10000)
SHARES = (10, 35, 60, 85)

#: What stands for the paper's applications: Options; MB/s, MiB.
APPLICATIONS = {
    'RDesk I': {'workload': 'anon-writer', 'write_rate': 1, 'wss': 24},
    'RDesk II': {'workload': 'read', 'read_rate': 5},
    'Admin I': {
        'workload': 'mixed',
        'write_rate': 8,
        'read_rate': 8,
        'wss': 32,
    },
    'Admin II': {
        'workload': 'mixed',
        'write_rate': 12,
        'read_rate': 4,
        'wss': 96,
    },
    'File I/O I': {
        'workload': 'pagecache-writer',
        'write_rate': 12,
        'read_rate': 12,
    },
    'File I/O II': {'workload': 'small-files', 'write_rate': 12},
}


@dataclasses.dataclass(frozen=True)
class Variant:
    """A way to migrate.

    changes: to the cell's Options; reference: what it is compared with
    """

    name: str
    dedup: bool = False
    changes: tuple[tuple[str, object], ...] = ()
    reference: str = 'stock'


@dataclasses.dataclass(frozen=True)
class Cell:
    """row, column: where it stands in its group's table.

    steady: the guest does not write, so that the limits are exact
    """

    group: str
    row: str
    column: str
    options: Options
    variants: tuple[Variant, ...]
    steady: bool

    @property
    def name(self) -> str:
        return f'{self.group}: {self.row}, {self.column}'

    def options_of(self, variant: Variant) -> Options:
        return dataclasses.replace(self.options, **dict(variant.changes))


STOCK = Variant('stock')
DEDUP = Variant('dedup', dedup=True)
PAIR = (STOCK, DEDUP)
#: Pages that are written to again wait, compared with both without that.
DEFER = Variant('dedup, deferring', dedup=True, changes=(('defer', True),),
                reference='dedup')
#: Compressed and not, compared with each other.
COMPRESSION = (
    Variant('dedup', dedup=True, reference='dedup'),
    Variant('dedup, compressed', dedup=True, changes=(('compress', True),),
            reference='dedup'),
)


def _both(name: str, **changes: object) -> tuple[Variant, Variant]:
    """Stock with an option, and dedup with the same one."""
    what = tuple(changes.items())
    return (
        Variant(f'stock, {name}', changes=what),
        Variant(
            f'dedup, {name}',
            dedup=True,
            changes=what,
            reference=f'stock, {name}',
        ),
    )


def _options(
    memory: int, rate: Rate, duplicates: int, **more: object
) -> Options:
    return Options(
        memory=memory,
        duplicates=duplicates,
        link=rate.link,
        start_link=rate.start_link,
        wire=rate.wire,
        relay=bool(rate.link or rate.wire),
        timeout=240,
        **{'workload': 'idle', **more},
    )


def _grid(memory: int) -> list[Cell]:
    return [
        Cell(
            'grid',
            f'{share} %',
            rate.name,
            _options(memory, rate, share),
            PAIR,
            True,
        )
        for rate in RATES
        for share in SHARES
    ]


def _applications(memory: int) -> list[Cell]:
    return [
        Cell(
            'applications',
            name,
            rate,
            _options(
                memory,
                _RATE[rate],
                paper.DUPLICATES[name],
                **APPLICATIONS[name],
            ),
            PAIR,
            APPLICATIONS[name]['workload'] == 'read',
        )
        for rate in ('1 GbE', '200/500', '100/250')
        for name in APPLICATIONS
    ]


def _baselines(memory: int) -> list[Cell]:
    variants = (
        *PAIR,
        *_both('auto-converge', auto_converge=True),
        *_both('multifd + zstd', multifd=2, compression='zstd'),
        *_both('post-copy', postcopy=True),
    )
    link = Rate('200', link=200, wire=1000)
    writer = {'workload': 'pagecache-writer', 'write_rate': 20}
    return [
        Cell(
            'baselines',
            'idle, 60 %',
            link.name,
            _options(memory, link, 60),
            variants,
            True,
        ),
        Cell(
            'baselines',
            'page-cache writer, 60 %',
            link.name,
            dataclasses.replace(_options(memory, link, 60, **writer),
                                timeout=90),
            variants,
            False,
        ),
    ]


def _storage(memory: int) -> list[Cell]:
    link = Rate('200', link=200)
    return [
        Cell(
            'storage',
            f'{kind}, {share} %',
            rate.name,
            _options(memory, rate, share, storage=kind, storage_rate=10),
            PAIR,
            True,
        )
        for rate in (link, _RATE['1 GbE'], _RATE['unlimited'])
        for kind in ('slow', 'failing')
        for share in (35, 85)
    ]


def _writers(memory: int) -> list[Cell]:
    """Guests that write to the same memory again, 8 and 48 MB/s."""
    return [
        Cell(
            'writers',
            f'{kind}, {rate} MB/s',
            link,
            _options(memory, _RATE[link], 35, workload=kind,
                     write_rate=rate, wss=32),
            (*PAIR, DEFER),
            False,
        )
        for link in ('1 GbE', '100/500')
        for kind in ('anon-writer', 'pagecache-writer', 'mixed')
        for rate in (8, 48)
    ]


def _compression(memory: int) -> list[Cell]:
    return [
        Cell('compression', f'{share} %', rate.name,
             _options(memory, rate, share), COMPRESSION, True)
        for rate in (RATES[0], _10_GBE, *RATES[1:])
        for share in SHARES
    ]


def full(memory: int = 768) -> list[Cell]:
    """Everything.

    :param memory: MiB; 85 % of duplicates need 768
    """
    return [
        *_grid(memory),
        *_applications(memory),
        *_baselines(memory),
        *_storage(memory),
        *_writers(memory),
        *_compression(memory),
    ]


def quick() -> list[Cell]:
    """A cell of each kind with a small guest, in less than 5 minutes."""
    memory = 256
    adaptive = _RATE['100/500']
    return [
        Cell('grid', '10 %', '1 GbE',
             _options(memory, _RATE['1 GbE'], 10), PAIR, True),
        Cell('grid', '60 %', 'unlimited',
             _options(memory, _RATE['unlimited'], 60), PAIR, True),
        Cell('grid', '60 %', '100/500',
             _options(memory, adaptive, 60), PAIR, True),
        Cell('applications', 'File I/O I', '100/250',
             _options(memory, _RATE['100/250'], 24,
                      **APPLICATIONS['File I/O I']), PAIR, False),
        Cell('storage', 'slow, 60 %', '200',
             _options(memory, Rate('200', link=200), 60, storage='slow',
                      storage_rate=10), PAIR, True),
        Cell('writers', 'anon-writer, 48 MB/s', '1 GbE',
             _options(memory, _RATE['1 GbE'], 35, workload='anon-writer',
                      write_rate=48, wss=32), (*PAIR, DEFER), False),
        Cell('compression', '35 %', '100/500',
             _options(memory, adaptive, 35), COMPRESSION, True),
    ]
