# SPDX-License-Identifier: Apache-2.0
"""make bench-disks: mirrors of running guests' disks, built before or not.

Without OpenStack and libvirt: synthetic guests work on their disks, which
move over a link of a given rate in the ways of disk_moves: by QEMU alone, as
the third paper's baselines, and with what the destination builds before.
Afterwards the guests stand still and every byte of all disks is compared.
Bytes on the link are those that have passed it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
import sys
import tempfile
import time

from benchmarks import disk_moves
from benchmarks import disk_report
from benchmarks import disk_summary
from nova_dedup_migrate import errors
from testkit import results

TOP = Path(__file__).resolve().parents[1]
#: Seconds that --quick may take.
_QUICK = 900


#: Mbit/s below which a default run has one guest and these variants: a
#: slower link changes nothing else, and takes twice the time.
_FAST = 100
_SLOW = ('stock', 'base', 'snapshot')


def cells(given: argparse.Namespace
          ) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Yield (link, guests, variants)."""
    for link in given.link:
        fast = link >= _FAST
        for guests in given.guests or ((1, 2) if fast else (1,)):
            yield link, guests, given.variants or (
                disk_moves.VARIANTS if fast else _SLOW)


def measure(given: argparse.Namespace) -> Iterator[disk_report.Run]:
    """Run all variants."""
    for repeat in range(given.repeat):
        for link, guests, variants in cells(given):
            for variant in disk_report.order(variants, repeat):
                with tempfile.TemporaryDirectory(
                        prefix='disks-', dir=given.directory) as here:
                    outcome = disk_moves.Cell(
                        variant, given.mib, link * 125_000,
                        given.mib // 8, Path(here), guests,
                        int(given.storage * 1e6)).run()
                yield disk_report.Run(link, guests, variant, repeat, outcome)


def _numbers(text: str) -> tuple[int, ...]:
    found = tuple(map(int, text.split(',')))
    if min(found) < 1:
        raise ValueError('%s is less than 1' % min(found))
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='bench-disks', description='Mirror the disks of running guests, '
        'by QEMU alone and with what their destination can build; compare. '
        'The whole takes about 40 minutes on two quiet processors.')
    parser.add_argument('--quick', action='store_true',
                        help='disks of 128 MiB, one guest, 100 Mbit/s, each '
                        'once; what is given as well has precedence')
    parser.add_argument('--mib', type=int,
                        help='of files on a disk (default: 256)')
    parser.add_argument('--link', type=_numbers, metavar='Mbit/s,...',
                        help='rates of the link (default: 50,100)')
    parser.add_argument('--guests', type=_numbers, metavar='N,...',
                        help='that move at once (default: 1,2; 1 over a link '
                        'of less than %d Mbit/s)' % _FAST)
    parser.add_argument('--repeat', type=int, metavar='N',
                        help='rounds, each the other way round than the one '
                        'before (default: 2)')
    parser.add_argument('--storage', type=float, default=100.0,
                        metavar='MB/s', help='rate of the storage of all '
                        'guests together (default: %(default)g)')
    parser.add_argument('--variants', metavar='VARIANT,...',
                        type=lambda text: tuple(text.split(',')),
                        help='of %s (default: all; over a link of less than '
                        '%d Mbit/s %s)' % (', '.join(disk_moves.VARIANTS),
                                           _FAST, ', '.join(_SLOW)))
    parser.add_argument('--directory', type=Path,
                        help='for images (default: the temporary one)')
    parser.add_argument('--publish', type=Path, metavar='DIR',
                        help='write disks.inc and disks.json here, for the '
                        'documentation')
    given = parser.parse_args(arguments)
    if set(given.variants or ()) - set(disk_moves.VARIANTS):
        parser.error('variants are ' + ', '.join(disk_moves.VARIANTS))
    usual = ((128, (100,), (1,), 1) if given.quick
             else (256, (50, 100), None, 2))
    for name, value in zip(('mib', 'link', 'guests', 'repeat'), usual,
                           strict=True):
        if getattr(given, name) is None:
            setattr(given, name, value)
    if given.mib < 64:
        parser.error('the guests need at least 64 MiB of files')
    return given


def main(arguments: list[str] | None = None) -> int:
    given = parse(arguments)
    typed = ' '.join(sys.argv[1:] if arguments is None else arguments)
    command = 'make bench-disks' + (' ARGS="%s"' % typed if typed else '')
    found = results.Results(command)
    begun = time.monotonic()
    runs = []
    problem = ''
    try:
        for run in measure(given):
            runs.append(run)
            print(disk_report.line(run), flush=True)
    except KeyboardInterrupt:
        problem = 'interrupted'
    except (errors.DedupMigrateError, RuntimeError, OSError) as error:
        problem = '%s: %s' % (type(error).__name__, error)
    found.add('runs that ended', problem or len(runs), '', 'all', not problem)
    found.add('files on a disk', given.mib, 'MiB', 'any', True)
    found.add('storage of the guests', given.storage, 'MB/s', 'any', True)
    disk_report.add(found, runs)
    seconds = time.monotonic() - begun
    found.add('duration', seconds, 's',
              '%d or less' % _QUICK if given.quick else 'any',
              not given.quick or seconds <= _QUICK)
    print(found.text(), disk_summary.text(runs), sep='\n\n')
    found.write(TOP / 'build' / 'bench-disks' / 'report.json')
    if given.publish and not problem:
        disk_summary.publish(runs, command, found, given.publish)
    return found.status()


if __name__ == '__main__':
    sys.exit(main())
