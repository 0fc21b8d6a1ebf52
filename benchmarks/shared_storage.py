# SPDX-License-Identifier: Apache-2.0
"""make bench-shared-storage: the first paper's evaluation, run here.

Every cell is a guest and a link; it is migrated by stock QEMU and by ours
in turn, again and again.  What is done is kept, so that a run that was
killed goes on where it was.
"""

import argparse
import dataclasses
import datetime
import hashlib
import json
from pathlib import Path
import re
import shlex
import shutil
import sys
import time

from benchmarks import binaries
from benchmarks import cells
from benchmarks import measure
from benchmarks import publish
from benchmarks import run
from benchmarks import summary
from benchmarks.guest import disk
from benchmarks.guest import image
from benchmarks.guest.errors import GuestError
from benchmarks.ledger import Key
from benchmarks.ledger import Ledger
from nova_dedup_migrate.hypervisor import errors

NAME = 'shared-storage'
_GUESS_S = 40.0
_QUIET_S = 600.0
#: MiB; enough for a rate, and cached for the cells
_PROBE_MIB = 256


@dataclasses.dataclass(frozen=True)
class Task:
    """One run: a variant of a cell for the nth time."""

    cell: cells.Cell
    variant: cells.Variant
    repeat: int


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog='bench-shared-storage', description=__doc__, allow_abbrev=False
    )
    add = result.add_argument
    add('--quick', action='store_true', help='few cells, small guest, once')
    add(
        '--groups',
        default=','.join(cells.GROUPS),
        help='which of %(default)s',
    )
    add('--only', default='', metavar='REGEX', help='only cells so called')
    add(
        '--repeat',
        type=int,
        metavar='N',
        help='runs of each variant (default: 3, quick: 1)',
    )
    add(
        '--memory',
        type=int,
        default=768,
        metavar='MiB',
        help="the guest's memory (%(default)s)",
    )
    add('--list', action='store_true', help='print the cells and end')
    add(
        '--report-only',
        action='store_true',
        help='measure nothing, evaluate what there is',
    )
    add(
        '--quiet',
        type=float,
        metavar='CPUS',
        help='before each run, wait until other processes use at most so '
        'many processors (default: do not; at most 10 minutes)',
    )
    add('--fresh', action='store_true', help='forget what was measured')
    add('--retry-failed', action='store_true', help='do failed runs again')
    add(
        '--output',
        type=Path,
        default=Path('build') / NAME,
        metavar='DIR',
        help='folder for results (%(default)s)',
    )
    add(
        '--publish',
        type=Path,
        metavar='DIR',
        help='also write tables and plots there, as for doc/source/benchmarks',
    )
    for kind in ('stock', 'patched'):
        add(f'--{kind}-binary', metavar='FILE', help=f'the {kind} QEMU')
    return result


def chosen_cells(given) -> list[cells.Cell]:
    """The cells that are asked for; ValueError says what is wrong."""
    groups = given.groups.split(',')
    if unknown := set(groups) - set(cells.GROUPS):
        raise ValueError(f'there is no group {", ".join(sorted(unknown))}')
    try:
        wanted = re.compile(given.only)
    except re.error as error:
        raise ValueError(f'--only {given.only}: {error}') from error
    every = cells.quick() if given.quick else cells.full(given.memory)
    found = [
        cell
        for cell in every
        if cell.group in groups and wanted.search(cell.name)
    ]
    if not found:
        raise ValueError('there is no such cell')
    for cell in found:
        for variant in cell.variants:
            cell.options_of(variant).migration()
        cell.options.guest_workload()
    return found


def tasks(chosen: list[cells.Cell], repeat: int) -> list[Task]:
    """All runs in the order they are done.

    A first figure of every cell comes before the second of any.  Which
    variant begins alternates, so that none always finds the machine as
    the other one left it.
    """
    result = []
    for number in range(repeat):
        for cell in chosen:
            order = cell.variants if number % 2 == 0 else cell.variants[::-1]
            result += [Task(cell, variant, number) for variant in order]
    return result


class Bench:
    """Does what the ledger does not have yet."""

    def __init__(self, given, ledger: Ledger) -> None:
        self._output = given.output.absolute()
        self._ledger = ledger
        self._binaries = {
            kind: binaries.find(kind, getattr(given, f'{kind}_binary'))
            for kind in ('stock', 'patched')
        }
        self._digests = {
            kind: hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            for kind, path in self._binaries.items()
        }
        self._quiet = given.quiet
        self._image: image.GuestImage | None = None
        self._storage_rate = 0.0

    def prepare(self) -> None:
        """Build the guest, find out how fast storage is."""
        self._image = image.guest_image()
        probe = disk.make_disk(self._output / 'probe', mib=_PROBE_MIB)
        try:
            self._storage_rate = measure.storage_rate(probe.path)
        finally:
            shutil.rmtree(self._output / 'probe')
        print(f'storage reads {self._storage_rate / 1e6:.0f} MB/s')

    def key(self, task: Task) -> Key:
        ours = 'patched' if task.variant.dedup else 'stock'
        inputs = {
            'options': dataclasses.asdict(task.cell.options_of(task.variant)),
            'binary': self._digests[ours],
        }
        digest = hashlib.sha256(json.dumps(inputs).encode()).hexdigest()
        return Key(
            task.cell.name, task.variant.name, task.repeat, digest[:16]
        )

    def done(self, task: Task) -> dict | None:
        return self._ledger.get(self.key(task))

    def measure(self, task: Task) -> dict:
        """Run it and record the outcome, a failure too."""
        assert self._image is not None
        variant = task.variant
        options = task.cell.options_of(variant)
        binary = self._binaries['patched' if variant.dedup else 'stock']
        work = self._output / 'work'
        shutil.rmtree(work, ignore_errors=True)
        plan = run.Plan(
            name=variant.name,
            source_binary=binary,
            destination_binary=binary,
            qemu_img=binaries.tool(binary, 'qemu-img'),
            dedup=variant.dedup,
            image=self._image,
            options=options,
            directory=work,
            analyse=variant.dedup,
        )
        if self._quiet is not None:
            measure.wait_until_quiet(self._quiet, _QUIET_S)
        around = measure.Neighbours()
        begun = time.monotonic()
        try:
            kept = measure.record(run.Run(plan).run())
            problem = measure.wrong(kept)
            if problem:
                kept['failed'] = problem
        except (GuestError, errors.HypervisorError, OSError) as error:
            kept = {'failed': f'{type(error).__name__}: {error}'}
        if 'failed' in kept:
            self._keep_logs(work, task)
        kept |= {
            'wall_s': round(time.monotonic() - begun, 1),
            'neighbours': around.processors(),
            'when': datetime.datetime.now(datetime.UTC).isoformat(
                timespec='seconds'
            ),
            'storage_bytes_per_s': {
                'slow': options.storage_rate * 1e6,
                'failing': 0.0,
            }.get(options.storage, self._storage_rate),
        }
        self._ledger.add(self.key(task), kept)
        return kept

    def _keep_logs(self, work: Path, task: Task) -> None:
        name = re.sub(
            r'\W+', '-', f'{task.cell.name} {task.variant.name} {task.repeat}'
        )
        target = self._output / 'failed' / name
        shutil.rmtree(target, ignore_errors=True)
        if work.exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(work, target)


def _brief(kept: dict) -> str:
    if 'failed' in kept:
        return f'FAILED: {kept["failed"]}'
    if not kept['converged']:
        return f'did not converge: {kept["reason"]}'
    return (
        f'{kept["total_time_s"]:.1f} s, {kept["link_bytes"] / 1e6:.0f} MB, '
        f'{kept["downtime_ms"]} ms'
    )


def measure_all(bench: Bench, todo: list[Task]) -> None:
    """Measure what is missing, showing how far it is."""
    missing = [task for task in todo if bench.done(task) is None]
    if len(missing) < len(todo):
        print(f'{len(todo) - len(missing)} of {len(todo)} runs are done')
    if not missing:
        return
    bench.prepare()
    begun = time.monotonic()
    for number, task in enumerate(missing):
        spent = time.monotonic() - begun
        each = spent / number if number else _GUESS_S
        left = each * (len(missing) - number)
        print(
            f'[{len(todo) - len(missing) + number + 1}/{len(todo)}] '
            f'{task.cell.name}, {task.variant.name}, run {task.repeat + 1}: ',
            end='',
            flush=True,
        )
        kept = bench.measure(task)
        print(f'{_brief(kept)}; {left / 60:.0f} min left', flush=True)


def command(arguments: list[str]) -> str:
    """What makes these results when there are none yet."""
    kept = [word for word in arguments if word != '--report-only']
    line = f'make bench-{NAME}'
    return f'{line} ARGS={shlex.quote(shlex.join(kept))}' if kept else line


def bench(given, arguments: list[str]) -> int:
    chosen = chosen_cells(given)
    repeat = given.repeat or (1 if given.quick else 3)
    if given.list:
        for cell in chosen:
            print(cell.name, '|', ', '.join(v.name for v in cell.variants))
        return 0
    path = given.output / ('quick.jsonl' if given.quick else 'runs.jsonl')
    if given.fresh:
        path.unlink(missing_ok=True)
    given.output.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(path)
    if given.retry_failed:
        ledger.forget_failed()
    measuring = Bench(given, ledger)
    todo = tasks(chosen, repeat)
    if not given.report_only:
        measure_all(measuring, todo)
    runs: dict[str, dict[str, list[dict]]] = {}
    for task in todo:
        kept = measuring.done(task)
        if kept is not None:
            variants = runs.setdefault(task.cell.name, {})
            variants.setdefault(task.variant.name, []).append(
                {'repeat': task.repeat, **kept}
            )
    report = summary.build(chosen, runs, command(arguments))
    print()
    print(publish.text(report))
    for folder in filter(None, (given.output, given.publish)):
        publish.write(report, folder)
    return 1 if summary.failures(report) else 0


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return bench(given, words)
    except (ValueError, GuestError, errors.HypervisorError) as error:
        print(f'bench-{NAME}: {error}', file=sys.stderr)
        return 1
    except OSError as error:
        print(
            f'bench-{NAME}: {error.filename}: {error.strerror}',
            file=sys.stderr,
        )
        return 1
    except KeyboardInterrupt:
        print(f'\nbench-{NAME}: interrupted; run it again to go on',
              file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
