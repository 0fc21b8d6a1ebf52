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
#: Requests that the guests get through, against those before, at least.
REQUESTS = 0.95
#: Milliseconds that a guest stands still for its disk, more than stock's.
DOWNTIME = 20.0


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


#: (name, unit, function of an Outcome) of all variants.
_FIGURES: tuple[tuple[str, str, Callable[
    [disk_moves.Outcome], float | None]], ...] = (
    ('disk bytes on the link', 'MB', lambda one: one.link / 1e6),
    ('of that, from the agent', 'MB', lambda one: one.manifest / 1e6),
    ('written since the snapshot', 'MB', lambda one: one.written / 1e6),
    ('time', 's', lambda one: one.total),
    ("guest's requests before", 'ms', _ms(0)),
    ("guest's requests meanwhile", 'ms', _ms(1)),
    ('downtime', 'ms', lambda one: one.downtime * 1000),
    ("processor of the source's QEMU", 's', lambda one: one.processor[0]),
    ("processor of the destination's QEMU", 's',
     lambda one: one.processor[1]),
    ('processor of the agents', 's', lambda one: one.processor[2]))


def add(out: results.Results, runs: Sequence[Run]) -> None:
    """Add the rows of all runs."""
    for link, guests in cells(runs):
        name = '%d Mbit/s, %s' % (link, _guests(guests))
        found = cell(runs, link, guests)
        for variant in dict.fromkeys(run.variant for run in found):
            _add(out, '%s, %s' % (name, variant), variant, found)


def cells(runs: Sequence[Run]) -> list[tuple[int, int]]:
    """Return (link, guests) of all runs."""
    return list(dict.fromkeys((run.link, run.guests) for run in runs))


def cell(runs: Sequence[Run], link: int, guests: int) -> list[Run]:
    return [run for run in runs if (run.link, run.guests) == (link, guests)]


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
    _least(out, name + ": guest's I/O of before", spread.of(
        one.requests for one in found), REQUESTS if built else None)
    share = SHARE.get(variant)
    for reference in disk_moves.BASELINES:
        if reference == variant:
            continue
        judged = built and reference == disk_moves.STOCK
        size = against(cell, variant, reference, lambda one: one.link)
        if size is None:
            # It has not been run.
            continue
        _row(out, '%s: bytes against %s' % (name, reference), size, '',
             share if judged else None)
        if judged:
            _add_time(out, name, variant, cell)
        else:
            _row(out, '%s: time against %s' % (name, reference), against(
                cell, variant, reference, lambda one: one.total), '')
    if variant == disk_moves.SELECTIVE:
        _row(out, name + ': from the backup server', spread.of(
            one.copied / 1e6 for one in found), 'MB')
    if variant != disk_moves.STOCK:
        _row(out, name + ': of the time, before the mirror', spread.of(
            one.build for one in found), 's')
    if built:
        _row(out, name + ': downtime, more than stock', against(
            cell, variant, disk_moves.STOCK,
            lambda one: one.downtime * 1000, spread.differences), 'ms',
            DOWNTIME)
        _add_built(out, name, variant, found)


def _add_time(out: results.Results, name: str, variant: str,
              cell: Sequence[Run]) -> None:
    """Add the time against stock, of rounds that the planner would build."""
    name += ': time against stock'
    taken = against([run for run in cell if run.variant != variant
                     or would_build(run.outcome)], variant,
                    disk_moves.STOCK, lambda one: one.total)
    if taken is None:
        _row(out, name + ', left to QEMU', against(
            cell, variant, disk_moves.STOCK, lambda one: one.total), '')
    else:
        # No run is to be slower, so the median is not enough.
        out.add(name, _value(taken), '', '1 or less in each run',
                taken.high <= 1)


def would_build(outcome: disk_moves.Outcome) -> bool:
    """Return whether the planner builds the disks of all guests."""
    return all(decision.build for decision in outcome.decisions)


def planned(found: Sequence[disk_moves.Outcome]) -> str:
    """Return what the planner decides, in words."""
    built = sum(map(would_build, found))
    return ('builds' if built == len(found) else 'leaves it to QEMU'
            if not built else 'builds %d of %d' % (built, len(found)))


def _add_built(out: results.Results, name: str, variant: str,
               found: Sequence[disk_moves.Outcome]) -> None:
    if variant in _SINCE:
        _row(out, name + ': bytes against written since', spread.of(
            one.link / one.written if one.written else None
            for one in found), '', SINCE)
    for source in sorted({source for one in found for source in one.sources}):
        _row(out, '%s: from %s' % (name, source), spread.of(
            one.sources.get(source, 0) / 1e6 for one in found), 'MB')
    decisions = [one for run in found for one in run.decisions]
    _row(out, name + ': time, as predicted', spread.of(
        one.seconds for one in decisions), 's')
    _row(out, name + ": stock's time, as predicted", spread.of(
        one.stock for one in decisions), 's')
    why = next((one.reason for one in decisions if one.reason), '')
    out.add(name + ': the planner', planned(found) + (
        ': ' + why if why else ''), '', 'any', True)
    reasons = '; '.join(dict.fromkeys(
        one.reason for one in found if one.reason))
    out.add(name + ': taken by the mirror', reasons or 'yes', '', 'yes',
            not reasons)


def against(cell: Sequence[Run], variant: str, reference: str,
            figure: Callable[[disk_moves.Outcome], float],
            compare: Callable[..., spread.Spread | None] = spread.ratios
            ) -> spread.Spread | None:
    """Return the quotient of each round's two runs.

    :param compare: of spread
    """
    rounds: dict[int, dict[str, float]] = {}
    for run in cell:
        rounds.setdefault(run.repeat, {})[run.variant] = figure(run.outcome)
    whole = [one for one in rounds.values()
             if variant in one and reference in one]
    return compare([one[variant] for one in whole],
                   [one[reference] for one in whole])


def _row(out: results.Results, name: str, found: spread.Spread | None,
         unit: str, limit: float | None = None) -> None:
    """Add a row whose median has a limit."""
    if found is None and limit is not None:
        # What it would be compared with is not there.
        return
    out.add(name, 'none' if found is None else _value(found), unit,
            'any' if limit is None else '%g or less' % limit,
            limit is None or found is None or found.median <= limit)


def _least(out: results.Results, name: str, found: spread.Spread | None,
           limit: float | None) -> None:
    """Add a row whose median is to be at least a limit."""
    assert found is not None
    out.add(name, _value(found), '', 'any' if limit is None
            else '%g or more' % limit, limit is None or found.median >= limit)


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
