# SPDX-License-Identifier: Apache-2.0
"""Migrate guests at random, with faults, and check all of their memory.

    python -m benchmarks.soak --runs 300
    python -m benchmarks.soak --seed 17            one run again

A run is everything that follows from its seed: a guest and what it does,
its disks, one or more migrations, how they are done, what goes wrong, and
when they are given up.  After each migration all memory is compared
between source at stop and destination before start, and the guest
verifies what it holds.  What cannot be reproduced is time.
"""

import argparse
import collections
from collections.abc import Iterator
import contextlib
import dataclasses
import json
import os
from pathlib import Path
import secrets
import shutil
import subprocess
import sys
import time

from benchmarks import soak_case
from benchmarks import soak_run
from guests.errors import GuestError
from guests.synthetic import image
from nova_dedup_migrate.hypervisor import errors
from testkit import qemus
from testkit import results

#: What is counted in all runs.
ROWS = (
    'migrations',
    'migrations between series',
    'migrations given up',
    'pages from storage',
    'pages compressed',
    'pages read in post-copy',
    'pages compared',
)
_BUSY = 'while kill -0 $PPID 2>/dev/null; do :; done'
#: With so many runs, chance leaves out none of them.
CERTAIN = 50


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog='soak', description=__doc__.split('\n')[0], allow_abbrev=False
    )
    result.add_argument(
        '--runs', type=int, help='how many (10, with --seed 1)'
    )
    result.add_argument(
        '--seed',
        type=int,
        help='of the first run; each of the others has the next number',
    )
    result.add_argument(
        '--output',
        type=Path,
        default=Path('build/soak'),
        help='directory for what failed runs leave (%(default)s)',
    )
    result.add_argument(
        '--keep', action='store_true', help='keep what good runs leave, too'
    )
    result.add_argument(
        '--inject',
        default='',
        metavar='FAULTS',
        help='put further faults into each destination, as no-supersede, '
        'to see the soak fail',
    )
    result.add_argument(
        '--load',
        type=int,
        default=os.cpu_count(),
        metavar='N',
        help='processes that do nothing but keep the machine busy: '
        'what waits at the wrong moment is found then (%(default)s)',
    )
    return result


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many processors busy meanwhile, and not if we are killed."""
    with contextlib.ExitStack() as stack:
        for _ in range(processes):
            process = stack.enter_context(
                subprocess.Popen(['/bin/sh', '-c', _BUSY])
            )
            stack.callback(process.kill)
        yield


def one(seed: int, arguments: argparse.Namespace, tools: dict) -> dict:
    """Run a seed; return what is written down about it."""
    case = soak_case.choose(seed)
    directory = arguments.output.absolute() / str(seed)
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    report = {'seed': seed, 'case': dataclasses.asdict(case)}
    begun = time.monotonic()
    try:
        with contextlib.closing(
            soak_run.SoakRun(case, directory, tools)
        ) as run:
            report['hops'] = run.hops
            run.run()
    except (
        errors.HypervisorError,
        GuestError,
        soak_run.Wrong,
        OSError,
        TimeoutError,
    ) as error:
        report['problem'] = f'{type(error).__name__}: {error}'
    report['seconds'] = round(time.monotonic() - begun, 1)
    (directory / 'report.json').write_text(json.dumps(report, indent=1))
    soak_run.remove_large(directory)
    if 'problem' not in report and not arguments.keep:
        shutil.rmtree(directory)
    return report


def count(report: dict) -> dict[str, int]:
    """What a run adds to the ROWS."""
    result = dict.fromkeys(ROWS, 0)
    series = report['case']['series']
    for hop in report.get('hops', ()):
        kind = 'migrations' if hop['arrived'] else 'migrations given up'
        result[kind] += 1
        result['migrations between series'] += (
            hop['arrived'] and series[0] != series[1]
        )
        for name, key in (
            ('pages compared', 'compared'),
            ('pages from storage', 'storage_pages'),
            ('pages compressed', 'compressed_pages'),
            ('pages read in post-copy', 'lazy_pages'),
        ):
            result[name] += hop.get(key, 0)
    return result


def line(number: int, report: dict) -> str:
    hops = ' '.join(soak_run.words(hop) for hop in report.get('hops', ()))
    problem = report.get('problem')
    return '%4d seed=%d %5.1f s %s [%s] %s' % (
        number,
        report['seed'],
        report['seconds'],
        'FAILED ' + problem if problem else 'ok',
        soak_case.words(report['case']),
        hops,
    )


def main(argv: list[str] | None = None) -> int:
    front = parser()
    arguments = front.parse_args(argv)
    runs = arguments.runs
    if runs is None:
        runs = 10 if arguments.seed is None else 1
    if runs < 1:
        front.error('--runs must be 1 or more')
    if arguments.load < 0:
        front.error('--load must be 0 or more')
    try:
        # each destination may get faults
        tools = {
            series: {
                'patched': qemus.of_series('faulty', series),
                'stock': qemus.of_series('stock', series),
            }
            for series in soak_case.SERIES
        }
        tools['img'] = qemus.tool(tools['10.0']['patched'], 'qemu-img')
        tools['image'] = image.guest_image()
        tools['inject'] = arguments.inject
    except (GuestError, qemus.QemuNotFound) as error:
        print(f'soak: {error}', file=sys.stderr)
        return 1
    first = arguments.seed
    if first is None:
        first = secrets.randbelow(1 << 30)
    found = results.Results(f'make soak N={runs} ARGS="--seed {first}"')
    failed: list[int] = []
    totals: collections.Counter = collections.Counter()
    try:
        for number in range(runs):
            with busy(arguments.load):
                report = one(first + number, arguments, tools)
            print(line(number + 1, report), flush=True)
            totals['runs'] += 1
            if 'problem' in report:
                failed.append(first + number)
            totals.update(count(report))
    except KeyboardInterrupt:
        print('interrupted', flush=True)
    found.add('runs', totals['runs'], '', str(runs), totals['runs'] == runs)
    found.add('runs that failed', len(failed), '', '0', not failed)
    least = int(runs >= CERTAIN)
    for name in ROWS:
        found.add(name, totals[name], '', f'at least {least}',
                  totals[name] >= least)
    print(found.text())
    found.write(arguments.output / 'report.json')
    print(arguments.output / 'report.json')
    if failed:
        print(
            'failed seeds: %s; what they left is in %s'
            % (' '.join(map(str, failed)), arguments.output)
        )
    return found.status()


if __name__ == '__main__':
    sys.exit(main())
