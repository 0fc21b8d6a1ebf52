# SPDX-License-Identifier: Apache-2.0
"""make bench-page-cache: the second paper's evaluation, run in the lab.

Every cell is a guest with a load and a link; it migrates with its disk
through Nova.  What is done is kept, so that a run that was killed goes on
where it was.
"""

import argparse
import dataclasses
import datetime
import hashlib
import json
from pathlib import Path
import re
import shlex
import sys
import time

from benchmarks import measure
from benchmarks import shared_storage
from benchmarks.guest.errors import GuestError
from benchmarks.ledger import Key
from benchmarks.ledger import Ledger
from benchmarks.page_cache import cells
from benchmarks.page_cache import guests
from benchmarks.page_cache import publish
from benchmarks.page_cache import summary
from benchmarks.page_cache import trial
from benchmarks.shared_storage import Task
from lab import client
from lab import cloud as clouds
from lab import errors
from lab import migrations
from lab import settings
from lab import steps
from lab import up

NAME = 'page-cache'
_EXPECTED = (errors.LabError, GuestError, RuntimeError, OSError,
             *client.ERRORS)


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog=f'bench-{NAME}', description=__doc__, allow_abbrev=False)
    add = result.add_argument
    add('--quick', action='store_true', help='few cells, small guest, once')
    add('--only', default='', metavar='REGEX', help='only cells so called')
    add('--variants', default='', metavar='REGEX',
        help='only variants so called')
    add('--repeat', type=int, default=1, metavar='N',
        help='runs of each variant (default: %(default)s)')
    add('--list', action='store_true', help='print the cells and end')
    add('--report-only', action='store_true',
        help='measure nothing, evaluate what there is')
    add('--fresh', action='store_true', help='forget what was measured')
    add('--retry-failed', action='store_true', help='do failed runs again')
    add('--lab', default='bench', metavar='NAME',
        help='lab to use, of profile local; it is brought up where there is '
             'none (default: %(default)s)')
    add('--keep', action='store_true', help='leave the lab up')
    add('--output', type=Path, default=Path('build') / NAME, metavar='DIR',
        help='folder for results (%(default)s)')
    add('--publish', type=Path, metavar='DIR',
        help='also write tables and plots there, as for '
             'doc/source/benchmarks/results')
    return result


def chosen_cells(given) -> list[cells.Cell]:
    """The cells that are asked for; ValueError says what is wrong."""
    try:
        wanted, variants = map(re.compile, (given.only, given.variants))
    except re.error as error:
        raise ValueError(f'--only, --variants: {error}') from error
    every = cells.quick() if given.quick else cells.full()
    found = [
        dataclasses.replace(cell, variants=chosen)
        for cell in every if wanted.search(cell.name)
        if (chosen := tuple(one for one in cell.variants
                            if variants.search(one.name)))
    ]
    if not found:
        raise ValueError('there is no such cell')
    return found


class Bench:
    """Does what the ledger does not have yet.

    A guest stays for all runs of its workload and variant, and goes when
    another workload begins.
    """

    def __init__(self, given, ledger: Ledger) -> None:
        self._ledger = ledger
        self._name = given.lab
        self._keep = given.keep
        self._cloud = None
        self._made = False
        self._guests: dict[tuple, guests.Guest] = {}
        self._images: set[str] = set()

    def prepare(self) -> None:
        """Have a lab."""
        clouds.forget_proxies()
        folder = settings.TOP / 'build' / ('lab-' + self._name)
        try:
            self._cloud = clouds.Cloud.load(self._name, folder)
        except errors.LabError:
            self._made = not self._keep
            self._cloud = up.up(self._name, folder,
                                settings.Settings('local'), steps.Progress())
        if self._cloud.settings.profile != 'local':
            raise errors.LabError(f'lab {self._name} is not of profile local')

    def close(self) -> None:
        """Remove the guests, and the lab if it was brought up for this."""
        if self._cloud is None:
            return
        self._forget_guests()
        if self._made:
            self._cloud.lab.destroy()

    def _forget_guests(self) -> None:
        compute = client.connect(self._cloud).compute
        for one in self._guests.values():
            compute.delete_server(one.server, force=True)
        self._guests.clear()

    def key(self, task: Task) -> Key:
        inputs = json.dumps([
            dataclasses.asdict(task.cell.workload),
            dataclasses.asdict(task.variant), guests.READ_RATE,
            guests.WEB_RATE])
        digest = hashlib.sha256(inputs.encode()).hexdigest()
        return Key(task.cell.name, task.variant.name, task.repeat,
                   digest[:16])

    def done(self, task: Task) -> dict | None:
        return self._ledger.get(self.key(task))

    def measure(self, task: Task) -> dict:
        """Run it and record the outcome, a failure too."""
        around = measure.Neighbours()
        begun = time.monotonic()
        key = task.cell.workload, task.variant
        try:
            one = self._guest(*key)
            trial.set_rate(self._cloud, task.cell.rate)
            kept = trial.run(self._cloud, one, task.variant)
            problem = trial.wrong(kept, task.variant)
            if problem:
                kept['failed'] = problem
        except _EXPECTED as error:
            kept = {'failed': f'{type(error).__name__}: {error}'}
        if 'failed' in kept and key in self._guests:
            client.connect(self._cloud).compute.delete_server(
                self._guests.pop(key).server, force=True)
        kept |= {
            'wall_s': round(time.monotonic() - begun, 1),
            'neighbours': around.processors(),
            'when': datetime.datetime.now(datetime.UTC).isoformat(
                timespec='seconds'),
        }
        self._ledger.add(self.key(task), kept)
        return kept

    def _guest(self, workload, variant) -> guests.Guest:
        key = workload, variant
        if any(other != workload for other, _ in self._guests):
            self._forget_guests()
        if key not in self._guests:
            kind = guests.GUESTS[workload.guest]
            kind.upload(self._cloud)
            name = re.sub(r'\W+', '-', f'bench-{variant.name}')
            self._guests[key] = kind.boot(self._cloud, name, variant.kind,
                                          workload)
        one = self._guests[key]
        if workload.guest not in self._images:
            # after this both hosts have the image it is based on
            trial.set_rate(self._cloud, 0)
            migrations.move(self._cloud, variant.kind, one.server)
            one.attach()
            self._images.add(workload.guest)
        return one


def command(arguments: list[str]) -> str:
    """What makes these results when there are none yet."""
    kept = [word for word in arguments if word != '--report-only']
    line = f'make bench-{NAME}'
    return f'{line} ARGS={shlex.quote(shlex.join(kept))}' if kept else line


def bench(given, arguments: list[str]) -> int:
    chosen = chosen_cells(given)
    if given.list:
        for cell in chosen:
            print(cell.name, '|', ', '.join(v.name for v in cell.variants))
        return 0
    path = given.output / 'runs.jsonl'
    if given.fresh:
        path.unlink(missing_ok=True)
    given.output.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(path)
    if given.retry_failed:
        ledger.forget_failed()
    measuring = Bench(given, ledger)
    todo = shared_storage.tasks(chosen, given.repeat)
    if not given.report_only:
        try:
            shared_storage.measure_all(measuring, todo)
        finally:
            measuring.close()
    runs: dict[str, dict[str, list[dict]]] = {}
    for task in todo:
        kept = measuring.done(task)
        if kept is not None:
            variants = runs.setdefault(task.cell.name, {})
            variants.setdefault(task.variant.name, []).append(
                {'repeat': task.repeat, **kept})
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
    except (ValueError, *_EXPECTED) as error:
        print(f'bench-{NAME}: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'\nbench-{NAME}: interrupted; run it again to go on',
              file=sys.stderr)
        return 130


if __name__ == '__main__':
    sys.exit(main())
