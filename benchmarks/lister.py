# SPDX-License-Identifier: Apache-2.0
"""make bench-lister: what it takes a guest to list its page cache.

A guest fills its page cache with files and lists it, by the structures of
its pages and by walking its files, several times in alternation. What is
listed is compared with the guest's memory and disk, and with the pages its
kernel calls clean.
"""

import argparse
import contextlib
import dataclasses
import json
import os
from pathlib import Path
import sys
import tempfile

from benchmarks import rst
from benchmarks import spread
from guests.errors import GuestError
from guests.lister import rig
from testkit import qemus

NAME = 'lister'
#: Lister's option --method -> the number a listing has for it
METHODS = {'pages': 1, 'files': 2}
#: Seconds that the lister may take for each GiB, and what it has to find
TARGET_S = 0.25
TARGET_COVERAGE = 0.95
_GIB = 1 << 30


@dataclasses.dataclass(frozen=True)
class Case:
    """What a guest has in its page cache.

    :ivar files: how many
    :ivar kib: the size of each
    :ivar forgotten: names are dropped from the kernel's cache, data is not
    """

    system: str
    files: int
    kib: int
    forgotten: bool = False

    @property
    def name(self) -> str:
        text = f'{self.system}, {self.files} files of {self.kib} KiB'
        return text + ', names dropped' if self.forgotten else text


@dataclasses.dataclass(frozen=True)
class Listed:
    """One listing.

    :ivar seconds: by the guest's clock
    :ivar cpu: seconds of its processor
    :ivar cached: bytes of files in the page cache
    :ivar memory: bytes the lister took
    :ivar read: bytes it caused to be read from disks
    """

    method: str
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
    ]


def _fill(guest: rig.Guest, case: Case) -> None:
    guest.run(f'mount -t {case.system} /dev/vda /mnt && mkdir /mnt/files')
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


def _list(
    guest: rig.Guest, case: Case, method: str, directory: Path
) -> Listed:
    before = guest.page_flags()
    found = guest.list(f'--method {method} --time 300000')
    if found.method != METHODS[method]:
        raise GuestError(f'listed another way: {found.skipped}')
    compared = guest.verify(found, directory, before)
    guest.guest.cont()
    numbers = found.numbers
    return Listed(
        method=method,
        seconds=numbers['us'] / 1e6,
        cpu=numbers['cpu_us'] / 1e6,
        cached=case.files * case.kib * 1024,
        pages=found.pages,
        extents=len(found.extents),
        memory=numbers['memory'],
        read=numbers['disk_bytes'],
        coverage=compared.coverage,
        wrong=len(compared.wrong),
    )


def measure(binary: Path, case: Case, mib: int, repeat: int) -> list[Listed]:
    """List a guest's page cache `repeat` times by each method."""
    with (
        tempfile.TemporaryDirectory(prefix='lister-') as directory,
        contextlib.ExitStack() as stack,
    ):
        place = Path(directory)
        # Small file systems would have small blocks.
        options = ('-b', '4096') if case.system == 'ext4' else ()
        disk = rig.make_disk(
            place / 'disk', max(320, mib * 5 // 4), case.system, *options
        )
        guest = rig.Guest(
            str(binary), [disk], memory_mib=mib * 5 // 4 + 192
        )
        stack.callback(guest.destroy)
        guest.start()
        _fill(guest, case)
        return [
            _list(guest, case, method, place)
            for _ in range(repeat)
            for method in METHODS
        ]


def table(results: dict[str, list[Listed]]) -> str:
    """A row for each case and method."""
    rows = []
    for name, listings in results.items():
        shown = name
        for method in METHODS:
            ours = [one for one in listings if one.method == method]
            if not ours:
                continue

            def show(figure, digits, ours=ours):
                return spread.of(map(figure, ours)).show(digits)

            per_gib = spread.of(one.per_gib for one in ours).median
            coverage = spread.of(one.coverage for one in ours).median
            rows.append(
                [
                    shown,
                    method,
                    show(lambda one: one.seconds, 2),
                    show(lambda one: one.per_gib, 2),
                    'yes' if per_gib <= TARGET_S else 'no',
                    f'{coverage * 100:.2f} %',
                    'yes' if coverage >= TARGET_COVERAGE else 'no',
                    show(lambda one: one.extents, 0),
                    show(lambda one: one.memory / 1e6, 1),
                    show(lambda one: one.read / 1e3, 0),
                    str(max(one.wrong for one in ours)),
                ]
            )
            shown = ''
    return rst.simple(
        [
            'page cache',
            'method',
            'seconds',
            'a GiB',
            f'<= {TARGET_S}',
            'coverage',
            f'>= {TARGET_COVERAGE:.0%}',
            'extents',
            'MB used',
            'kB read',
            'wrong',
        ],
        rows,
    )


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
        help='listings by each method (default: %(default)s)',
    )
    parser.add_argument(
        '--quick',
        action='store_true',
        help='256 MiB, two listings, in 2 minutes',
    )
    parser.add_argument(
        '--output', default='build/bench-lister', metavar='DIR'
    )
    parser.add_argument('--publish', metavar='DIR')
    parser.add_argument('--stock-binary', metavar='FILE')
    args = parser.parse_args()
    if args.quick:
        args.mib, args.repeat = 256, 2
    if not 64 <= args.mib <= 16384 or args.repeat < 1:
        parser.error('--mib is 64 to 16384, --repeat at least 1')
    results = {}
    try:
        binary = qemus.find('stock', args.stock_binary)
        for case in cases(args.mib):
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
    for directory in filter(None, (args.output, args.publish)):
        os.makedirs(directory, exist_ok=True)
        Path(directory, f'{NAME}.json').write_text(text + '\n')
        Path(directory, f'{NAME}.inc').write_text(
            f'Made with::\n\n   {command}\n\n{table(results)}\n'
        )
    return 0


if __name__ == '__main__':
    sys.exit(main())
