# SPDX-License-Identifier: Apache-2.0
"""report.json and the table: what the runs of a demo come to."""

import dataclasses

from benchmarks import options as demo_options
from benchmarks import run

_MISSING = '-'


def run_entry(result: run.Result) -> dict:
    """A run as report.json has it."""
    return {
        'name': result.name,
        'total_time_s': result.total_time_s,
        'downtime_ms': result.downtime_ms,
        'link_bytes': result.link_bytes,
        'pages': {
            'peer': result.pages.peer,
            'zero': result.pages.zero,
            'storage': result.pages.storage,
        },
        'digest_failures': result.digest_failures,
        'ram_identical': result.ram_identical,
        'guest_verified': result.guest_verified,
        'converged': result.converged,
    }


def limit(unique_bytes: int | None, link_bytes_per_s: int | None) -> dict:
    """The best any migration could do: each unique page once, and the
    link busy from beginning to end.  None: unknown, or no limit."""
    time_s = None
    if unique_bytes is not None and link_bytes_per_s:
        time_s = round(unique_bytes / link_bytes_per_s, 3)
    return {
        'unique_bytes': unique_bytes,
        'link_bytes_per_s': link_bytes_per_s,
        'time_s': time_s,
    }


def build(results: list[run.Result], options: demo_options.Options) -> dict:
    """The content of report.json."""
    seen = next((r.content for r in results if r.content), None)
    guest = {
        'memory_mib': options.memory,
        'cache_bytes': results[0].guest.get('cache_bytes'),
        'anon_bytes': results[0].guest.get('anon_bytes'),
    }
    if seen is not None:
        guest |= {
            'nonzero_bytes': seen.nonzero * 4096,
            'duplicate_bytes': seen.duplicate * 4096,
            'duplicate_share': round(seen.share, 4),
        }
    return {
        'runs': [run_entry(result) for result in results],
        'limit': limit(
            seen.unique_bytes if seen else None, options.link_bytes_per_s
        ),
        'guest': guest,
        'options': dataclasses.asdict(options),
    }


def details(results: list[run.Result]) -> dict:
    """What is behind it: samples over time, both sides' statistics."""
    return {'runs': [dataclasses.asdict(result) for result in results]}


def failures(results: list[run.Result]) -> list[str]:
    """What must never happen, a sentence each."""
    found = []
    for result in results:
        if result.ram_identical is False:
            found.append(
                f'{result.name}: {result.differing_pages} pages of memory '
                'differ between source and destination'
            )
        if not result.guest_verified:
            found.append(
                f'{result.name}: the guest found an error: '
                f'{result.guest_error}'
            )
    return found


def _yes(value: bool | None) -> str:
    return _MISSING if value is None else 'yes' if value else 'NO'


def _number(value: float | None, format: str) -> str:
    return _MISSING if value is None else f'{value:{format}}'


def _factor(value: float | None, reference: float | None) -> str:
    if not value or not reference:
        return _MISSING
    return f'{value / reference:.2f}'


def _mib(pages: int) -> str:
    return f'{pages / 256:.0f}'


def table(report: dict) -> str:
    """One table for people: a column for each run, their quotient, and
    the limit."""
    runs = {run['name']: run for run in report['runs']}
    bound = report['limit']
    rows = [
        ('total time, s', 'total_time_s', lambda v: _number(v, '.2f')),
        (
            'sent over the link, MB',
            'link_bytes',
            lambda v: _number(v / 1e6, '.1f'),
        ),
        ('downtime, ms', 'downtime_ms', lambda v: _number(v, 'd')),
    ]
    best = {
        'total_time_s': _number(bound['time_s'], '.2f'),
        'link_bytes': _MISSING
        if bound['unique_bytes'] is None
        else f'{bound["unique_bytes"] / 1e6:.1f}',
    }
    compared = 'stock' in runs and 'dedup' in runs
    lines = [['', *runs, *(['ratio'] if compared else []), 'limit']]
    for title, field, show in rows:
        line = [title] + [show(run[field]) for run in runs.values()]
        if compared:
            line.append(_factor(runs['dedup'][field], runs['stock'][field]))
        lines.append([*line, best.get(field, '')])
    for path, where in (
        ('peer', 'the source'),
        ('storage', 'storage'),
        ('zero', 'nowhere (zero)'),
    ):
        lines.append(
            [f'MiB from {where}']
            + [_mib(run['pages'][path]) for run in runs.values()]
        )
    for title, field in (
        ('memory identical to the byte', 'ram_identical'),
        ("guest's own verification good", 'guest_verified'),
        ('converged', 'converged'),
    ):
        lines.append([title] + [_yes(run[field]) for run in runs.values()])
    return _align(lines)


def _align(lines: list[list[str]]) -> str:
    columns = max(map(len, lines))
    full = [line + [''] * (columns - len(line)) for line in lines]
    widths = [max(len(line[i]) for line in full) for i in range(columns)]
    text = []
    for line in full:
        cells = [line[0].ljust(widths[0])]
        cells += [
            c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)
        ]
        text.append('  '.join(cells).rstrip())
    text.insert(1, '-' * (sum(widths) + 2 * (columns - 1)))
    return '\n'.join(text)
