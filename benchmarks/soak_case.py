# SPDX-License-Identifier: Apache-2.0
"""What a run of the soak consists of, from its seed."""

import dataclasses
import random

from guests.synthetic import disk
from guests.synthetic import workload

SERIES = ('10.0', '10.2')
#: A type of machine that all of these know.
MACHINE = 'pc-i440fx-10.0'


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One migration, or the attempt at one.

    :ivar link: MB/s, 0: no limit
    :ivar cancel_after: seconds until it is given up, None: not at all
    :ivar postcopy_after: seconds until post-copy, None: not at all
    :ivar disarm_after: seconds until it is disarmed, None: not at all
    :ivar hold: seconds to be held before the switch-over
    :ivar kill: the destination is killed, rather than cancelled
    :ivar threads: of our compression, 0: as many as QEMU chooses, None: it
        is off
    :ivar lazy: storage is read in post-copy, too
    :ivar defer: pages written to again are left to the next round
    :ivar inject: faults of the destination, see inject.c; those of a source
        take effect in the migration after
    """

    link: int = 25
    resend: bool = True
    armed: bool = True
    multifd: int = 0
    compression: str = 'none'
    xbzrle: bool = False
    auto_converge: bool = False
    legacy_zero: bool = False
    cancel_after: float | None = None
    kill: bool = False
    postcopy_after: float | None = None
    preempt: bool = False
    disarm_after: float | None = None
    hold: float = 0.0
    downtime_ms: int = 300
    tls: bool = False
    threads: int | None = None
    lazy: bool = False
    defer: bool = False
    inject: str = ''


@dataclasses.dataclass(frozen=True)
class Case:
    """A guest, its disks and its attempts, in order.

    Sizes are MiB, rates KB/s as in workload.Workload.

    :ivar series: of the QEMU on either side
    """

    seed: int
    memory: int
    cache: int
    anon: int
    mode: str
    rate: int
    format: str
    layout: str
    device: str
    iothread: bool
    disks: int
    storage: str
    storage_rate: int
    stock: str
    series: tuple[str, str]
    stale_disk: bool
    attempts: tuple[Attempt, ...]


def _faults(chance: random.Random) -> str:
    if chance.random() < 0.45:
        return ''
    possible = {
        'fetch-delay-us': (1000, 20000, 300000, 3000000),
        'pending-delay-us': (100, 1000, 20000),
        'copy-delay-us': (50, 500, 20000),
        'answer-delay-us': (1000, 50000, 400000),
        'no-answers': (1,),
        'no-hello': (1,),
        'window': (64, 2000),
    }
    weights = (5, 4, 4, 4, 1, 1, 2)
    number = chance.choice((1, 1, 2))
    names = set(chance.choices(list(possible), weights, k=number))
    return ','.join(
        f'{name}={chance.choice(possible[name])}' for name in sorted(names)
    )


def _attempt(chance: random.Random, storage: str) -> Attempt:
    multifd = chance.choice((0, 0, 0, 2, 4))
    postcopy = (
        round(chance.uniform(0, 3), 2)
        if not multifd and storage != 'own' and chance.random() < 0.25
        else None
    )
    return Attempt(
        link=chance.choice((0, 6, 12, 25, 25, 60)),
        resend=chance.random() < 0.75,
        armed=chance.random() < 0.95,
        multifd=multifd,
        compression=chance.choice(('none', 'none', 'zlib', 'zstd'))
        if multifd
        else 'none',
        xbzrle=not multifd and chance.random() < 0.3,
        auto_converge=chance.random() < 0.2,
        legacy_zero=chance.random() < 0.2,
        postcopy_after=postcopy,
        preempt=postcopy is not None and chance.random() < 0.4,
        disarm_after=round(chance.uniform(0, 3), 2)
        if chance.random() < 0.1
        else None,
        hold=round(chance.uniform(0.1, 2), 2)
        if postcopy is None and chance.random() < 0.15
        else 0.0,
        downtime_ms=chance.choice((1, 20, 300, 300, 1000)),
        tls=chance.random() < 0.25,
        threads=_threads(chance),
        lazy=postcopy is not None and chance.random() < 0.6,
        defer=chance.random() < 0.3,
        inject=_faults(chance),
    )


def _threads(chance: random.Random) -> int | None:
    return chance.choice((None, None, 0, 1, 2))


def _late(chance: random.Random) -> Attempt:
    """Fetches come late, and nothing makes them superfluous: pages have
    become something else, zeros perhaps, before and after."""
    delay = chance.choice(
        (
            'fetch-delay-us=300000',
            'fetch-delay-us=1000000',
            'fetch-delay-us=3000000',
            'pending-delay-us=400',
            'copy-delay-us=400',
        )
    )
    multifd = chance.choice((0, 2, 4))
    return Attempt(
        link=chance.choice((6, 12)),
        resend=False,
        multifd=multifd,
        xbzrle=not multifd and chance.random() < 0.3,
        downtime_ms=chance.choice((20, 100)),
        tls=chance.random() < 0.25,
        threads=_threads(chance),
        defer=chance.random() < 0.3,
        inject=delay,
    )


def choose(seed: int) -> Case:
    """The case that belongs to a seed."""
    chance = random.Random(seed)
    memory = chance.choice((192, 192, 256))
    storage = chance.choices(
        ('shared', 'own', 'slow', 'failing'), (7, 2, 1.5, 1)
    )[0]
    attempts = []
    lost = chance.choice((0, 0, 0, 1, 2)) if storage == 'shared' else 0
    for _ in range(lost):
        attempt = _attempt(chance, storage)
        attempts.append(
            dataclasses.replace(
                attempt,
                postcopy_after=None,
                preempt=False,
                lazy=False,
                cancel_after=round(
                    chance.choice((0, 0.05, 0.3, 1, 3)) * chance.random(), 3
                ),
                kill=chance.random() < 0.25,
                # Stock QEMU 10.0 hangs or crashes when multifd with TLS is
                # given up while it connects.
                tls=attempt.tls and not attempt.multifd,
            )
        )
    for _ in range(chance.choice((1, 1, 2, 3)) if storage == 'shared' else 1):
        attempts.append(_attempt(chance, storage))
    mode = chance.choice(workload.MODES)
    rate = chance.choice((500, 3000, 8000))
    late = storage == 'shared' and chance.random() < 0.4
    if late:
        mode, rate = 'recycle', chance.choice((1000, 3000))
        attempts[-1] = _late(chance)
    device = chance.choice(('virtio-blk', 'virtio-blk', 'virtio-scsi', 'ide'))
    return Case(
        seed=seed,
        memory=memory,
        cache=chance.choice((24, 48, 64)),
        anon=chance.choice((0, 0, 12)),
        mode=mode,
        rate=rate,
        format=chance.choice(disk.FORMATS),
        layout=chance.choice(disk.LAYOUTS),
        device=device,
        iothread=device != 'ide' and chance.random() < 0.3,
        disks=chance.choice((1, 1, 2)) if storage == 'shared' else 1,
        storage=storage,
        storage_rate=chance.choice((1, 5, 20)) * 1_000_000,
        stock='none'
        if late
        else chance.choices(('none', 'source', 'destination'), (12, 1, 1))[0],
        series=(chance.choice(SERIES), chance.choice(SERIES)),
        stale_disk=storage == 'shared'
        and not late
        and chance.random() < 0.12,
        attempts=tuple(attempts),
    )


def words(case: dict) -> str:
    """A case in short."""
    plain = Case(**case)
    first = [
        plain.mode,
        plain.device + ('+iothread' if plain.iothread else ''),
        plain.format,
        plain.layout,
        plain.storage,
        '-'.join(plain.series),
    ]
    if plain.disks > 1:
        first.append(f'{plain.disks} disks')
    if plain.stock != 'none':
        first.append('stock ' + plain.stock)
    if plain.stale_disk:
        first.append('stale disk')
    return ' '.join(first)
