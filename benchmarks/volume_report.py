# SPDX-License-Identifier: Apache-2.0
"""What moves of volumes came to, against a copy of all blocks."""

from __future__ import annotations

from collections.abc import Sequence
import dataclasses

from benchmarks import spread
from testkit import results
from testkit import table

_MIB = 1 << 20
#: Volumes at once -> how many times faster than a copy of all.
_TIME = {1: 4.0, 2: 6.0}
#: Of bytes read from the source's storage, against a copy of all.
_READ = 0.10
#: I/O during a move against that before.
_GUEST, _NEIGHBOUR = 0.95, 0.98
_FULL, _OURS = 'full', 'ours'


@dataclasses.dataclass(frozen=True)
class Moved:
    """What one move of all of its volumes came to; bytes and seconds.

    :ivar seconds: until the last mirror was ready to be switched to
    :ivar filling: until the last target was filled, 0 in a copy of all
    :ivar read: from the source's storage by what moves volumes
    :ivar guests: requests a second of the guests whose volumes move,
        against those before; the mean
    :ivar filled: the same until the target was filled, the mean; None in a
        copy of all
    :ivar busy: share of the time of all processors that was used until the
        last target was filled, None likewise
    :ivar neighbour: the same of the neighbour
    :ivar processor: of the backup daemon
    :ivar store: that the daemon read
    :ivar fetched: that came from the daemon
    :ivar before: read from the volumes before, for their fingerprints
    """

    seconds: float
    filling: float
    read: int
    guests: float
    filled: float | None
    busy: float | None
    neighbour: float
    processor: float
    store: int
    fetched: int
    before: int


@dataclasses.dataclass(frozen=True)
class Run:
    """One move.

    :ivar link: Mbit/s
    :ivar count: volumes at once
    """

    link: int
    count: int
    way: str
    repeat: int
    moved: Moved


#: (name, unit, function of a Moved) of what is reported of each way.
_FIGURES = (
    ('time', 's', lambda moved: moved.seconds),
    ('of that, filling', 's', lambda moved: moved.filling),
    ('read from storage', 'MiB', lambda moved: moved.read / _MIB),
    ("guest's I/O of before", '', lambda moved: moved.guests),
    ("guest's I/O while it is filled", '', lambda moved: moved.filled),
    ('processors busy while it is filled', '', lambda moved: moved.busy),
    ("neighbour's I/O of before", '', lambda moved: moved.neighbour),
    ('processor of the daemon', 's', lambda moved: moved.processor),
    ('daemon read from the store', 'MiB', lambda moved: moved.store / _MIB),
    ('fetched', 'MiB', lambda moved: moved.fetched / _MIB),
    ('read for fingerprints before', 'MiB',
     lambda moved: moved.before / _MIB),
)


def add(out: results.Results, runs: Sequence[Run]) -> None:
    """Add the rows of all moves; each link and count has all three ways."""
    slowest = []
    for link, count in _cells(runs):
        name = '%d Mbit/s, %s' % (link, _volumes(count))
        ways = {way: _of(runs, link, count, way) for way in _ways(runs)}
        for way, moved in ways.items():
            for label, unit, figure in _FIGURES:
                found = spread.of(map(figure, moved))
                out.add('%s, %s: %s' % (name, way, label), _value(found),
                        unit, '-', True)
        _judge(out, name, count, ways[_FULL], ways[_OURS])
        slowest += [full.seconds / ours.seconds for full, ours in zip(
            ways[_FULL], ways[_OURS], strict=True)]
    out.add('slowest of ours: faster than full', min(slowest), 'times',
            '1 or more', min(slowest) >= 1)
    out.add('copies compared', sum(run.count for run in runs), 'equal',
            'all equal', True)


def _judge(out: results.Results, name: str, count: int,
           full: Sequence[Moved],
           ours: Sequence[Moved]) -> None:
    """Add what has a target."""
    for label, unit, found, target, more in (
            ('faster than full', 'times', spread.ratios(
                [moved.seconds for moved in full],
                [moved.seconds for moved in ours]), _TIME.get(count), True),
            ('read against full', '', spread.ratios(
                [moved.read for moved in ours],
                [moved.read for moved in full]), _READ, False),
            ("guest's I/O of before", '', spread.of(
                moved.guests for moved in ours), _GUEST, True),
            ("neighbour's I/O of before", '', spread.of(
                moved.neighbour for moved in ours), _NEIGHBOUR, True)):
        if found is None or target is None:
            continue
        ok = found.median >= target if more else found.median <= target
        out.add('%s: %s' % (name, label), _value(found), unit,
                '%g or %s' % (target, 'more' if more else 'less'), ok)
    for label, figure in (("guest's", lambda moved: moved.guests),
                          ("neighbour's", lambda moved: moved.neighbour)):
        found = spread.ratios([figure(moved) for moved in ours],
                              [figure(moved) for moved in full])
        out.add('%s: %s I/O against full' % (name, label), _value(found),
                'times', '-', True)


def _value(found: spread.Spread | None) -> float | str:
    """Return a number, or text if it has a spread."""
    if found is None:
        return '-'
    return found.median if found.n == 1 else found.show()


def show(runs: Sequence[Run]) -> str:
    """Return a table of all ways, medians."""
    rows = []
    for link, count in _cells(runs):
        for way in _ways(runs):
            moved = _of(runs, link, count, way)
            rows.append((link, count, way, *(
                found.show() if (found := spread.of(map(figure, moved)))
                else '-' for _, _, figure in _FIGURES)))
    return table.text(('Mbit/s', 'VMs', 'way', *(
        '%s %s' % (label, unit) if unit else label
        for label, unit, _ in _FIGURES)), rows)


def line(run: Run) -> str:
    """Return one move, for the terminal."""
    return '%d Mbit/s, %s, %s: %s' % (
        run.link, _volumes(run.count), run.way, ', '.join(
            '%s %.4g %s' % (label, value, unit)
            for label, unit, figure in _FIGURES
            if (value := figure(run.moved)) is not None))


def _volumes(count: int) -> str:
    return {1: 'one VM', 2: 'two VMs'}.get(count, '%d VMs' % count)


def _cells(runs: Sequence[Run]) -> list[tuple[int, int]]:
    return list(dict.fromkeys((run.link, run.count) for run in runs))


def _ways(runs: Sequence[Run]) -> list[str]:
    return list(dict.fromkeys(run.way for run in runs))


def _of(runs: Sequence[Run], link: int, count: int, way: str
        ) -> list[Moved]:
    return [run.moved for run in runs
            if (run.link, run.count, run.way) == (link, count, way)]
