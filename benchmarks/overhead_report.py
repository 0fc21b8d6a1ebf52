# SPDX-License-Identifier: Apache-2.0
"""Table, JSON and plot of make bench-overhead."""

import dataclasses
import json
from pathlib import Path

from benchmarks import rst
from benchmarks.pairs import estimate

NAME = 'overhead'
#: What recording may cost: a part of guest I/O throughput, of guest memory
THROUGHPUT = 0.01
MEMORY = 0.004

_PARTS = {
    'ring': 'QEMU alone',
    'guest': 'guest, O_DIRECT',
    'boot': 'guest, boot',
}
_FIGURES = ('rate_ratio', 'cost_ratio', 'ns_per_page')


def _estimates(case) -> dict:
    result = {}
    for figure in _FIGURES:
        values = [getattr(pair, figure) for pair in case.pairs]
        found = estimate([value for value in values if value is not None])
        result[figure] = None if found is None else dataclasses.asdict(found)
    return result


def outcome(found: dict) -> str:
    """Whether the rate is at most THROUGHPUT lower: yes, no, or that the
    pairs lie too far apart to tell."""
    floor = 1 - THROUGHPUT
    if found['low'] is None:
        return 'too few pairs'
    if found['low'] >= floor:
        return 'yes'
    if found['high'] < floor:
        return 'no'
    return 'cannot be told'


def build(cases: list, command: str) -> dict:
    entries = []
    for case in cases:
        found = _estimates(case)
        off = estimate([pair.off.rate for pair in case.pairs])
        entries.append(
            {
                'part': case.part,
                'name': case.name,
                'rate_off': off.median,
                **found,
                'outcome': outcome(found['rate_ratio']),
                'map': case.map,
            }
        )
    return {'command': command, 'cases': entries}


def _show(found: dict | None, digits: int) -> str:
    if found is None:
        return '-'
    text = f'{found["median"]:.{digits}f}'
    if found['low'] is not None:
        text += f' ({found["low"]:.{digits}f} to {found["high"]:.{digits}f})'
    return text


def _off(entry: dict) -> str:
    if entry['part'] == 'boot':
        return f'{1 / entry["rate_off"]:.2f} s'
    return f'{entry["rate_off"] / 1e6:.0f} MB/s'


def brief(case) -> str:
    """A line about a case that is done."""
    found = _estimates(case)
    return (
        f'{_PARTS[case.part]}, {case.name}: rate '
        f'{_show(found["rate_ratio"], 4)}, processor time '
        f'{_show(found["cost_ratio"], 4)}'
    )


def tables(report: dict) -> str:
    rows = [
        [
            _PARTS[entry['part']],
            entry['name'],
            _off(entry),
            _show(entry['rate_ratio'], 3),
            entry['outcome'],
            _show(entry['cost_ratio'], 3),
            _show(entry['ns_per_page'], 0),
        ]
        for entry in report['cases']
    ]
    parts = [
        rst.simple(
            [
                'what',
                'reads',
                'off',
                'rate on / off',
                '>= 0.99',
                'processor time on / off',
                'ns a page',
            ],
            rows,
        )
    ]
    maps = [
        [
            f'{_PARTS[entry["part"]]}, {entry["name"]}',
            str(entry['map']['pages']),
            str(entry['map']['bytes']),
            f'{entry["map"]["bytes"] / entry["map"]["ram"]:.3%}',
            'yes'
            if entry['map']['bytes'] <= MEMORY * entry['map']['ram']
            else 'no',
        ]
        for entry in report['cases']
        if entry['map']
    ]
    if maps:
        parts.append(
            rst.simple(
                ['after', 'pages recorded', 'bytes', 'of memory', '<= 0.4 %'],
                maps,
            )
        )
    return '\n\n'.join(parts)


def text(report: dict) -> str:
    return tables(report)


def write(report: dict, directory: Path) -> None:
    """Files called overhead* in directory, which is made.

    The .inc file is for a document in the directory above.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / f'{NAME}.json').write_text(
        json.dumps(report, indent=1) + '\n')
    (directory / f'{NAME}.inc').write_text(
        f'Made with::\n\n   {report["command"]}\n\n{tables(report)}\n\n'
        f'.. image:: {directory.name}/{NAME}.svg\n'
        '   :alt: Medians and intervals of rate and processor time\n'
    )
    draw(report, directory / f'{NAME}.svg')


def draw(report: dict, path: Path) -> None:
    """Medians and intervals of rate and processor time, one line a case."""
    import matplotlib

    matplotlib.use('Agg')
    matplotlib.rcParams['svg.hashsalt'] = NAME
    from matplotlib import pyplot

    entries = report['cases'][::-1]
    figure, panels = pyplot.subplots(
        1, 2, sharey=True, figsize=(9, 1.2 + 0.4 * len(entries))
    )
    for panel, name, title in (
        (panels[0], 'rate_ratio', 'rate on / off'),
        (panels[1], 'cost_ratio', 'processor time on / off'),
    ):
        for at, entry in enumerate(entries):
            found = entry[name]
            low = found['median'] if found['low'] is None else found['low']
            high = found['median'] if found['high'] is None else found['high']
            panel.plot([low, high], [at, at], color='#4c78a8', linewidth=2)
            panel.plot(found['median'], at, 'o', color='#4c78a8')
        panel.axvline(1.0, color='black', linewidth=0.8)
        panel.set_title(title, fontsize='medium')
    panels[0].axvline(1 - THROUGHPUT, color='#d62728', linewidth=0.8)
    panels[0].set_yticks(
        range(len(entries)),
        [f'{_PARTS[e["part"]]}, {e["name"]}' for e in entries],
        fontsize='small',
    )
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)
