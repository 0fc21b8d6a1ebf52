# SPDX-License-Identifier: Apache-2.0
"""make demo ARGS=--disk: the disk of a running guest, mirrored three times.

By QEMU alone; with what the destination builds of the image that the disk
was made of; and of a snapshot of the disk as well.  Every byte of both
disks is compared afterwards.
"""

from __future__ import annotations

import argparse
from pathlib import Path
import sys
import tempfile

from benchmarks import disk_moves
from benchmarks import disk_report
from benchmarks import disks
from nova_dedup_migrate import errors
from testkit import results
from testkit import table

_WHAT = {
    'stock': 'nothing: QEMU copies the disk',
    'base': 'the image that the disk was made of',
    'snapshot': 'the image, and a snapshot of the disk',
}
#: How sources are shown.
_SOURCES = {'zero': 'zeros', 'local': 'of the destination'}


def show(outcomes: dict[str, disk_moves.Outcome]) -> str:
    """Return the table."""
    names = sorted({name for one in outcomes.values()
                    for name, count in one.sources.items() if count},
                   reverse=True)
    rows = []
    for variant, one in outcomes.items():
        rows.append((
            _WHAT[variant], _mb(one.link), _mb(one.manifest),
            *(_mb(one.sources.get(name, 0)) for name in names),
            f'{one.total:.1f}',
            'equal' if one.identical else 'DIFFERENT'))
    return table.text(
        ('the destination has', 'MB on the link', 'of that, digests',
         *('MB ' + _SOURCES.get(name, name) for name in names), 'seconds',
         'all bytes are'), rows)


def _mb(count: int) -> str:
    return f'{count / 1e6:.1f}'


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='demo --disk', description='Mirror the disk of a small running '
        'guest between two QEMUs on this machine, first as QEMU does it, '
        'then after the destination has built what it can, and compare.',
        allow_abbrev=False)
    parser.add_argument('--disk', action='store_true', help='this')
    parser.add_argument('--mib', type=int, default=192,
                        help='of files on the disk (default: %(default)s)')
    parser.add_argument('--link', type=int, default=100, metavar='Mbit/s',
                        help='rate of the mirror (default: %(default)s)')
    parser.add_argument('--output', type=Path,
                        default=disks.TOP / 'build' / 'demo-disk',
                        help='directory for report.json (%(default)s)',
                        metavar='DIR')
    given = parser.parse_args(arguments)
    try:
        return demo(given)
    except (errors.DedupMigrateError, RuntimeError, OSError) as error:
        # One that has no text is named by its class.
        print(f'\ndemo: {str(error) or type(error).__name__}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print('\ndemo: interrupted', file=sys.stderr)
        return 130


def demo(given: argparse.Namespace) -> int:
    """Mirror the disk in each way, show the table; the exit status."""
    found = results.Results('make demo ARGS=--disk')
    outcomes: dict[str, disk_moves.Outcome] = {}
    for variant in _WHAT:
        print(f'{variant}: the destination has {_WHAT[variant]} ...',
              flush=True)
        with tempfile.TemporaryDirectory(prefix='demo-disk-') as place:
            outcomes[variant] = disk_moves.Cell(
                variant, given.mib, given.link * 125_000,
                given.mib // 8, Path(place)).run()
    disk_report.add(found, [
        disk_report.Run(given.link, 1, variant, 0, outcome)
        for variant, outcome in outcomes.items()])
    path = given.output / 'report.json'
    found.write(path)
    print(f'\n{show(outcomes)}\n\n'
          'A block counts as there if its SHA-256, as the destination reads '
          'it back from its disk,\nis the one in the digests. QEMU copies '
          f'the rest.\nIn {path}: all figures.')
    for row in found.rows:
        if not row.ok:
            print(f'missed: {row.name}: {row.value}, not {row.target}')
    return found.status()
