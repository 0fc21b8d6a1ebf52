# SPDX-License-Identifier: Apache-2.0
"""Writes a summary of shared-storage runs: JSON, tables and plots."""

import json
from pathlib import Path

from benchmarks import plots
from benchmarks import rst
from benchmarks import summary
from benchmarks.cells import GROUPS

NAME = 'shared-storage'
_NONE = 'Not measured.'


def text(report: dict) -> str:
    """For the terminal."""
    parts = []
    for group, cells in rst.groups(report).items():
        parts.append(f'{group}\n\n{rst.group_table(group, cells)}')
    parts.append(rst.targets_table(report))
    parts += [f'failed: {one}' for one in summary.failures(report)]
    return '\n\n'.join(parts)


def _made(report: dict) -> str:
    rate = report['storage_bytes_per_s']
    return rst.made(report, summary.failures(report), [
        f'Storage read {rate["median"] / 1e6:.0f} MB/s '
        f'({rate["low"] / 1e6:.0f}-{rate["high"] / 1e6:.0f}).'
    ] if rate else [])


def write(report: dict, directory: Path) -> None:
    """Files called shared-storage* in directory, which is made.

    The .inc files are for a document in the directory above.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def put(name: str, content: str) -> None:
        (directory / name).write_text(content, encoding='utf-8')

    put(f'{NAME}.json', json.dumps(report, indent=1) + '\n')
    put(f'{NAME}-made.inc', _made(report))
    put(f'{NAME}-targets.inc', rst.targets_table(report) + '\n')
    drawn = plots.draw(report, directory, NAME)
    groups = rst.groups(report)
    for group in GROUPS:
        parts = [
            f'.. image:: {directory.name}/{path.name}\n   :alt: {title}'
            for path, title in drawn.get(group, [])
        ]
        if group in groups:
            parts.append(rst.group_table(group, groups[group]))
        put(f'{NAME}-{group}.inc', '\n\n'.join(parts or [_NONE]) + '\n')
