# SPDX-License-Identifier: Apache-2.0
"""Plots of a shared-storage summary, in the manner of the paper's figures."""

from pathlib import Path

from benchmarks import paper
from benchmarks import rst

_STOCK = '#9aa5b1'
_DEDUP = '#54a24b'
_PAPER = '#e0a458'
_WIDTH = 0.38


def _value(cell: dict, variant: str, figure: str) -> dict:
    """A spread; zeros if it is not known, so that a bar is missing."""
    entry = cell['variants'].get(variant) or {}
    return entry.get(figure) or {'median': 0, 'low': 0, 'high': 0}


def _bars(panel, cells, variant, figure, shift, color, label) -> None:
    values = [_value(cell, variant, figure) for cell in cells]
    medians = [value['median'] for value in values]
    below = [value['median'] - value['low'] for value in values]
    above = [value['high'] - value['median'] for value in values]
    panel.bar(
        [at + shift for at in range(len(cells))],
        medians,
        _WIDTH,
        yerr=[below, above],
        error_kw={'linewidth': 0.8},
        color=color,
        label=label,
    )


def _grid(report_cells, figure, title, unit, path, pyplot, log=False) -> None:
    """A panel for each rate, a pair of bars for each share."""
    columns: dict[str, list[dict]] = {}
    for cell in report_cells:
        columns.setdefault(cell['column'], []).append(cell)
    count = len(columns)
    wide = min(count, 3)
    picture, panels = pyplot.subplots(
        -(-count // wide),
        wide,
        figsize=(3.6 * wide, 2.7 * -(-count // wide)),
        squeeze=False,
    )
    flat = list(panels.flat)
    for panel, (rate, cells) in zip(flat, columns.items(), strict=False):
        _bars(panel, cells, 'stock', figure, -_WIDTH / 2, _STOCK, 'stock')
        _bars(panel, cells, 'dedup', figure, _WIDTH / 2, _DEDUP, 'dedup')
        if figure == 'total_time_s':
            for at, cell in enumerate(cells):
                bound = cell['comparisons'].get('dedup', {}).get('bound_s')
                if bound is not None:
                    panel.hlines(bound, at, at + _WIDTH, color='black',
                                 linewidth=1.4)
        panel.set_xticks(range(len(cells)), [c['row'] for c in cells])
        panel.set_title(rate, fontsize='medium')
        if log:
            panel.set_yscale('log')
    for panel in flat[count:]:
        panel.set_visible(False)
    for row in panels:
        row[0].set_ylabel(unit)
    flat[0].legend(fontsize='small')
    picture.suptitle(title)
    picture.tight_layout()
    picture.savefig(path)
    pyplot.close(picture)


def _applications(cells, path, pyplot) -> None:
    """Total time as a multiple of stock's, beside the paper's."""
    columns: dict[str, list[dict]] = {}
    for cell in cells:
        columns.setdefault(cell['column'], []).append(cell)
    picture, panels = pyplot.subplots(
        1,
        len(columns),
        figsize=(3.8 * len(columns), 3.4),
        sharey=True,
        squeeze=False,
    )
    for panel, (rate, row) in zip(panels[0], columns.items(), strict=True):
        ours = [
            cell['comparisons'].get('dedup', {}).get('ratio') or {}
            for cell in row
        ]
        middle = [one.get('median', 0) for one in ours]
        panel.bar(
            [at - _WIDTH / 2 for at in range(len(row))],
            middle,
            _WIDTH,
            yerr=[
                [m - one.get('low', 0)
                 for m, one in zip(middle, ours, strict=True)],
                [one.get('high', 0) - m
                 for m, one in zip(middle, ours, strict=True)],
            ],
            error_kw={'linewidth': 0.8},
            color=_DEDUP,
            label='here',
        )
        theirs = 'unlimited' if rate == '1 GbE' else rate
        published = [
            paper.APPLICATIONS.get(cell['row'], {}).get(theirs)
            for cell in row
        ]
        panel.bar(
            [at + _WIDTH / 2 for at in range(len(row))],
            [one.ratio if one else 0 for one in published],
            _WIDTH,
            color=_PAPER,
            label="Jo et al., VEE'13",
        )
        panel.axhline(1.0, color='black', linewidth=0.8)
        panel.set_xticks(
            range(len(row)),
            [cell['row'] for cell in row],
            rotation=40,
            ha='right',
        )
        panel.set_title(rate, fontsize='medium')
    panels[0][0].set_ylabel("total time / stock's")
    panels[0][0].legend(fontsize='small')
    picture.tight_layout()
    picture.savefig(path)
    pyplot.close(picture)


def draw(
    report: dict, directory: Path, name: str
) -> dict[str, list[tuple[Path, str]]]:
    """Write SVGs for the groups that there are.

    :returns: group -> (file, what it shows)
    """
    # Takes half a second to import, so not at the top.
    import matplotlib

    matplotlib.use('Agg')
    # The same input makes the same file.
    matplotlib.rcParams['svg.hashsalt'] = name
    from matplotlib import pyplot

    drawn: dict[str, list[tuple[Path, str]]] = {}

    def target(group: str, suffix: str, title: str) -> Path:
        path = directory / f'{name}-{group}{suffix}.svg'
        drawn.setdefault(group, []).append((path, title))
        return path

    groups = rst.groups(report)
    if cells := groups.get('grid'):
        title = 'Idle guest: total time (black: the limit)'
        path = target('grid', '-time', title)
        _grid(cells, 'total_time_s', title, 's', path, pyplot)
        title = 'Idle guest: downtime'
        path = target('grid', '-downtime', title)
        _grid(cells, 'downtime_ms', title, 'ms', path, pyplot, log=True)
    if cells := groups.get('applications'):
        path = target('applications', '', "Total time / stock's")
        _applications(cells, path, pyplot)
    return drawn
