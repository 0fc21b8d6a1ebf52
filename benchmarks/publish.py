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
    lines = ['Made with::', '', f'   {report["command"]}', '']
    begun, ended = report['begun'], report['ended']
    if begun:
        lines.append(f'Runs from {begun[:10]} to {ended[:10]}.')
    rate = report['storage_bytes_per_s']
    if rate:
        lines.append(
            f'Storage read {rate["median"] / 1e6:.0f} MB/s '
            f'({rate["low"] / 1e6:.0f}-{rate["high"] / 1e6:.0f}).'
        )
    failed = summary.failures(report)
    lines.append(f'Runs that failed: {len(failed) or "none"}.')
    lines += ['', *(f'* {one}' for one in failed)]
    return '\n'.join(lines).rstrip() + '\n'


def write(report: dict, folder: Path) -> None:
    """Files called shared-storage* in folder, which is made.

    The .inc files are for a document in the folder above.
    """
    folder.mkdir(parents=True, exist_ok=True)

    def put(name: str, content: str) -> None:
        (folder / name).write_text(content, encoding='utf-8')

    put(f'{NAME}.json', json.dumps(report, indent=1) + '\n')
    put(f'{NAME}-made.inc', _made(report))
    put(f'{NAME}-targets.inc', rst.targets_table(report) + '\n')
    drawn = plots.draw(report, folder, NAME)
    groups = rst.groups(report)
    for group in GROUPS:
        parts = [
            f'.. image:: {folder.name}/{path.name}\n   :alt: {title}'
            for path, title in drawn.get(group, [])
        ]
        if group in groups:
            parts.append(rst.group_table(group, groups[group]))
        put(f'{NAME}-{group}.inc', '\n\n'.join(parts or [_NONE]) + '\n')
