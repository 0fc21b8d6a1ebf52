# SPDX-License-Identifier: Apache-2.0
"""How well the planner predicts migrations that are measured.

``python -m benchmarks.prediction --migrate`` migrates a guest with each of
several workloads, by stock QEMU and by ours, over links of some rates. It
predicts each migration when it is about to begin, from what nova-compute
and the agent would know then. Facts and outcomes are kept in runs.jsonl of
--output.

``python -m benchmarks.prediction build/prediction/runs.jsonl`` predicts
these migrations again, as after a change of the planner.

``python -m benchmarks.prediction build/shared-storage/runs.jsonl`` looks
back at runs of the shared storage bench: what the planner says of the
facts as they turned out to be, the memory in use, the hints, the rates of
link, storage and guest. That is about the model alone.
"""

import argparse
from collections.abc import Iterator
import dataclasses
import math
from pathlib import Path
import re
import shutil
import sys

from benchmarks import cells
from benchmarks import options
from benchmarks import predicted_run
from benchmarks import rst
from benchmarks import run
from guests.errors import GuestError
from guests.synthetic import image
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict
from testkit import ledger
from testkit import qemus

_PAGE = 4096
_NOT_COVERED = ('unlimited', 'failing')
#: What QEMU is told where rates adapt: planner/pacing.py.
_LAST_ROUND_MS = 20


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A run and its prediction.

    time_s: infinite if it had to be cancelled, as it was never over
    """

    cell: str
    variant: str
    time_s: float
    link_bytes: int
    downtime_ms: int
    predicted: plan.Prediction
    known: facts.Facts

    @property
    def time_error(self) -> float | None:
        """Share of the measured time, positive: predicted too long.

        None if it did not end, or was not expected to.
        """
        return _error(self.predicted.time.likely, self.time_s)

    @property
    def bytes_error(self) -> float | None:
        if math.isinf(self.time_s):
            return None
        return _error(self.predicted.bytes.likely, self.link_bytes)

    @property
    def agrees(self) -> bool:
        """Whether it ended if it was expected to."""
        return math.isinf(self.time_s) != self.predicted.completes


def _error(predicted: float, measured: float) -> float | None:
    if math.isinf(predicted) or math.isinf(measured):
        return None
    return predicted / measured - 1


def compare(path: Path) -> Iterator[Comparison]:
    """Compare the runs of a ledger, of the bench's or of migrate()."""
    known = {(cell.name, variant.name): (cell, variant)
             for cell in cells.full() for variant in cell.variants}
    for kept in ledger.read(path):
        if 'facts' in kept:
            yield predicted_again(kept)
            continue
        key = kept['key']
        found = known.get((key['cell'], key['variant']))
        if (found is None or 'failed' in kept or not kept['converged']
                or any(word in key['cell'] for word in _NOT_COVERED)):
            continue
        cell, variant = found
        given, disks = _facts(cell.options_of(variant), kept, variant.dedup)
        yield Comparison(
            key['cell'], key['variant'], kept['total_time_s'],
            kept['link_bytes'], kept['downtime_ms'],
            predict.predict(normal.normal(given), disks), given)


def predicted_again(record: dict) -> Comparison:
    """Compare a run of migrate() with what the planner says of its facts."""
    known = normal.normal(predicted_run.facts_of(record['facts']))
    time_s = record['time_s']
    return Comparison(
        record['cell'], record['variant'],
        math.inf if time_s is None else time_s, record['link_bytes'],
        record['downtime_ms'],
        predict.predict(known, known.disks
                        if record['variant'] == 'dedup' else ()), known)


def _facts(asked: options.Options, run: dict, dedup: bool) -> tuple:
    """The facts of a run, and the disks that are read."""
    pages = run['pages']
    hints = run['source_statistics']['record_pages'] if dedup else 0
    in_use = (pages['peer'] + pages['storage']) * _PAGE
    total = in_use + pages['zero'] * _PAGE
    # What was sent again counts in pages, and was not there twice.
    in_use = min(in_use, asked.memory << 20)
    slow = asked.storage == 'slow'
    disk = facts.Disk(
        'disk', 'vda', facts.SHARED, size=1 << 30,
        storage_rate=(asked.storage_rate * 1e6 if slow
                      else run['storage_bytes_per_s']))
    start, last = asked.start_link or asked.link, asked.wire or asked.link
    writes = asked.workload in options.WRITERS
    on_disk = asked.workload in ('pagecache-writer', 'small-files', 'mixed')
    return facts.Facts(
        guest=facts.Guest(
            memory=max(total, asked.memory << 20),
            resident=in_use + predict.OWN, hint_pages=hints,
            dirty_rate=asked.write_rate * 1e6 if writes else 0.0,
            disk_write_rate=asked.write_rate * 1e6 if on_disk else 0.0),
        disks=(disk,), source=facts.End('source', True),
        destination=facts.End('destination', True),
        link=facts.Link(configured=start * 125e3 or None,
                        measured=last * 125e3 or None),
        options=facts.Options(
            downtime_ms=_LAST_ROUND_MS if asked.start_link else 300,
            postcopy=asked.postcopy, auto_converge=asked.auto_converge,
            multifd_channels=asked.multifd)), (disk,) if dedup else ()


def migrate(memory: int, links: list[int], only: re.Pattern,
            repeat: int, output: Path) -> Iterator[Comparison]:
    """Migrate, and compare with what was predicted before.

    :param memory: MiB
    :param links: Mbit/s
    :param only: cells so called
    :param output: directory for disks and logs, and runs.jsonl
    """
    work = output / 'work'
    output.mkdir(parents=True, exist_ok=True)
    guest = image.guest_image()
    for _ in range(repeat):
        for cell in predicted_run.cells(memory, links):
            if not only.search(cell.name):
                continue
            for variant, kind in (('stock', 'stock'), ('dedup', 'patched')):
                binary = qemus.find(kind)
                shutil.rmtree(work, ignore_errors=True)
                one = predicted_run.PredictedRun(run.Plan(
                    variant, binary, binary,
                    qemus.tool(binary, 'qemu-img'), variant == 'dedup',
                    guest, cell.options, work, analyse=False))
                try:
                    result = one.run()
                except (GuestError, errors.HypervisorError) as error:
                    print(f'{cell.name}, {variant}: {error}',
                          file=sys.stderr)
                    continue
                record = {
                    'cell': cell.name, 'variant': variant,
                    'time_s': (result.total_time_s if result.converged
                               else None),
                    'link_bytes': result.link_bytes,
                    'downtime_ms': result.downtime_ms,
                    'facts': dataclasses.asdict(one.known)}
                ledger.append(output / 'runs.jsonl', record)
                yield predicted_again(record)


def _row(one: Comparison) -> list[str]:
    return [one.cell, one.variant,
            _seconds(one.time_s), _seconds(one.predicted.time.likely),
            _percent(one.time_error),
            f'{one.link_bytes / 1e6:.0f}',
            _megabytes(one.predicted.bytes.likely),
            _percent(one.bytes_error),
            f'{one.downtime_ms}',
            _milliseconds(one.predicted.downtime.likely),
            'yes' if one.time_s in one.predicted.time
            and one.link_bytes in one.predicted.bytes else 'no']


def _seconds(value: float) -> str:
    return 'never' if math.isinf(value) else f'{value:.2f}'


def _megabytes(value: float) -> str:
    return '-' if math.isinf(value) else f'{value / 1e6:.0f}'


def _milliseconds(value: float) -> str:
    return '-' if math.isinf(value) else f'{value * 1000:.0f}'


def _percent(value: float | None) -> str:
    return '-' if value is None else f'{value * 100:+.0f} %'


def _known(one: Comparison) -> list[str]:
    guest = one.known.guest
    disk = one.known.disks[0]
    return [one.cell, one.variant,
            _megabytes(guest.in_use or guest.resident),
            _megabytes(guest.in_use_error),
            _megabytes(guest.hint_pages * guest.page_size),
            f'{guest.dirty_rate / 1e6:.1f}',
            f'{(guest.disk_write_rate or 0) / 1e6:.1f}',
            _megabytes(disk.storage_rate or 0)]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog='prediction', description=__doc__.split('\n')[0])
    parser.add_argument('runs', type=Path, nargs='?', help='a runs.jsonl')
    parser.add_argument('--migrate', action='store_true',
                        help='migrate now instead of looking back')
    parser.add_argument('--memory', type=int, default=512, metavar='MiB',
                        help="the guests' memory (%(default)s)")
    parser.add_argument('--links', default='100,200', metavar='Mbit/s,...',
                        help='rates of the link (%(default)s)')
    parser.add_argument('--only', default='', metavar='REGEX',
                        help='only cells so called')
    parser.add_argument('--repeat', type=int, default=1, metavar='N',
                        help='migrations of each kind (%(default)s)')
    parser.add_argument('--output', type=Path, metavar='DIR',
                        default=Path('build/prediction'),
                        help='directory for disks and logs (%(default)s)')
    return parser


def _print(found: list[Comparison], facts_too: bool) -> None:
    if facts_too:
        print(rst.simple(
            ['cell', 'variant', 'in use, MB', '+-', 'hints',
             'writes, MB/s', 'to disk', 'storage'],
            [_known(one) for one in found]))
    print(rst.simple(
        ['cell', 'variant', 'time, s', 'predicted', 'error', 'MB',
         'predicted', 'error', 'downtime, ms', 'predicted', 'in band'],
        [_row(one) for one in found]))
    for name in ('time_error', 'bytes_error'):
        of_all = sorted(abs(error) for one in found
                        if (error := getattr(one, name)) is not None)
        if of_all:
            print(f'{name}: median {of_all[len(of_all) // 2]:.0%}, '
                  f'largest {of_all[-1]:.0%}, '
                  f'{sum(error <= 0.25 for error in of_all)} of '
                  f'{len(of_all)} within 25 %')
    print(f'end foreseen: {sum(one.agrees for one in found)} '
          f'of {len(found)}')


def main() -> int:
    given = _parser().parse_args()
    if given.migrate == (given.runs is not None):
        print('prediction: either a runs.jsonl or --migrate',
              file=sys.stderr)
        return 2
    found = []
    try:
        for one in (migrate(given.memory,
                            [int(rate) for rate in given.links.split(',')],
                            re.compile(given.only), given.repeat,
                            given.output.absolute())
                    if given.migrate else compare(given.runs)):
            found.append(one)
            if given.migrate:
                print(*_row(one), sep='  ', flush=True)
    except (OSError, ValueError, re.error, GuestError,
            qemus.QemuNotFound) as error:
        print(f'prediction: {error}', file=sys.stderr)
        return 1
    _print(found, given.migrate)
    return 0


if __name__ == '__main__':
    sys.exit(main())
