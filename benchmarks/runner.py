# SPDX-License-Identifier: Apache-2.0
"""A bench that measures many runs, and goes on where it was killed.

    cells        what is compared, each with variants: cells.Cell is one
    Task         a variant of a cell for the nth time
    Bench        says how a task is measured and how results are written
    main         options, ledger, progress, report: all the rest

Every cell is measured with all its variants, again and again; what is done
is kept in a ledger, a line a run.
"""

import abc
import argparse
from collections.abc import Iterator
import dataclasses
import datetime
import hashlib
import json
from pathlib import Path
import re
import shlex
import sys
import time
from typing import Any

from benchmarks import measure
from guests.errors import GuestError
from testkit import results
from testkit.ledger import Key
from testkit.ledger import Ledger

_TOP = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Task:
    """One run: a variant of a cell for the nth time."""

    cell: Any
    variant: Any
    repeat: int


def tasks(chosen: list, repeat: int) -> list[Task]:
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


class Bench(abc.ABC):
    """One evaluation.

    :cvar name: as in make bench-NAME, of its files and its directory in build
    :cvar about: a sentence for --help
    :cvar repeat: runs of each variant if nothing else is said
    :cvar expected: exceptions that make a run fail, and not the program
    :cvar summary: build(cells, {cell's name: {variant's name: records}},
        command) makes the report, failures(report) has sentences about runs
        that failed, targets(report) yields (name of cell and variant,
        target, Outcome as a dict: value, limit, reached)
    :cvar publish: text(report) is for the terminal, write(report, directory)
        writes files
    """

    name = ''
    about = ''
    repeat = 1
    expected: tuple[type[BaseException], ...] = (GuestError, OSError)
    summary: Any = None
    publish: Any = None

    def add_options(self, add) -> None:  # noqa: B027
        """Add options of its own; add: as ArgumentParser.add_argument."""

    @abc.abstractmethod
    def cells(self, given) -> list:
        """The cells that are asked for; ValueError says what is wrong.

        A cell has a name and variants, which have names.
        """

    def ledger_name(self, given) -> str:
        return 'runs.jsonl'

    @abc.abstractmethod
    def inputs(self, task: Task) -> Any:
        """What decides the outcome, beside names, as values for JSON."""

    @abc.abstractmethod
    def prepare(self, given) -> None:
        """Make ready to measure; done if there is anything to measure."""

    def close(self) -> None:  # noqa: B027
        """Undo prepare."""

    def before(self, task: Task) -> None:  # noqa: B027
        """What has to be done or waited for before a run."""

    @abc.abstractmethod
    def run(self, task: Task) -> dict:
        """Do it; a record of plain values, with 'failed' if it is wrong."""

    def failed(self, task: Task) -> None:  # noqa: B027
        """Tidy up after a run that failed."""


def pattern(option: str, text: str) -> re.Pattern:
    """What a REGEX option has; ValueError says what is wrong with it."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f'{option} {text}: {error}') from error


def parser(bench: Bench) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog=f'bench-{bench.name}', description=bench.about,
        allow_abbrev=False)
    add = result.add_argument
    add('--quick', action='store_true', help='few cells, small guest, once')
    add('--only', default='', metavar='REGEX', help='only cells so called')
    add('--repeat', type=int, metavar='N',
        help=f'runs of each variant (default: {bench.repeat}, quick: 1)')
    add('--list', action='store_true', help='print the cells and end')
    add('--report-only', action='store_true',
        help='measure nothing, evaluate what there is')
    add('--fresh', action='store_true', help='forget what was measured')
    add('--retry-failed', action='store_true', help='do failed runs again')
    add('--output', type=Path, default=Path('build') / bench.name,
        metavar='DIR', help='directory for results (%(default)s)')
    add('--publish', type=Path, metavar='DIR',
        help='also write tables and plots there, as for '
             'doc/source/benchmarks/results')
    bench.add_options(add)
    return result


class _Runs:
    """What the ledger has of a bench, and what it lacks."""

    def __init__(self, bench: Bench, ledger: Ledger) -> None:
        self._bench = bench
        self._ledger = ledger

    def _key(self, task: Task) -> Key:
        digest = hashlib.sha256(
            json.dumps(self._bench.inputs(task)).encode()).hexdigest()
        return Key(task.cell.name, task.variant.name, task.repeat,
                   digest[:16])

    def get(self, task: Task) -> dict | None:
        return self._ledger.get(self._key(task))

    def measure(self, task: Task) -> dict:
        """Run it and record the outcome, a failure too."""
        self._bench.before(task)
        around = measure.Neighbours()
        begun = time.monotonic()
        try:
            kept = self._bench.run(task)
        except self._bench.expected as error:
            kept = {'failed': f'{type(error).__name__}: {error}'}
        if 'failed' in kept:
            self._bench.failed(task)
        kept |= {
            'wall_s': round(time.monotonic() - begun, 1),
            'neighbours': around.processors(),
            'when': datetime.datetime.now(datetime.UTC).isoformat(
                timespec='seconds'),
        }
        self._ledger.add(self._key(task), kept)
        return kept

    def by_variant(self, todo: list[Task]) -> dict[str, dict]:
        runs: dict[str, dict[str, list[dict]]] = {}
        for task in todo:
            kept = self.get(task)
            if kept is not None:
                variants = runs.setdefault(task.cell.name, {})
                variants.setdefault(task.variant.name, []).append(
                    {'repeat': task.repeat, **kept})
        return runs


def _brief(kept: dict) -> str:
    if 'failed' in kept:
        return f'FAILED: {kept["failed"]}'
    if not kept.get('converged', True):
        return f'did not converge: {kept["reason"]}'
    return (f'{kept["total_time_s"]:.1f} s, '
            f'{kept["link_bytes"] / 1e6:.0f} MB, {kept["downtime_ms"]} ms')


def _progress(missing: list[Task], of: int) -> Iterator[Task]:
    """Yield what is to be done, saying how far it is."""
    begun = time.monotonic()
    for number, task in enumerate(missing):
        print(f'[{of - len(missing) + number + 1}/{of}] {task.cell.name}, '
              f'{task.variant.name}, run {task.repeat + 1}: ', end='',
              flush=True)
        yield task
        each = (time.monotonic() - begun) / (number + 1)
        print(f'; {each * (len(missing) - number - 1) / 60:.0f} min left',
              flush=True)


def _measure(bench: Bench, given, runs: _Runs,
             todo: list[Task]) -> None:
    """Measure what is missing."""
    missing = [task for task in todo if runs.get(task) is None]
    if len(missing) < len(todo):
        print(f'{len(todo) - len(missing)} of {len(todo)} runs are done')
    if not missing:
        return
    try:
        bench.prepare(given)
        for task in _progress(missing, len(todo)):
            print(_brief(runs.measure(task)), end='')
    finally:
        bench.close()


def command(name: str, arguments: list[str]) -> str:
    """What makes these results when there are none yet."""
    kept = [word for word in arguments if word != '--report-only']
    line = f'make bench-{name}'
    # make takes a single $ for a variable of its own
    words = shlex.quote(shlex.join(kept)).replace('$', '$$')
    return f'{line} ARGS={words}' if kept else line


def _bench(bench: Bench, given, arguments: list[str]) -> int:
    chosen = bench.cells(given)
    if not chosen:
        raise ValueError('there is no such cell')
    if given.list:
        for cell in chosen:
            print(cell.name, '|', ', '.join(v.name for v in cell.variants))
        return 0
    given.output.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(given.output / bench.ledger_name(given))
    if given.fresh:
        ledger.clear()
    if given.retry_failed:
        ledger.forget(lambda record: 'failed' in record)
    runs = _Runs(bench, ledger)
    todo = tasks(chosen, given.repeat or (1 if given.quick
                                          else bench.repeat))
    if not given.report_only:
        _measure(bench, given, runs, todo)
    report = bench.summary.build(
        chosen, runs.by_variant(todo), command(bench.name, arguments))
    rows = _rows(bench, report, command(bench.name, arguments))
    print()
    print(bench.publish.text(report), rows.text(), sep='\n\n')
    for directory in filter(None, (given.output, given.publish)):
        bench.publish.write(report, directory)
    rows.write(_TOP / 'build' / f'bench-{bench.name}' / 'report.json')
    return rows.status()


def _rows(bench: Bench, report: dict, typed: str) -> results.Results:
    """Return the targets, those of what was measured before included."""
    rows = results.Results(typed)
    failures = bench.summary.failures(report)
    rows.add('runs that failed', '; '.join(failures) or 0, '', '0',
             not failures)
    for name, target, outcome in bench.summary.targets(report):
        less = outcome.get('less', True)
        rows.add(f'{name}: {target}', outcome['value'], '',
                 f'{outcome["limit"]:.4g} or {"less" if less else "more"}',
                 outcome['reached'])
    return rows


def main(bench: Bench, arguments: list[str] | None = None) -> int:
    """Do it; the exit status."""
    given = parser(bench).parse_args(arguments)
    words = sys.argv[1:] if arguments is None else arguments
    try:
        return _bench(bench, given, words)
    except KeyboardInterrupt:
        print(f'\nbench-{bench.name}: interrupted; run it again to go on',
              file=sys.stderr)
        return 130
    except (ValueError, *bench.expected) as error:
        said = (f'{error.filename}: {error.strerror}'
                if isinstance(error, OSError) and error.filename
                else str(error))
        print(f'bench-{bench.name}: {said}', file=sys.stderr)
        return 1
