# SPDX-License-Identifier: Apache-2.0
"""make bench-overhead: what recording guest I/O costs.

Recording is switched off and on in turn, in one and the same QEMU, and
each figure with it is compared with the one without it just before or
after.  Measured are a guest that reads its disk past its page cache; the
same reads asked for from outside, without a guest's processor; the time
to boot; and the memory of the map.
"""

import argparse
import dataclasses
import json
from pathlib import Path
import shlex
import shutil
import sys

from benchmarks import overhead_guest
from benchmarks import overhead_report
from benchmarks import overhead_ring
from benchmarks.pairs import Pair
from guests.errors import GuestError
from nova_dedup_migrate.hypervisor import errors
from testkit import qemus

NAME = 'overhead'
PARTS = ('ring', 'guest', 'boot')


@dataclasses.dataclass
class Case:
    """What was done, and its pairs.

    pages: the pages recorded and the map's bytes afterwards, or None
    """

    part: str
    name: str
    pairs: list[Pair]
    map: dict | None = None


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog='bench-overhead', description=__doc__, allow_abbrev=False
    )
    add = result.add_argument
    add('--quick', action='store_true', help='few pairs, in 2 minutes')
    add('--parts', default=','.join(PARTS), help='which of %(default)s')
    add('--pairs', type=int, metavar='N', help='pairs (default: 40, quick: 6)')
    add(
        '--slice',
        type=float,
        default=0.5,
        metavar='SECONDS',
        help='length of a measurement (%(default)s)',
    )
    add(
        '--output',
        type=Path,
        default=Path('build') / NAME,
        metavar='DIR',
        help='directory for results (%(default)s)',
    )
    add(
        '--publish',
        type=Path,
        metavar='DIR',
        help='also write tables and plots there',
    )
    add('--patched-binary', metavar='FILE', help='the patched QEMU')
    return result


def measure(given, binary: Path, work: Path) -> list[Case]:
    """Everything that is asked for, showing how far it is."""
    parts = given.parts.split(',')
    if unknown := set(parts) - set(PARTS):
        raise ValueError(f'there is no part {", ".join(sorted(unknown))}')
    count = given.pairs or (6 if given.quick else 40)
    if count < 1 or not 0.01 <= given.slice <= 60:
        raise ValueError('give at least one pair, and 0.01 to 60 seconds')
    found = []

    def done(part, name, pairs, map=None):
        found.append(Case(part, name, pairs, map))
        print(overhead_report.brief(found[-1]), flush=True)

    if 'ring' in parts:
        for name, pairs, map in overhead_ring.measure(
            binary, work / 'ring', count, given.slice
        ):
            done('ring', name, pairs, map)
    if 'guest' in parts:
        for name, pairs, map in overhead_guest.measure(
            binary, work / 'guest', count, given.slice
        ):
            done('guest', name, pairs, map)
    if 'boot' in parts:
        boots = max(count // 4, 3)
        pairs = overhead_guest.boots(binary, work / 'boot', boots)
        done('boot', 'until memory is filled', pairs)
    return found


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    words = sys.argv[1:] if arguments is None else arguments
    work = given.output.absolute() / 'work'
    try:
        given.output.mkdir(parents=True, exist_ok=True)
        binary = qemus.find('patched', given.patched_binary)
        try:
            cases = measure(given, binary, work)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        command = f'make bench-{NAME}'
        if words:
            command += f' ARGS={shlex.quote(shlex.join(words))}'
        report = overhead_report.build(cases, command)
        (given.output / 'pairs.json').write_text(
            json.dumps([dataclasses.asdict(case) for case in cases]) + '\n'
        )
        print(f'\n{overhead_report.text(report)}')
        for directory in filter(None, (given.output, given.publish)):
            overhead_report.write(report, directory)
    except (ValueError, GuestError, errors.HypervisorError) as error:
        print(f'bench-{NAME}: {error}', file=sys.stderr)
        return 1
    except OSError as error:
        print(f'bench-{NAME}: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'\nbench-{NAME}: interrupted', file=sys.stderr)
        return 130
    return 0


if __name__ == '__main__':
    sys.exit(main())
