# SPDX-License-Identifier: Apache-2.0
"""Writes a summary of page-cache runs: JSON, tables and plots."""

import json
from pathlib import Path

from benchmarks import rst
from benchmarks.page_cache import cells
from benchmarks.page_cache import paper
from benchmarks.page_cache import plots
from benchmarks.page_cache import rival
from benchmarks.page_cache import summary

NAME = 'page-cache'
_MISSING = '-'
_TARGETS = {
    'memory': 'web server, memory on the link <= 0.15 of stock',
    'never slower': 'total time <= stock',
    'rival': 'total time <= 0.45 of stock multifd + zstd',
    'no dip': 'reading in the first 5 s >= 0.95 of before',
    'lister time': 'lister <= 0.25 s/GB of page cache',
    'coverage': 'lister lists >= 95 % of the clean page cache',
}
_HEADER = ['guest', 'Mbit/s', 'migration', 'total, s', 'ratio', 'to zstd',
           'memory, MB', 'ratio', 'disk, MB', 'downtime, ms', 'first 5 s',
           '<= stock', '<= 0.45', '>= 0.95', 'paper, MB']
_LOAD = ['guest', 'Mbit/s', 'migration', 'p99, ms: before', 'first 5 s',
         'later', 'outage, s', 'failed', 'other processors']
_LISTER = ['guest', 'Mbit/s', 'migration', 's/GB', 'processor, s/GB',
           'listed', '<= 0.25', '>= 0.95']
_INDEX = ['guest', 'Mbit/s', 'migration', 'pages looked for', 'found',
          'read, MB', 'seconds']


def _goal_text(outcome: dict | None) -> str:
    if outcome is None:
        return _MISSING
    return 'yes' if outcome['reached'] else 'no'


def _published(cell: dict, name: str) -> str:
    known = paper.TRANSFERRED.get((cell['workload'], cell['rate']))
    if known is None or name not in (cells.STOCK, cells.TELEPORT):
        return _MISSING
    return str(known[name == cells.TELEPORT])


def _row(cell: dict, name: str, variant: dict) -> list[str]:
    compared = cell['comparisons'].get(name, {})
    goals = compared.get('targets', {})
    time = ('failed' if variant['failed'] and not variant['total_time_s']
            else rst.show(variant['total_time_s'], 1))
    used = [one for one in variant['strategies'] if one != 'stock']
    note = ('' if name not in cells.OURS or used or not variant['strategies']
            else ' [#stock]_')
    return [
        name + note, time, rst.show(compared.get('ratio'), 2),
        (_MISSING if name == rival.NAME
         else rst.show(compared.get('rival_ratio'), 2)),
        rst.show(variant['memory_bytes'], 0, 1e-6),
        rst.show(compared.get('memory_ratio'), 2),
        rst.show(variant['disk_bytes'], 0, 1e-6),
        rst.show(variant['downtime_ms'], 0), rst.show(variant['recovery'], 2),
        _goal_text(goals.get('never slower')), _goal_text(goals.get('rival')),
        _goal_text(goals.get('no dip')), _published(cell, name)]


def main_table(report: dict) -> str:
    rows = []
    for cell in report['cells']:
        head = [cell['workload'], str(cell['rate'])]
        for name, variant in cell['variants'].items():
            rows.append(head + _row(cell, name, variant))
            head = ['', '']
    return rst.simple(_HEADER, rows)


def lister_table(report: dict) -> str:
    rows = [
        [cell['workload'], str(cell['rate']), name,
         rst.show(variant['lister_s_per_gb'], 3),
         rst.show(variant['lister_cpu_s_per_gb'], 3),
         rst.show(variant['coverage'], 3),
         _goal_text(goals.get('lister time')),
         _goal_text(goals.get('coverage'))]
        for cell in report['cells']
        for name, variant in cell['variants'].items()
        if variant['coverage']
        for goals in [cell['comparisons'].get(name, {}).get('targets', {})]]
    return rst.simple(_LISTER, rows) if rows else 'Not measured.'


def index_table(report: dict) -> str:
    rows = [
        [cell['workload'], str(cell['rate']), name,
         rst.show(variant['index_pages'], 0),
         rst.show(variant['index_found'], 3),
         rst.show(variant['index_read_bytes'], 0, 1e-6),
         rst.show(variant['index_seconds'], 1)]
        for cell in report['cells']
        for name, variant in cell['variants'].items()
        if variant['index_pages']]
    return rst.simple(_INDEX, rows) if rows else 'Not measured.'


def load_table(report: dict) -> str:
    """What the loads with requests got, and what else the machine did."""
    rows = [
        [cell['workload'], str(cell['rate']), name,
         *(rst.show(variant[field], 0, 1000.0)
           for field in ('p99_before', 'p99_first', 'p99_after')),
         rst.show(variant['outage_s'], 2),
         rst.show(variant['failed_requests'], 0),
         rst.show(variant['neighbours'], 1)]
        for cell in report['cells']
        for name, variant in cell['variants'].items()]
    return rst.simple(_LOAD, rows)


def targets_table(report: dict) -> str:
    return rst.simple(['target', 'medians that reach it'], [
        [_TARGETS[target], f'{reached} of {total}' if total
         else 'not measured']
        for target, (reached, total) in summary.tally(report).items()])


def text(report: dict) -> str:
    """For the terminal."""
    parts = [main_table(report), load_table(report), lister_table(report),
             index_table(report), targets_table(report)]
    parts += [f'failed: {one}' for one in summary.failures(report)]
    return '\n\n'.join(parts)


def write(report: dict, directory: Path) -> None:
    """Files called page-cache* in directory, which is made.

    The .inc files are for a document in the directory above.
    """
    directory.mkdir(parents=True, exist_ok=True)

    def put(name: str, content: str) -> None:
        (directory / name).write_text(content.rstrip() + '\n',
                                      encoding='utf-8')

    put(f'{NAME}.json', json.dumps(report, indent=1))
    put(f'{NAME}-made.inc', rst.made(report, summary.failures(report), []))
    put(f'{NAME}-targets.inc', targets_table(report))
    put(f'{NAME}-lister.inc', lister_table(report))
    put(f'{NAME}-index.inc', index_table(report))
    put(f'{NAME}-load.inc', load_table(report))
    parts = [main_table(report)]
    if '[#stock]_' in parts[0]:
        parts.append('.. [#stock] The planner chose an ordinary migration.')
    put(f'{NAME}-main.inc', '\n\n'.join(parts))
    drawn = plots.draw(report, directory, NAME)
    put(f'{NAME}-series.inc', '\n\n'.join(
        f'.. image:: {directory.name}/{path.name}\n   :alt: {title}'
        for path, title in drawn) or 'Not measured.')
