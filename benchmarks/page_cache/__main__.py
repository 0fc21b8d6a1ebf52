# SPDX-License-Identifier: Apache-2.0
"""make bench-page-cache: the second paper's evaluation, run in the lab.

Every cell is a guest with a load and a link; it migrates with its disk
through Nova.  What is done is kept, so that a run that was killed goes on
where it was.
"""

import dataclasses
import re
import sys

from benchmarks import runner
from benchmarks.page_cache import cells
from benchmarks.page_cache import guests
from benchmarks.page_cache import publish
from benchmarks.page_cache import rival
from benchmarks.page_cache import summary
from benchmarks.page_cache import trial
from benchmarks.runner import Task
from guests.errors import GuestError
from lab import client
from lab import cloud as clouds
from lab import errors
from lab import instances
from lab import migrations
from lab import settings
from lab import steps
from lab import up
from testkit import qemus


def chosen_cells(given) -> list[cells.Cell]:
    """The cells that are asked for; ValueError says what is wrong."""
    wanted = runner.pattern('--only', given.only)
    variants = runner.pattern('--variants', given.variants)
    every = cells.quick() if given.quick else cells.full()
    return [
        dataclasses.replace(cell, variants=chosen)
        for cell in every if wanted.search(cell.name)
        if (chosen := tuple(one for one in cell.variants
                            if variants.search(one.name)))
    ]


class PageCache(runner.Bench):
    """A guest stays for all runs of its workload and variant, and goes when
    another workload begins.
    """

    name = publish.NAME
    about = __doc__
    summary = summary
    publish = publish
    expected = (errors.LabError, GuestError, qemus.QemuNotFound,
                RuntimeError, OSError, *client.ERRORS)

    def __init__(self) -> None:
        self._cloud = None
        self._made = False
        # as an interrupted bench may have left them
        self._connections: int | None = None
        self._guests: dict[tuple, guests.Guest] = {}
        self._seeded: set[tuple[str, bool]] = set()

    def add_options(self, add) -> None:
        add('--variants', default='', metavar='REGEX',
            help='only variants so called')
        add('--lab', default='bench', metavar='NAME',
            help='lab to use, of profile local; it is brought up where there '
                 'is none (default: %(default)s)')
        add('--keep', action='store_true', help='leave the lab up')

    def cells(self, given) -> list[cells.Cell]:
        return chosen_cells(given)

    def inputs(self, task: Task) -> list:
        workload = task.cell.workload
        return [
            dataclasses.asdict(workload), dataclasses.asdict(task.variant),
            guests.READ_RATE, guests.WEB_RATE,
            *([guests.DB_RATE] if workload.load == 'db' else []),
            # directories called after the hash of what is in them
            qemus.find('patched', None).parents[1].name,
            guests.GUESTS[workload.guest].image().parent.name]

    def prepare(self, given) -> None:
        """Have a lab."""
        clouds.forget_proxies()
        directory = settings.TOP / 'build' / ('lab-' + given.lab)
        try:
            self._cloud = clouds.Cloud.load(given.lab, directory)
        except errors.LabError:
            self._made = not given.keep
            self._cloud = up.up(given.lab, directory,
                                settings.Settings('local'), steps.Progress())
        if self._cloud.settings.profile != 'local':
            raise errors.LabError(f'lab {given.lab} is not of profile local')
        rival.install(self._cloud)

    def close(self) -> None:
        """Remove the guests, and the lab if it was brought up for this."""
        if self._cloud is None:
            return
        self._forget_guests()
        if self._made:
            self._cloud.lab.destroy()
            return
        rival.remove(self._cloud)
        if self._connections:
            rival.use(self._cloud, 0)

    def _forget_guests(self) -> None:
        compute = client.connect(self._cloud).compute
        for one in self._guests.values():
            one.close()
            compute.delete_server(one.server, force=True)
        self._guests.clear()

    def before(self, task: Task) -> None:
        if any(workload != task.cell.workload
               for workload, _ in self._guests):
            self._forget_guests()
        if self._connections != task.variant.connections:
            rival.use(self._cloud, task.variant.connections)
            self._connections = task.variant.connections

    def run(self, task: Task) -> dict:
        one = self._guest(task.cell.workload, task.variant)
        trial.set_rate(self._cloud, task.cell.rate)
        kept = trial.run(self._cloud, one, task.variant)
        problem = trial.wrong(kept, task.variant)
        if problem:
            kept['failed'] = problem
        return kept

    def failed(self, task: Task) -> None:
        """Have no more to do with the guest."""
        one = self._guests.pop((task.cell.workload, task.variant), None)
        if one is not None:
            one.close()
            client.connect(self._cloud).compute.delete_server(
                one.server, force=True)

    def _guest(self, workload, variant) -> guests.Guest:
        key = workload, variant
        if key not in self._guests:
            kind = guests.GUESTS[workload.guest]
            kind.upload(self._cloud, variant.kind)
            name = re.sub(r'\W+', '-', f'bench-{variant.name}')
            self._guests[key] = kind.boot(self._cloud, name, variant.kind,
                                          workload)
        one = self._guests[key]
        # of another image for those that are not asked
        seed = workload.guest, instances.KINDS[variant.kind].index
        if seed not in self._seeded:
            # after this both hosts have the image it is based on
            trial.set_rate(self._cloud, 0)
            migrations.move(self._cloud, variant.kind, one.server)
            one.attach()
            self._seeded.add(seed)
        return one


def main(arguments: list[str] | None = None) -> int:
    return runner.main(PageCache(), arguments)


if __name__ == '__main__':
    sys.exit(main())
