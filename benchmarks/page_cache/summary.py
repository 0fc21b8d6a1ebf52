# SPDX-License-Identifier: Apache-2.0
"""From single runs to cells: medians, quotients, targets.

The result is plain values, as the JSON file has them:

    command, begun, ended
    cells: workload, guest, load, rate
      variants: name -> runs, failed, a spread (median, low, high, n) or null
                for each of FIGURES, strategies, series of the first good run
      comparisons: name -> ratio, memory_ratio, rival_ratio (spreads; the
                last is of the total time to the rival's), targets
"""

from collections.abc import Iterator
import dataclasses

from benchmarks import spread
from benchmarks import targets as limits
from benchmarks.page_cache import cells
from benchmarks.page_cache import rival
from benchmarks.page_cache import series

FIGURES = ('total_time_s', 'downtime_ms', 'link_bytes', 'memory_bytes',
           'disk_bytes', 'recovery', 'p99_before', 'p99_first', 'p99_after',
           'outage_s', 'failed_requests', 'lister_s_per_gb',
           'lister_cpu_s_per_gb', 'coverage', 'index_pages', 'index_found',
           'index_read_bytes', 'index_seconds', 'neighbours')
#: Link bytes of memory of the web server, as a part of stock's.
WEB_SHARE = 0.15
#: Total time, as a part of the rival's.
RIVAL_SHARE = 0.45
RECOVERY = 0.95
LISTER_S_PER_GB = 0.25
COVERAGE = 0.95
#: Target -> its figure, its limit, and whether less is better
TARGETS = {
    'memory': ('memory_ratio', WEB_SHARE, True),
    'never slower': ('ratio', 1.0, True),
    'rival': ('rival_ratio', RIVAL_SHARE, True),
    'no dip': ('recovery', RECOVERY, False),
    'lister time': ('lister_s_per_gb', LISTER_S_PER_GB, True),
    'coverage': ('coverage', COVERAGE, False),
}
_PAGE = 4096

Runs = dict[str, list[dict]]


def _dict(value: spread.Spread | None) -> dict | None:
    return None if value is None else dataclasses.asdict(value)


def _good(runs: list[dict]) -> list[dict]:
    return [one for one in runs if 'failed' not in one]


def lister(one: dict) -> dict:
    """Seconds of the lister for each GB of page cache, and the part of the
    clean cache it has listed; as the guest says."""
    answer = one.get('page_cache') or {}
    cached, seconds = answer.get('cached_pages'), answer.get('lister_seconds')
    if not cached or answer.get('outcome') != 'taken':
        return {}
    clean = cached - (answer.get('dirty_pages') or 0)
    gb = cached * _PAGE / 1e9
    cpu = answer.get('lister_cpu_seconds')
    return {
        'lister_s_per_gb': None if seconds is None else seconds / gb,
        'lister_cpu_s_per_gb': None if cpu is None else cpu / gb,
        'coverage': answer['listed_pages'] / clean if clean > 0 else None,
    }


def index(one: dict) -> dict:
    """What the search of the disks found and took."""
    found = one.get('content_index') or {}
    if not found.get('pages'):
        return {}
    return {'index_pages': found['pages'],
            'index_found': found['found_pages'] / found['pages'],
            'index_read_bytes': found['read_bytes'],
            'index_seconds': found['seconds']}


def around(one: dict, load: str) -> dict:
    """What the load did before and after, of its series.

    A database reads little from its files, so its transactions count, of
    those that were due: pgbench has them begin at random times.  p99_after
    is the mean of the seconds that are not among the first.
    """
    points, asked = one['series'], one['asked']
    first = cells.FIRST_S
    return {
        'recovery': series.recovery(points, asked, per_due=load == 'db'),
        'p99_before': series.mean(points, asked - cells.BEFORE_S, asked,
                                  'p99'),
        'p99_first': series.mean(points, 0.0, first, 'p99'),
        'p99_after': series.mean(points, first, cells.AFTER_S, 'p99'),
    }


def _variant(runs: list[dict], load: str) -> dict:
    good = [one | lister(one) | index(one) | around(one, load)
            for one in _good(runs)]
    entry: dict = {
        'runs': len(runs),
        'failed': [one['failed'] for one in runs if 'failed' in one],
        'strategies': sorted({one['strategy'] or 'stock' for one in good}),
        'series': good[0]['series'] if good else [],
        'asked': good[0]['asked'] if good else None,
    }
    for figure in FIGURES:
        entry[figure] = _dict(spread.of(one.get(figure) for one in good))
    return entry


def _ratio(ours: list[dict], stock: list[dict], field: str):
    theirs = {one['repeat']: one for one in _good(stock)}
    pairs = [(one.get(field), theirs[one['repeat']].get(field))
             for one in _good(ours) if one['repeat'] in theirs]
    return _dict(spread.ratios([a for a, _ in pairs], [b for _, b in pairs]))


def _comparison(cell: cells.Cell, name: str, runs: Runs, variant: dict):
    stock = runs.get(cells.STOCK, [])
    found = {
        'ratio': _ratio(runs[name], stock, 'total_time_s'),
        'memory_ratio': _ratio(runs[name], stock, 'memory_bytes'),
        'rival_ratio': _ratio(runs[name], runs.get(rival.NAME, []),
                              'total_time_s'),
    }
    found['targets'] = {
        target: _outcome({**variant, **found}[figure], limit, less)
        for target, (figure, limit, less) in TARGETS.items()
        if name in cells.OURS
        and (target != 'memory' or cell.workload == cells.WEB)
    }
    return found


def _outcome(value: dict | None, limit: float, less: bool) -> dict | None:
    if value is None:
        return None
    median = value['median']
    return {'value': median, 'limit': limit, 'less': less,
            'reached': median <= limit if less else median >= limit}


def _cell(cell: cells.Cell, runs: Runs) -> dict:
    variants = {one.name: _variant(runs[one.name], cell.workload.load)
                for one in cell.variants if one.name in runs}
    return {
        'workload': cell.workload.name, 'guest': cell.workload.guest,
        'load': cell.workload.load, 'rate': cell.rate,
        'variants': variants,
        'comparisons': {
            name: _comparison(cell, name, runs, variant)
            for name, variant in variants.items() if name != cells.STOCK},
    }


def build(chosen: list[cells.Cell], runs: dict[str, Runs],
          command: str) -> dict:
    """:param runs: cell name -> variant name -> records with a 'repeat'"""
    every = [one['when'] for variants in runs.values()
             for records in variants.values() for one in records]
    return {
        'command': command,
        'begun': min(every, default=None), 'ended': max(every, default=None),
        'cells': [_cell(cell, runs[cell.name]) for cell in chosen
                  if cell.name in runs],
    }


def failures(report: dict) -> list[str]:
    """Runs in which something broke, a sentence each."""
    return [f'{cell["workload"]}, {cell["rate"]} Mbit/s, {name}: {reason}'
            for cell in report['cells']
            for name, variant in cell['variants'].items()
            for reason in variant['failed']]


def targets(report: dict) -> Iterator[tuple[str, str, dict]]:
    """Yield (cell and variant, target, outcome) of those that are known."""
    for cell in report['cells']:
        for variant, one in cell['comparisons'].items():
            for target in TARGETS:
                outcome = one['targets'].get(target)
                if outcome is not None:
                    yield (f'{cell["workload"]}, {cell["rate"]} Mbit/s, '
                           f'{variant}', target, outcome)


def tally(report: dict) -> dict[str, tuple[int, int]]:
    """Target -> (variants of cells that reach it, in which it is known)."""
    return limits.tally(targets(report), TARGETS)
