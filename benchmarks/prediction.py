# SPDX-License-Identifier: Apache-2.0
"""How well the planner predicts what the shared storage bench measured.

``python -m benchmarks.prediction build/shared-storage/runs.jsonl`` prints
each run beside what the planner says of the facts it would have had: the
memory in use, the hints, the rates of link, storage and guest.
"""

import argparse
from collections.abc import Iterator
import dataclasses
import json
from pathlib import Path
import sys

from benchmarks import cells
from benchmarks import options
from benchmarks import rst
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict

_PAGE = 4096
_NOT_COVERED = ('unlimited', 'failing')
#: What QEMU is told where rates adapt: benchmarks/pacing.py.
_LAST_ROUND_MS = 20


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A run and its prediction."""

    cell: str
    variant: str
    time_s: float
    link_bytes: int
    downtime_ms: int
    predicted: plan.Prediction

    @property
    def time_error(self) -> float:
        """Share of the measured time, positive: predicted too long."""
        return self.predicted.time.likely / self.time_s - 1

    @property
    def bytes_error(self) -> float:
        return self.predicted.bytes.likely / self.link_bytes - 1


def compare(path: Path) -> Iterator[Comparison]:
    """Compare the runs of a ledger (benchmarks/ledger.py)."""
    known = {(cell.name, variant.name): (cell, variant)
             for cell in cells.full() for variant in cell.variants}
    for line in path.read_text(errors='replace').splitlines():
        try:
            run = json.loads(line)
        except ValueError:
            # Cut by a kill, as the ledger allows for.
            continue
        key = run['key']
        found = known.get((key['cell'], key['variant']))
        if (found is None or 'failed' in run or not run['converged']
                or any(word in key['cell'] for word in _NOT_COVERED)):
            continue
        cell, variant = found
        given, disks = _facts(cell.options_of(variant), run, variant.dedup)
        yield Comparison(
            key['cell'], key['variant'], run['total_time_s'],
            run['link_bytes'], run['downtime_ms'],
            predict.predict(normal.normal(given), disks))


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


def _row(one: Comparison) -> list[str]:
    return [one.cell, one.variant,
            f'{one.time_s:.2f}', f'{one.predicted.time.likely:.2f}',
            f'{one.time_error * 100:+.0f} %',
            f'{one.link_bytes / 1e6:.0f}',
            f'{one.predicted.bytes.likely / 1e6:.0f}',
            f'{one.bytes_error * 100:+.0f} %',
            f'{one.downtime_ms}',
            f'{one.predicted.downtime.likely * 1000:.0f}']


def main() -> int:
    parser = argparse.ArgumentParser(
        prog='prediction', description=__doc__.split('\n')[0])
    parser.add_argument('runs', type=Path, help='a runs.jsonl')
    arguments = parser.parse_args()
    try:
        found = list(compare(arguments.runs))
    except OSError as error:
        print(f'prediction: {arguments.runs}: {error.strerror}',
              file=sys.stderr)
        return 1
    print(rst.simple(
        ['cell', 'variant', 'time, s', 'predicted', 'error', 'MB',
         'predicted', 'error', 'pause, ms', 'predicted'],
        [_row(one) for one in found]))
    for name in ('time_error', 'bytes_error'):
        errors = sorted(abs(getattr(one, name)) for one in found)
        if errors:
            print(f'{name}: median {errors[len(errors) // 2]:.0%}, '
                  f'largest {errors[-1]:.0%}, n={len(errors)}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
