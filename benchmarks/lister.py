# SPDX-License-Identifier: Apache-2.0
"""make bench-lister: what it takes a guest to list its page cache.

A guest fills its page cache with files, or uses files as a machine in use
does, and lists the cache several times. What is listed is compared with the
guest's memory and disk, and with the pages its kernel calls clean.
"""

import argparse
import contextlib
import dataclasses
import json
import os
from pathlib import Path
import re
import sys
import tempfile

from benchmarks import rst
from benchmarks import spread
from guests.errors import GuestError
from guests.lister import rig
from testkit import qemus
from testkit import results as reports

NAME = 'lister'
#: Seconds that the lister may take for each GiB, and what it has to find
TARGET_S = 0.25
TARGET_COVERAGE = 0.95
_GIB = 1 << 30
_TOP = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Case:
    """What a guest has in its page cache.

    :ivar files: how many
    :ivar kib: the size of each
    :ivar forgotten: names are dropped from the kernel's cache, data is not
    :ivar rounds: how often each file is used; the cache is then that of a
        machine in use, with few pages to an extent
    """

    system: str
    files: int
    kib: int
    forgotten: bool = False
    rounds: int = 0

    @property
    def name(self) -> str:
        text = f'{self.system}, {self.files} files of {self.kib} KiB'
        if self.rounds:
            text += ', in use'
        return text + ', names dropped' if self.forgotten else text


@dataclasses.dataclass(frozen=True)
class Listed:
    """One listing.

    :ivar seconds: by the guest's clock
    :ivar cpu: seconds of its processor
    :ivar cached: bytes of the page cache, listed or not
    :ivar memory: bytes the lister took
    :ivar read: bytes it caused to be read from disks
    """

    seconds: float
    cpu: float
    cached: int
    pages: int
    extents: int
    memory: int
    read: int
    coverage: float
    wrong: int

    @property
    def per_gib(self) -> float:
        return self.seconds * _GIB / max(1, self.cached)


def cases(mib: int) -> list[Case]:
    """The cases with so much page cache."""
    large, small = mib // 5, mib * 1024 // 300
    return [
        Case('ext4', large, 5120),
        Case('ext4', small, 300),
        Case('ext4', small, 300, forgotten=True),
        Case('xfs', small, 300),
        Case('ext4', small, 300, rounds=8),
        Case('btrfs', small, 300),
        Case('btrfs', small, 300, rounds=8),
    ]


def _fill(guest: rig.Guest, case: Case) -> None:
    if case.system == 'btrfs':
        guest.run('more-modules', timeout=900)
    guest.run(f'mount -t {case.system} /dev/vda /mnt && mkdir /mnt/files')
    if case.rounds:
        guest.run(
            f'helper age /mnt/files {case.files} {case.kib} {case.rounds}',
            timeout=1800,
        )
        return
    guest.run(
        f'dd if=/dev/urandom of=/tmp/one bs=1k count={case.kib}; '
        f'i=0; while [ $i -lt {case.files} ]; do '
        'cat /tmp/one >/mnt/files/$i; echo $i >>/mnt/files/$i; '
        'i=$((i+1)); done; sync; rm /tmp/one',
        timeout=900,
    )
    # As a server would have it: read again after it was written.
    guest.run('echo 3 >/proc/sys/vm/drop_caches')
    guest.run('cat /mnt/files/* >/dev/null', timeout=900)
    if case.forgotten:
        guest.run('echo 2 >/proc/sys/vm/drop_caches')


def _list(guest: rig.Guest, directory: Path) -> Listed:
    before = guest.page_flags()
    found = guest.list('--time 300000')
    if found.status:
        raise GuestError(f'the listing is not whole: {found.skipped}')
    compared = guest.verify(found, directory, before)
    guest.guest.cont()
    numbers = found.numbers
    return Listed(
        seconds=numbers['us'] / 1e6,
        cpu=numbers['cpu_us'] / 1e6,
        cached=numbers['cached'] * rig.PAGE,
        pages=found.pages,
        extents=len(found.extents),
        memory=numbers['memory'],
        read=numbers['disk_bytes'],
        coverage=compared.coverage,
        wrong=len(compared.wrong),
    )


def measure(binary: Path, case: Case, mib: int, repeat: int) -> list[Listed]:
    """List a guest's page cache `repeat` times."""
    with (
        tempfile.TemporaryDirectory(prefix='lister-') as directory,
        contextlib.ExitStack() as stack,
    ):
        place = Path(directory)
        # Small file systems would have small blocks.
        options = ('-b', '4096') if case.system == 'ext4' else ()
        size = max(320, mib * 5 // 4)
        if case.system == 'btrfs' and case.rounds:
            # Its old blocks take room until the next transaction.
            size = max(640, mib * 2)
        disk = rig.make_disk(place / 'disk', size, case.system, *options)
        guest = rig.Guest(
            str(binary), [disk], memory_mib=mib * 5 // 4 + 192
        )
        stack.callback(guest.destroy)
        guest.start()
        _fill(guest, case)
        return [_list(guest, place) for _ in range(repeat)]


def table(results: dict[str, list[Listed]]) -> str:
    """A row for each case."""
    rows = []
    for name, listings in results.items():

        def show(figure, digits, listings=listings):
            return spread.of(map(figure, listings)).show(digits)

        per_gib = spread.of(one.per_gib for one in listings).median
        coverage = spread.of(one.coverage for one in listings).median
        rows.append(
            [
                name,
                show(lambda one: one.seconds, 2),
                show(lambda one: one.per_gib, 2),
                'yes' if per_gib <= TARGET_S else 'no',
                f'{coverage * 100:.2f} %',
                'yes' if coverage >= TARGET_COVERAGE else 'no',
                show(lambda one: one.extents, 0),
                show(lambda one: one.pages / max(1, one.extents), 1),
                show(lambda one: one.memory / 1e6, 1),
                show(lambda one: one.read / 1e3, 0),
                str(max(one.wrong for one in listings)),
            ]
        )
    return rst.simple(
        [
            'page cache',
            'seconds',
            'a GiB',
            f'<= {TARGET_S}',
            'coverage',
            f'>= {TARGET_COVERAGE:.0%}',
            'extents',
            'pages each',
            'MB used',
            'kB read',
            'wrong',
        ],
        rows,
    )


def judge(found: dict[str, list[Listed]], report: reports.Results) -> None:
    """Add the rows of all cases."""
    for name, listings in found.items():
        per_gib = spread.of(one.per_gib for one in listings).median
        coverage = spread.of(one.coverage for one in listings).median
        wrong = max(one.wrong for one in listings)
        report.add(f'{name}: for a GiB', per_gib, 's',
                   f'{TARGET_S:g} or less', per_gib <= TARGET_S)
        report.add(f'{name}: coverage', coverage, '',
                   f'{TARGET_COVERAGE:g} or more',
                   coverage >= TARGET_COVERAGE)
        report.add(f'{name}: pages of an extent', spread.of(
            one.pages / max(1, one.extents) for one in listings).median, '',
            'any', True)
        report.add(f'{name}: wrong pages', wrong, '', '0', not wrong)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog='bench-lister',
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument(
        '--mib',
        type=int,
        default=1024,
        help='page cache in MiB (default: %(default)s)',
    )
    parser.add_argument(
        '--repeat',
        type=int,
        default=5,
        help='listings of each cache (default: %(default)s)',
    )
    parser.add_argument(
        '--quick',
        action='store_true',
        help='256 MiB, two listings, in 3 minutes',
    )
    parser.add_argument(
        '--only',
        type=re.compile,
        default='',
        metavar='REGEX',
        help='only cases whose name has it',
    )
    parser.add_argument(
        '--output', default='build/bench-lister', metavar='DIR'
    )
    parser.add_argument('--publish', metavar='DIR')
    parser.add_argument('--stock-binary', metavar='FILE')
    args = parser.parse_args()
    if args.only and args.publish:
        parser.error('--publish is for all cases, without --only')
    if args.quick:
        args.mib, args.repeat = 256, 2
    if not 64 <= args.mib <= 16384 or args.repeat < 1:
        parser.error('--mib is 64 to 16384, --repeat at least 1')
    results: dict[str, list[Listed]] = {}
    try:
        binary = qemus.find('stock', args.stock_binary)
        for case in cases(args.mib):
            if not re.search(args.only, case.name):
                continue
            print(case.name, flush=True)
            results[case.name] = measure(
                binary, case, args.mib, args.repeat
            )
    except (GuestError, qemus.QemuNotFound) as error:
        sys.exit(f'bench-lister: error: {error}')
    print(table(results))
    text = json.dumps(
        {
            name: [dataclasses.asdict(one) for one in listings]
            for name, listings in results.items()
        },
        indent=1,
    )
    words = ' '.join(
        word
        for flag, word in (
            (args.quick, '--quick'),
            (not args.quick and args.mib != 1024, f'--mib {args.mib}'),
            (not args.quick and args.repeat != 5, f'--repeat {args.repeat}'),
        )
        if flag
    )
    command = 'make bench-lister' + (f" ARGS='{words}'" if words else '')
    report = reports.Results(command)
    judge(results, report)
    print(f'\n{report.text()}')
    report.write(_TOP / 'build' / 'bench-lister' / 'report.json')
    for directory in filter(None, (args.output, args.publish)):
        os.makedirs(directory, exist_ok=True)
        Path(directory, f'{NAME}.json').write_text(text + '\n')
        Path(directory, f'{NAME}.inc').write_text(
            f'Made with::\n\n   {command}\n\n{table(results)}\n'
        )
    return report.status()


if __name__ == '__main__':
    sys.exit(main())
