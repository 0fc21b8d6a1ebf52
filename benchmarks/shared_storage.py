# SPDX-License-Identifier: Apache-2.0
"""make bench-shared-storage: the first paper's evaluation, run here.

Every cell is a guest and a link; it is migrated by stock QEMU and by ours
in turn, again and again.  What is done is kept, so that a run that was
killed goes on where it was.
"""

import dataclasses
import hashlib
from pathlib import Path
import re
import shutil
import sys

from benchmarks import cells
from benchmarks import measure
from benchmarks import publish
from benchmarks import run
from benchmarks import runner
from benchmarks import summary
from benchmarks.runner import Task
from guests.errors import GuestError
from guests.synthetic import disk
from guests.synthetic import image
from nova_dedup_migrate.hypervisor import errors
from testkit import qemus

_QUIET_S = 600.0
#: MiB; enough for a rate, and cached for the cells
_PROBE_MIB = 256


def chosen_cells(given) -> list[cells.Cell]:
    """The cells that are asked for; ValueError says what is wrong."""
    groups = given.groups.split(',')
    if unknown := set(groups) - set(cells.GROUPS):
        raise ValueError(f'there is no group {", ".join(sorted(unknown))}')
    wanted = runner.pattern('--only', given.only)
    every = cells.quick() if given.quick else cells.full(given.memory)
    found = [
        cell
        for cell in every
        if cell.group in groups and wanted.search(cell.name)
    ]
    for cell in found:
        for variant in cell.variants:
            cell.options_of(variant).migration()
        cell.options.guest_workload()
    return found


class SharedStorage(runner.Bench):

    name = 'shared-storage'
    about = __doc__
    summary = summary
    publish = publish
    repeat = 3
    expected = (GuestError, errors.HypervisorError, OSError)

    def __init__(self) -> None:
        self._binaries: dict[str, Path] = {}
        self._digests: dict[str, str] = {}
        self._given = None
        self._output = Path()
        self._image: image.GuestImage | None = None
        self._storage_rate = 0.0

    def add_options(self, add) -> None:
        add('--groups', default=','.join(cells.GROUPS),
            help='which of %(default)s')
        add('--memory', type=int, default=768, metavar='MiB',
            help="the guest's memory (%(default)s)")
        add('--quiet', type=float, metavar='CPUS',
            help='before each run, wait until other processes use at most '
                 'so many processors (default: do not; at most 10 minutes)')
        for kind in ('stock', 'patched'):
            add(f'--{kind}-binary', metavar='FILE', help=f'the {kind} QEMU')

    def cells(self, given) -> list[cells.Cell]:
        self._given = given
        self._output = given.output.absolute()
        return chosen_cells(given)

    def ledger_name(self, given) -> str:
        return 'quick.jsonl' if given.quick else 'runs.jsonl'

    def _binary(self, kind: str) -> Path:
        if kind not in self._binaries:
            self._binaries[kind] = qemus.find(
                kind, getattr(self._given, f'{kind}_binary'))
            self._digests[kind] = hashlib.sha256(
                self._binaries[kind].read_bytes()).hexdigest()[:16]
        return self._binaries[kind]

    def inputs(self, task: Task) -> dict:
        ours = _kind(task)
        self._binary(ours)
        return {
            'options': dataclasses.asdict(task.cell.options_of(task.variant)),
            'binary': self._digests[ours],
        }

    def prepare(self, given) -> None:
        """Build the guest, find out how fast storage is."""
        self._image = image.guest_image()
        probe = disk.make_disk(self._output / 'probe', mib=_PROBE_MIB)
        try:
            self._storage_rate = measure.storage_rate(probe.path)
        finally:
            shutil.rmtree(self._output / 'probe')
        print(f'storage reads {self._storage_rate / 1e6:.0f} MB/s')

    def before(self, task: Task) -> None:
        if self._given.quiet is not None:
            measure.wait_until_quiet(self._given.quiet, _QUIET_S)

    @property
    def _work(self) -> Path:
        return self._output / 'work'

    def run(self, task: Task) -> dict:
        assert self._image is not None
        variant = task.variant
        options = task.cell.options_of(variant)
        binary = self._binary(_kind(task))
        shutil.rmtree(self._work, ignore_errors=True)
        plan = run.Plan(
            name=variant.name,
            source_binary=binary,
            destination_binary=binary,
            qemu_img=qemus.tool(binary, 'qemu-img'),
            dedup=variant.dedup,
            image=self._image,
            options=options,
            directory=self._work,
            analyse=variant.dedup,
        )
        kept = measure.record(run.Run(plan).run())
        problem = measure.wrong(kept)
        if problem:
            kept['failed'] = problem
        return kept | {
            'storage_bytes_per_s': {
                'slow': options.storage_rate * 1e6,
                'failing': 0.0,
            }.get(options.storage, self._storage_rate)}

    def failed(self, task: Task) -> None:
        """Keep the logs."""
        name = re.sub(
            r'\W+', '-', f'{task.cell.name} {task.variant.name} {task.repeat}'
        )
        target = self._output / 'failed' / name
        shutil.rmtree(target, ignore_errors=True)
        if self._work.exists():
            target.parent.mkdir(exist_ok=True)
            shutil.copytree(self._work, target)


def _kind(task: Task) -> str:
    """The QEMU it takes."""
    return 'patched' if task.variant.dedup else 'stock'


def main(arguments: list[str] | None = None) -> int:
    return runner.main(SharedStorage(), arguments)


if __name__ == '__main__':
    sys.exit(main())
