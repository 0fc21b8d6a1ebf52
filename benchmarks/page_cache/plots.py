# SPDX-License-Identifier: Apache-2.0
"""Reading before, during and after migrations, as the paper's figure 4."""

from pathlib import Path
import re

from benchmarks.page_cache.cells import AFTER_S

_COLORS = ('#9aa5b1', '#e45756', '#4c78a8', '#54a24b', '#b279a2')


def _panel(panel, name: str, variant: dict, load: str, color: str) -> None:
    points = variant['series']
    field = 'requests' if load == 'db' else 'mbps'
    if load == 'db':
        panel.fill_between([one['t'] for one in points],
                           [one['due'] for one in points], color='#dddddd',
                           linewidth=0)
    panel.plot([one['t'] for one in points],
               [one[field] for one in points], color=color, linewidth=1.2)
    slow = [one for one in points if one['p99'] is not None]
    if slow:
        other = panel.twinx()
        other.plot([one['t'] for one in slow], [one['p99'] for one in slow],
                   color='#555555', linewidth=0.7, linestyle='--')
        other.set_ylabel('p99, s', fontsize='small')
        other.set_ylim(bottom=0)
    panel.axvline(0.0, color='black', linewidth=0.8)
    panel.axvline(variant['asked'], color='black', linewidth=0.8,
                  linestyle=':')
    panel.set_title(name, fontsize='small', loc='left', pad=2)
    panel.set_ylabel('requests/s' if load == 'db' else 'MB/s',
                     fontsize='small')
    panel.set_ylim(bottom=0)
    panel.set_xlim(right=AFTER_S)


def draw(report: dict, directory: Path, name: str) -> list[tuple[Path, str]]:
    """Write an SVG for each cell with a load; (file, what it shows)."""
    # Takes half a second to import, so not at the top.
    import matplotlib

    matplotlib.use('Agg')
    # The same input makes the same file.
    matplotlib.rcParams['svg.hashsalt'] = name
    from matplotlib import pyplot

    drawn = []
    for cell in report['cells']:
        shown = {key: one for key, one in cell['variants'].items()
                 if one['series']}
        if not shown:
            continue
        title = f'{cell["workload"]}, {cell["rate"]} Mbit/s'
        picture, panels = pyplot.subplots(
            len(shown), 1, figsize=(8, 1.4 * len(shown) + 0.9), sharex=True,
            squeeze=False)
        for panel, (key, one), color in zip(panels[:, 0], shown.items(),
                                            _COLORS, strict=False):
            _panel(panel, key, one, cell['load'], color)
        panels[-1][0].set_xlabel(
            's since the guest resumed; dotted: when it was asked for')
        picture.suptitle(title)
        picture.tight_layout()
        path = directory / '{}-{}.svg'.format(
            name, re.sub(r'\W+', '-', title.lower()))
        picture.savefig(path, metadata={'Date': None})
        pyplot.close(picture)
        drawn.append((path, title))
    return drawn
