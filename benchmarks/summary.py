# SPDX-License-Identifier: Apache-2.0
"""From single runs to cells: medians, quotients, targets.

The result is plain values, as the JSON file has them:

    command, begun, ended, storage_bytes_per_s
    cells: group, row, column, steady, options, rate_bytes_per_s
      variants: name -> runs, failed, unconverged, a spread (median, low,
                high, n) or null for each of FIGURES
      comparisons: name -> reference, ratio (a spread), bound_s, targets
"""

from collections.abc import Iterator
import dataclasses

from benchmarks import spread
from benchmarks import targets as limits
from benchmarks.cells import Cell
from benchmarks.cells import Variant

FIGURES = (
    'total_time_s',
    'downtime_ms',
    'link_bytes',
    'rounds',
    'unique_bytes',
    'duplicate_bytes',
    'neighbours',
    'source_cost_s',
    'incoming_cost_s',
)
TARGETS = ('time', 'link_bytes', 'downtime', 'total')

Runs = dict[str, list[dict]]


def _dict(value: spread.Spread | None) -> dict | None:
    return None if value is None else dataclasses.asdict(value)


def _median(runs: list[dict], field: str) -> float | None:
    found = spread.of(one.get(field) for one in runs)
    return None if found is None else found.median


def _good(runs: list[dict]) -> list[dict]:
    return [one for one in runs if 'failed' not in one]


def _variant(runs: list[dict]) -> dict:
    good = _good(runs)
    entry = {
        'runs': len(runs),
        'failed': [one['failed'] for one in runs if 'failed' in one],
        'unconverged': sum(not one['converged'] for one in good),
        'storage_pages': _dict(
            spread.of(one['pages']['storage'] for one in good)
        ),
    }
    for figure in FIGURES:
        entry[figure] = _dict(spread.of(one.get(figure) for one in good))
    return entry


def _paired(runs: list[dict], references: list[dict], field: str):
    """Values of the repeats that both have, in the same order."""
    theirs = {one['repeat']: one for one in _good(references)}
    pairs = [
        (one.get(field), theirs[one['repeat']].get(field))
        for one in _good(runs)
        if one['repeat'] in theirs
    ]
    return [a for a, _ in pairs], [b for _, b in pairs]


def link_rate(cell: Cell, stock: list[dict]) -> tuple[float, str] | None:
    """(bytes per second of the first round, how that is known)."""
    options = cell.options
    for mbit in (options.start_link, options.link, options.wire):
        if mbit:
            return mbit * 125_000, 'set'
    sent = _median(_good(stock), 'link_bytes')
    seconds = _median(_good(stock), 'total_time_s')
    return (sent / seconds, 'stock') if sent and seconds else None


def _targets(
    cell: Cell, ours: list[dict], reference: list[dict], rate: float | None
) -> dict:
    def outcome(value: limits.Outcome) -> dict:
        return {
            'value': value.value,
            'limit': value.limit,
            'reached': value.reached,
            'excess': round(value.excess, 4),
        }

    good = _good(ours)
    seconds = _median(good, 'total_time_s')
    unique = _median(good, 'unique_bytes')
    duplicate = _median(good, 'duplicate_bytes')
    sent = _median(good, 'link_bytes')
    downtimes = (
        _median(good, 'downtime_ms'),
        _median(_good(reference), 'downtime_ms'),
    )
    ratio = spread.ratios(*_paired(ours, reference, 'total_time_s'))
    result: dict = {'bound_s': None}
    if None not in (seconds, unique, duplicate, sent) and rate:
        storage = _median(good, 'storage_bytes_per_s') or 0.0
        bound = limits.bound_s(unique, duplicate, rate, storage)
        result['bound_s'] = round(bound, 3)
        result['time'] = outcome(limits.time(seconds, bound))
    # Slow storage is helped out by the link, so there bytes are no goal.
    shared = cell.options.storage == 'shared'
    if shared and None not in (unique, duplicate, sent):
        result['link_bytes'] = outcome(
            limits.link_bytes(sent, unique, duplicate / limits.PAGE)
        )
    if None not in downtimes:
        result['downtime'] = outcome(limits.downtime(*downtimes))
    if ratio is not None:
        result['total'] = outcome(limits.total(ratio.median))
    return result


def _comparison(cell: Cell, variant: Variant, runs: Runs) -> dict:
    ours = runs[variant.name]
    reference = runs.get(variant.reference, [])
    known = link_rate(cell, runs.get('stock', reference))
    found = _targets(cell, ours, reference, known[0] if known else None)
    return {
        'reference': variant.reference,
        'ratio': _dict(
            spread.ratios(*_paired(ours, reference, 'total_time_s'))
        ),
        'bytes_ratio': _dict(
            spread.ratios(*_paired(ours, reference, 'link_bytes'))
        ),
        'downtime_difference_ms': _dict(
            spread.differences(*_paired(ours, reference, 'downtime_ms'))
        ),
        'bound_s': found.pop('bound_s'),
        'targets': found,
    }


def _cell(cell: Cell, runs: Runs) -> dict:
    known = link_rate(cell, runs.get('stock', []))
    return {
        'group': cell.group,
        'row': cell.row,
        'column': cell.column,
        'steady': cell.steady,
        'options': dataclasses.asdict(cell.options),
        'rate_bytes_per_s': known[0] if known else None,
        'rate_from': known[1] if known else None,
        'variants': {
            variant.name: _variant(runs[variant.name])
            for variant in cell.variants
            if variant.name in runs
        },
        'comparisons': {
            variant.name: _comparison(cell, variant, runs)
            for variant in cell.variants
            if variant.name != variant.reference and variant.name in runs
        },
    }


def build(
    chosen: list[Cell], runs: dict[str, Runs], command: str
) -> dict:
    """:param runs: cell name -> variant name -> records with a 'repeat'"""
    every = [
        one
        for variants in runs.values()
        for records in variants.values()
        for one in records
    ]
    shared = [
        one['storage_bytes_per_s']
        for cell in chosen
        if cell.options.storage == 'shared'
        for records in runs.get(cell.name, {}).values()
        for one in records
        if 'storage_bytes_per_s' in one
    ]
    return {
        'command': command,
        'begun': min((one['when'] for one in every), default=None),
        'ended': max((one['when'] for one in every), default=None),
        'storage_bytes_per_s': _dict(spread.of(shared)),
        'cells': [
            _cell(cell, runs[cell.name])
            for cell in chosen
            if cell.name in runs
        ],
    }


def failures(report: dict) -> list[str]:
    """Runs in which something broke, a sentence each."""
    return [
        f'{cell["group"]}: {cell["row"]}, {cell["column"]}, {name}: {reason}'
        for cell in report['cells']
        for name, variant in cell['variants'].items()
        for reason in variant['failed']
    ]


def targets(report: dict) -> Iterator[tuple[str, str, dict]]:
    """Yield (cell and variant, target, outcome) of those that are known.

    Time and bytes count only if the guest does not write.
    """
    for cell in report['cells']:
        for variant, one in cell['comparisons'].items():
            for target in TARGETS:
                outcome = one['targets'].get(target)
                if outcome is not None and (
                        cell['steady']
                        or target not in ('time', 'link_bytes')):
                    yield (f'{cell["group"]}: {cell["row"]}, '
                           f'{cell["column"]}, {variant}', target, outcome)


def tally(report: dict) -> dict[str, tuple[int, int]]:
    """Target -> (cells that reach it, cells in which it can be told)."""
    return limits.tally(targets(report), TARGETS)
