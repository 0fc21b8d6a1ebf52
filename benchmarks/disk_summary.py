# SPDX-License-Identifier: Apache-2.0
"""One table of disks that moved, with the papers' figures in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks import disk_moves
from benchmarks import disk_papers
from benchmarks import disk_report
from benchmarks import rst
from benchmarks import spread
from testkit import results
from testkit import table

NAME = 'disks'
_MISSING = '-'
HEAD = ('Mbit/s', 'guests', 'variant', 'MB on link', 'less than stock',
        'time, s', 'less than stock', 'times full-mig', "guest's I/O",
        'downtime, ms', 'processor, s', 'planner')


def rows(runs: Sequence[disk_report.Run]) -> list[tuple[str, ...]]:
    """Return the rows, cell by cell, the papers' below each cell's."""
    found = []
    for link, guests in disk_report.cells(runs):
        cell = disk_report.cell(runs, link, guests)
        for variant in dict.fromkeys(run.variant for run in cell):
            found.append((str(link), str(guests), variant,
                          *_figures(cell, variant)))
        for paper in disk_papers.rows(link, guests):
            found.append((
                str(link), str(guests), paper.name, _MISSING,
                _percent(paper.fewer_bytes), _MISSING,
                _percent(paper.less_time), _MISSING if paper.faster is None
                else '%.2f' % paper.faster, *(_MISSING,) * 4))
    return found


def _figures(cell: Sequence[disk_report.Run], variant: str
             ) -> tuple[str, ...]:
    of = [run.outcome for run in cell if run.variant == variant]

    def median(values, form: str) -> str:
        known = spread.of(values)
        return _MISSING if known is None else form % known.median

    def saved(figure) -> str:
        ratio = disk_report.against(cell, variant, disk_moves.STOCK, figure)
        return _percent(None if ratio is None or variant == disk_moves.STOCK
                        else 1 - ratio.median)

    faster = disk_report.against(cell, disk_moves.FULL, variant,
                                 lambda one: one.total)
    return (
        median((one.link / 1e6 for one in of), '%.1f'),
        saved(lambda one: one.link),
        median((one.total for one in of), '%.1f'),
        saved(lambda one: one.total),
        _MISSING if faster is None else '%.2f' % faster.median,
        median((one.requests for one in of), '%.2f'),
        median((one.downtime * 1000 for one in of), '%.0f'),
        median((sum(one.processor) for one in of), '%.1f'),
        disk_report.planned(of) if variant in disk_moves.BUILT
        else _MISSING)


def _percent(share: float | None) -> str:
    return _MISSING if share is None else '%.0f %%' % (100 * share)


def text(runs: Sequence[disk_report.Run]) -> str:
    """For the terminal."""
    return table.text(HEAD, rows(runs))


def publish(runs: Sequence[disk_report.Run], command: str,
            found: results.Results, directory: Path) -> None:
    """Write disks.inc, for a document in the directory above, and the rows."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / (NAME + '.inc')).write_text(
        'Made with::\n\n   %s\n\n%s\n' % (
            command, rst.simple(list(HEAD), list(map(list, rows(runs))))))
    found.write(directory / (NAME + '.json'))
