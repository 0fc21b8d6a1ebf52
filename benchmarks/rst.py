# SPDX-License-Identifier: Apache-2.0
"""Tables of a summary, for the terminal and as reStructuredText."""

from benchmarks import paper
from benchmarks import summary
from benchmarks.spread import Spread

_MISSING = '-'
_NAMES = {
    'time': 'total time <= 1.05 x limit',
    'link_bytes': 'bytes <= 1.02 x unique + 24 B x duplicates',
    'downtime': "downtime <= stock's + 10 ms",
    'total': "total time <= 1.03 x stock's",
}


def simple(header: list[str], rows: list[list[str]]) -> str:
    """A simple table; no cell may contain a line break."""
    lines = [header, *rows]
    widths = [
        max(len(line[i]) for line in lines) for i in range(len(header))
    ]
    rule = '  '.join('=' * width for width in widths)

    def put(line: list[str]) -> str:
        # An empty first cell would continue the row before.
        cells = [line[0] or '\\', *line[1:]]
        return '  '.join(
            cell.ljust(width)
            for cell, width in zip(cells, widths, strict=True)
        ).rstrip()

    return '\n'.join([rule, put(header), rule, *map(put, rows), rule])


def list_table(header, rows) -> str:
    """A list table, for cells that a line has no room for."""
    text = ['.. list-table::', '   :header-rows: 1', '']
    for row in (header, *rows):
        text += [('   * - ' if not at else '     - ') + cell
                 for at, cell in enumerate(row)]
    return '\n'.join(text) + '\n'


def made(report: dict, failed: list[str], more: list[str]) -> str:
    """How and when a report was made.

    :param failed: sentences about runs that failed
    :param more: sentences about it
    """
    lines = ['Made with::', '', f'   {report["command"]}', '']
    if report['begun']:
        lines.append(
            f'Runs from {report["begun"][:10]} to {report["ended"][:10]}.')
    lines += [*more, f'Runs that failed: {len(failed) or "none"}.']
    lines += ['', *(f'* {one}' for one in failed)]
    return '\n'.join(lines).rstrip() + '\n'


def show(value: dict | None, digits: int = 1, scale: float = 1.0) -> str:
    if value is None:
        return _MISSING
    return Spread(
        value['median'] * scale,
        value['low'] * scale,
        value['high'] * scale,
        value['n'],
    ).show(digits)


def _median(value: dict | None, digits: int = 1, scale: float = 1.0) -> str:
    if value is None:
        return _MISSING
    return f'{value["median"] * scale:.{digits}f}'


def seconds(variant: dict | None) -> str:
    """Total time; '>' where runs were given up at that time."""
    if variant is None:
        return _MISSING
    if variant['failed'] and variant['total_time_s'] is None:
        return 'failed'
    mark = '>' if variant['unconverged'] else ''
    return mark + show(variant['total_time_s'])


def ratio(comparison: dict, variants: dict, name: str) -> str:
    """Quotient of total times; '<' if the reference never came to an end,
    '>' if this did not."""
    theirs = variants.get(comparison['reference'])
    unfinished = [
        bool(one and one['unconverged']) for one in (variants[name], theirs)
    ]
    if all(unfinished):
        return _MISSING
    mark = '>' if unfinished[0] else '<' if unfinished[1] else ''
    return mark + show(comparison['ratio'], 2)


def goal_text(outcome: dict | None) -> str:
    if outcome is None:
        return _MISSING
    if outcome['reached']:
        return 'yes'
    return f'no, {outcome["excess"]:+.0%}'


def _pause(outcome: dict | None) -> str:
    if outcome is None:
        return _MISSING
    if outcome['reached']:
        return 'yes'
    return f'no, {outcome["value"] - outcome["limit"]:+.0f} ms'


_MAIN = [
    'total time, s: stock',
    'dedup',
    'ratio',
    'limit',
    'MB sent: stock',
    'dedup',
    'downtime, ms: stock',
    'dedup',
    'time',
    'bytes',
    'pause',
    '<= 1.03',
]


def _main(cell: dict) -> list[str]:
    stock = cell['variants'].get('stock')
    dedup = cell['variants'].get('dedup')
    compared = cell['comparisons'].get('dedup')
    if stock is None or dedup is None or compared is None:
        return [seconds(stock), seconds(dedup)] + [_MISSING] * 10
    goals = compared['targets']
    bound = compared['bound_s']
    exact = cell['steady']
    return [
        seconds(stock),
        seconds(dedup),
        ratio(compared, cell['variants'], 'dedup'),
        _MISSING if bound is None else f'{bound:.1f}',
        _median(stock['link_bytes'], 0, 1e-6),
        _median(dedup['link_bytes'], 0, 1e-6),
        show(stock['downtime_ms'], 0),
        show(dedup['downtime_ms'], 0),
        goal_text(goals.get('time')) if exact else 'writes',
        goal_text(goals.get('link_bytes')) if exact else 'writes',
        _pause(goals.get('downtime')),
        goal_text(goals.get('total')),
    ]


def _paper(cell: dict) -> list[str]:
    rates = paper.APPLICATIONS.get(cell['row'], {})
    column = cell['column']
    row = rates.get('unlimited' if column == '1 GbE' else column)
    if row is None:
        return [_MISSING] * 3
    return [
        f'{row.stock_s:.1f} / {row.dedup_s:.1f}',
        f'{row.ratio:.2f}',
        f'{row.stock_down:.2f} / {row.dedup_down:.2f}',
    ]


def main_table(cells: list[dict], first: str, with_paper: bool) -> str:
    """Stock and dedup, a row for each cell."""
    header = ['rate', first, *_MAIN]
    if with_paper:
        header += ['paper: s', 'ratio', 'downtime, s']
    rows = []
    last = None
    for cell in cells:
        shown = cell['column'] if cell['column'] != last else ''
        last = cell['column']
        row = [shown, cell['row'], *_main(cell)]
        rows.append(row + (_paper(cell) if with_paper else []))
    return simple(header, rows)


def variant_table(cells: list[dict]) -> str:
    """Every variant of every cell, compared with stock as it comes."""
    header = ['guest', 'migration', 'total time, s', 'ratio to', '',
              'MB sent', 'downtime, ms']
    rows = []
    for cell in cells:
        last = None
        for name, variant in cell['variants'].items():
            compared = cell['comparisons'].get(name)
            rows.append(
                [
                    cell['row'] if last is None else '',
                    name,
                    seconds(variant),
                    compared['reference'] if compared else '',
                    ratio(compared, cell['variants'], name)
                    if compared
                    else '',
                    _median(variant['link_bytes'], 0, 1e-6),
                    show(variant['downtime_ms'], 0),
                ]
            )
            last = name
    return simple(header, rows)


def compression_table(cells: list[dict]) -> str:
    """Without and with compression; processor seconds for a GB of pages."""
    header = ['rate', 'duplicates', 'total time, s: without', 'with', 'ratio',
              'MB sent: without', 'with', 'ratio', 'downtime, ms: without',
              'with', 's/GB: source', 'destination', '<= 1.03']
    rows = []
    last = None
    for cell in cells:
        shown = cell['column'] if cell['column'] != last else ''
        last = cell['column']
        names = ('dedup', 'dedup, compressed')
        plain, packed = (cell['variants'].get(name) for name in names)
        compared = cell['comparisons'].get(names[1])
        row = [shown, cell['row'], seconds(plain), seconds(packed)]
        if plain is None or packed is None or compared is None:
            rows.append(row + [_MISSING] * (len(header) - len(row)))
            continue
        rows.append([
            *row,
            ratio(compared, cell['variants'], names[1]),
            _median(plain['link_bytes'], 0, 1e-6),
            _median(packed['link_bytes'], 0, 1e-6),
            show(compared['bytes_ratio'], 2),
            show(plain['downtime_ms'], 0),
            show(packed['downtime_ms'], 0),
            _median(packed['source_cost_s'], 2),
            _median(packed['incoming_cost_s'], 2),
            goal_text(compared['targets'].get('total')),
        ])
    return simple(header, rows)


def targets_table(report: dict) -> str:
    rows = [
        [_NAMES[target], f'{reached} of {total}']
        for target, (reached, total) in summary.tally(report).items()
    ]
    return simple(['target', 'cells that reach it'], rows)


def group_table(group: str, cells: list[dict]) -> str:
    if group in ('baselines', 'writers'):
        return variant_table(cells)
    if group == 'compression':
        return compression_table(cells)
    first = {
        'grid': 'duplicates',
        'applications': 'application',
        'storage': 'storage, duplicates',
    }[group]
    return main_table(cells, first, group == 'applications')


def groups(report: dict) -> dict[str, list[dict]]:
    """Group -> its cells, in the order of the report."""
    result: dict[str, list[dict]] = {}
    for cell in report['cells']:
        result.setdefault(cell['group'], []).append(cell)
    return result
