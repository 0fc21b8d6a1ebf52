# SPDX-License-Identifier: Apache-2.0
"""What moves of disks came to, against those of the same round."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses

from benchmarks import disk_moves
from benchmarks import spread
from testkit import results

#: Share of stock's bytes on the link that is to be left.  Of 'base' what the
#: guest has rewritten, an eighth of its files, has to be sent.
SHARE = {'base': 0.25, 'snapshot': 0.05, 'neighbour': 0.05, 'kept': 0.05,
         'prepared': 0.05}
#: Bytes on the link against those that the guest has written since the copy.
SINCE = 1.1
_SINCE = ('kept', 'prepared')


@dataclasses.dataclass(frozen=True)
class Run:
    """One move of one or more disks.

    :ivar link: Mbit/s
    :ivar guests: at once
    """

    link: int
    guests: int
    variant: str
    repeat: int
    outcome: disk_moves.Outcome


def order(variants: Sequence[str], repeat: int) -> tuple[str, ...]:
    """Return the variants in the order of a round: to and fro in turn.

    What gets slowly faster or slower helps each as often.
    """
    return tuple(reversed(variants) if repeat % 2 else variants)


def _ms(which: int) -> Callable[[disk_moves.Outcome], float | None]:
    def figure(outcome: disk_moves.Outcome) -> float | None:
        seconds = outcome.latency[which]
        return None if seconds is None else seconds * 1000

    return figure


def _slower(outcome: disk_moves.Outcome) -> float | None:
    before, meanwhile = outcome.latency
    return meanwhile / before if before and meanwhile else None


#: (name, unit, function of an Outcome) of all variants.
_FIGURES: tuple[tuple[str, str, Callable[
    [disk_moves.Outcome], float | None]], ...] = (
    ('disk bytes on the link', 'MB', lambda one: one.link / 1e6),
    ('of that, from the agent', 'MB', lambda one: one.manifest / 1e6),
    ('written since the snapshot', 'MB', lambda one: one.written / 1e6),
    ('time', 's', lambda one: one.total),
    ("guest's requests before", 'ms', _ms(0)),
    ("guest's requests meanwhile", 'ms', _ms(1)),
    ("guest's requests against before", 'times', _slower))


def add(out: results.Results, runs: Sequence[Run]) -> None:
    """Add the rows of all runs."""
    for link, guests in dict.fromkeys(
            (run.link, run.guests) for run in runs):
        cell = [run for run in runs
                if (run.link, run.guests) == (link, guests)]
        for variant in dict.fromkeys(run.variant for run in cell):
            name = '%d Mbit/s, %s, %s' % (link, _guests(guests), variant)
            _add(out, name, variant, cell)


def _guests(count: int) -> str:
    return 'one guest' if count == 1 else '%d guests' % count


def _add(out: results.Results, name: str, variant: str,
         cell: Sequence[Run]) -> None:
    found = [run.outcome for run in cell if run.variant == variant]
    equal = sum(one.identical for one in found)
    out.add(name + ': runs whose disks are equal', equal, '', str(len(found)),
            equal == len(found))
    for label, unit, figure in _FIGURES:
        _row(out, '%s: %s' % (name, label), spread.of(map(figure, found)),
             unit)
    built = variant in disk_moves.BUILT
    share = SHARE.get(variant)
    for reference in disk_moves.BASELINES:
        if reference == variant:
            continue
        judged = built and reference == disk_moves.STOCK
        size = _against(cell, variant, reference, lambda one: one.link)
        time = _against(cell, variant, reference, lambda one: one.total)
        _row(out, '%s: bytes against %s' % (name, reference), size, '',
             share if judged else None)
        # No run is to be slower, so the median is not enough.
        if time is not None:
            out.add('%s: time against %s' % (name, reference), _value(time),
                    '', '1 or less in each run' if judged else 'any',
                    not judged or time.high <= 1)
    if variant == disk_moves.SELECTIVE:
        _row(out, name + ': from the backup server', spread.of(
            one.copied / 1e6 for one in found), 'MB')
    if variant != disk_moves.STOCK:
        _row(out, name + ': of the time, before the mirror', spread.of(
            one.build for one in found), 's')
    if built:
        _add_built(out, name, variant, found)


def _add_built(out: results.Results, name: str, variant: str,
               found: Sequence[disk_moves.Outcome]) -> None:
    if variant in _SINCE:
        _row(out, name + ': bytes against written since', spread.of(
            one.link / one.written if one.written else None
            for one in found), '', SINCE)
    for source in sorted({source for one in found for source in one.sources}):
        _row(out, '%s: from %s' % (name, source), spread.of(
            one.sources.get(source, 0) / 1e6 for one in found), 'MB')
    reasons = '; '.join(dict.fromkeys(
        one.reason for one in found if one.reason))
    out.add(name + ': taken by the mirror', reasons or 'yes', '', 'yes',
            not reasons)


def _against(cell: Sequence[Run], variant: str, reference: str,
             figure: Callable[[disk_moves.Outcome], float]
             ) -> spread.Spread | None:
    """Return the quotient of each round's two runs."""
    rounds: dict[int, dict[str, float]] = {}
    for run in cell:
        rounds.setdefault(run.repeat, {})[run.variant] = figure(run.outcome)
    whole = [one for one in rounds.values()
             if variant in one and reference in one]
    return spread.ratios([one[variant] for one in whole],
                         [one[reference] for one in whole])


def _row(out: results.Results, name: str, found: spread.Spread | None,
         unit: str, limit: float | None = None) -> None:
    """Add a row whose median has a limit."""
    if found is None and limit is not None:
        # What it would be compared with has not been run.
        return
    out.add(name, 'none' if found is None else _value(found), unit,
            'any' if limit is None else '%g or less' % limit,
            limit is None or found is None or found.median <= limit)


def _value(found: spread.Spread) -> float | str:
    """Return a number, or text if it has a spread."""
    return found.median if found.n == 1 else found.show(3)


def line(run: Run) -> str:
    """Return one run, for the terminal."""
    one = run.outcome
    return '%d Mbit/s, %s, %s: %.1f s, %.1f MB on the link, %s' % (
        run.link, _guests(run.guests), run.variant, one.total,
        one.link / 1e6, 'all bytes equal' if one.identical
        else 'DISKS DIFFER')
