# SPDX-License-Identifier: Apache-2.0
"""make lab-disks: Nova's block migrations in the lab, as they are and built.

Two compute hosts with disks of their own.  For each variant a guest boots,
rewrites a part of its files, so that its disk is no longer that of its
image, and migrates to and fro:

stock          strategy off: Nova's own block migration of a flat disk
base           the destination has the image in its cache
prepared       it has a replica as well (nova-dedup-migrate prepare), and
               the guest has rewritten some more since
image          it has no image in its cache; Glance has a raw snapshot of
               the instance, and the guest has rewritten some more since.
               It is built whatever is predicted, and may take longer than
               stock: Glance shares the processors of the lab
stock-overlay  strategy off, qcow2 over the image
overlay        the same with ours: the planner builds it only if enough of
               it is near
stock-busy     as stock; the guest rewrites its files while it migrates
busy           as base, with the same load
stock-web, web, stock-db, db
               as stock and base: Debian, whose web server or database is
               loaded while it migrates (lab_disk_services)

After each migration every byte of the disk is compared with the source's,
which is kept for that, and the guest verifies its memory.  A guest that is
busy or serves goes on to write, so it reads all of its files anew and
verifies them itself.
Bytes of disks are those of the link to the destination without what QEMU has
sent of memory; manifests are among them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import shutil
import statistics
import sys
import time

from benchmarks import lab_disk_services as services
from benchmarks.page_cache import guests
from guests.errors import GuestError
from guests.synthetic import console
from lab import client
from lab import cloud as clouds
from lab import disk_table
from lab import errors
from lab import guest
from lab import instances
from lab import migrations
from lab import settings
from lab import steps
from lab import topology
from lab import up
from lab.services import nova
from testkit import results

TARGET = 'lab-disks'
VARIANTS = ('stock', 'base', 'prepared', 'image', 'stock-overlay', 'overlay',
            'stock-busy', 'busy', *services.LOADS)
#: Those whose guest writes meanwhile, and those whose guest verifies its
#: files itself.
BUSY = ('stock-busy', 'busy')
_VERIFIES = (*BUSY, *services.LOADS)
#: What each variant is compared with.
REFERENCES = {'base': 'stock', 'prepared': 'stock', 'image': 'stock',
              'overlay': 'stock-overlay', 'busy': 'stock-busy',
              'web': 'stock-web', 'db': 'stock-db'}
#: Bytes of disks on the link, against stock's, at most.
SHARE = {'base': 0.7, 'prepared': 0.2, 'image': 0.3, 'overlay': 1.05,
         'busy': 0.7, 'web': 0.7, 'db': 0.7}
#: Requests a second that a guest serves meanwhile, against before.
SERVED = 0.95
#: Milliseconds that a guest stands still, more than stock's; of medians.
DOWNTIME = 20
#: Settings of the lab that are others.
_SETTINGS: dict[str, dict[str, object]] = {
    'image': {'disks': 'always'}, 'stock-overlay': {'flat': False},
    'overlay': {'flat': False}}
_NAME = 'disks-'
_CACHE = 'var/lib/nova/instances/_base'
#: KB/s and seconds of rewriting: at first, and after preparing.
_OWN = 8000, 16
_SINCE = 800, 10
_RATE = 100 * settings.MBIT


@dataclasses.dataclass
class Variant:
    """What one came to.

    :ivar prepared: (seconds, bytes on the link) of each preparation
    :ivar served: of each migration of a guest that serves
    """

    outcomes: list[migrations.Outcome] = dataclasses.field(
        default_factory=list)
    prepared: list[tuple[float, int]] = dataclasses.field(
        default_factory=list)
    served: list[services.Served] = dataclasses.field(default_factory=list)

    def mean(self, name: str) -> float:
        return statistics.fmean(
            getattr(one, name) or 0 for one in self.outcomes)

    @property
    def downtime(self) -> float | None:
        """The median in ms, None if libvirt has none."""
        known = [one.downtime_ms for one in self.outcomes
                 if one.downtime_ms is not None]
        return statistics.median(known) if known else None


@contextlib.contextmanager
def opened(name: str, progress: steps.Progress) -> Iterator[clouds.Cloud]:
    """Yield a lab; one that was not there is ended afterwards.

    The links of one that was there have their rate again afterwards.

    :raises LabError: it is of another profile, or cannot be brought up
    """
    clouds.forget_proxies()
    directory = settings.TOP / 'build' / (
        'lab' if name == 'stack' else 'lab-' + name)
    wanted = settings.Settings('local', migration_rate=_RATE, disks='auto',
                               flat=True)
    try:
        cloud = clouds.Cloud.load(name, directory)
    except errors.LabError:
        cloud = up.up(name, directory, wanted, progress)
        try:
            yield cloud
        finally:
            cloud.lab.destroy()
        return
    if not (cloud.settings.builds_disks and cloud.settings.flat):
        raise errors.LabError(
            f'lab {name} is no lab with --profile local --flat; end it with '
            'make lab-down, or give --lab')
    try:
        yield cloud
    finally:
        topology.limit(cloud)


def run(cloud: clouds.Cloud, variant: str, count: int, write: int,
        progress: steps.Progress, found: Variant) -> None:
    """Migrate one guest count times.

    :param write: KB/s that it writes meanwhile, if the variant is of BUSY
    :param found: gets what each migration came to
    """
    compute = client.connect(cloud).compute
    kind = _kind(variant)
    server = instances.boot(cloud, _NAME + variant, kind, instances.Disks())
    try:
        server = instances.wait_active(compute, server)
        console.ready(_terminal(cloud, server))
        _rewrite(cloud, server, *_OWN)
        for number in range(count):
            if variant == 'prepared':
                found.prepared.append(prepare(cloud, server))
                _rewrite(cloud, server, *_SINCE)
            with contextlib.ExitStack() as stack:
                if variant == 'image':
                    stack.enter_context(snapshot(cloud, server))
                    _rewrite(cloud, server, *_SINCE)
                    stack.enter_context(empty_cache(cloud, server))
                outcome = migrations.migrate(
                    cloud, kind, server,
                    write=write if variant in BUSY else None)
            found.outcomes.append(outcome)
            _say(variant, number + 1, count, outcome, progress)
    finally:
        instances.delete(compute, server)


def serve(cloud: clouds.Cloud, variant: str, count: int,
          progress: steps.Progress, found: Variant) -> None:
    """Migrate one guest that serves count times, likewise."""
    with services.guest(cloud, _NAME + variant, _kind(variant),
                        services.LOADS[variant]) as migrate:
        for number in range(count):
            outcome, served = migrate()
            found.outcomes.append(outcome)
            found.served.append(served)
            _say(variant, number + 1, count, outcome, progress)


def _kind(variant: str) -> str:
    return 'dedup' if variant in REFERENCES else 'stock'


def _say(variant: str, number: int, count: int, outcome: migrations.Outcome,
         progress: steps.Progress) -> None:
    progress.say(f'{variant}, {number} of {count}: {outcome.seconds:.1f} s, '
                 f'disks {(outcome.disk_bytes or 0) / 1e6:.1f} MB, memory '
                 f'{(outcome.memory_bytes or 0) / 1e6:.1f} MB')


def _terminal(cloud: clouds.Cloud, server):
    server = client.connect(cloud).compute.get_server(server.id)
    return guest.console(instances.host_of(cloud, server), server.id)


def _rewrite(cloud: clouds.Cloud, server, rate: int, seconds: int) -> None:
    terminal = _terminal(cloud, server)
    console.write(terminal, rate)
    time.sleep(seconds)
    console.rest(terminal)


@contextlib.contextmanager
def snapshot(cloud: clouds.Cloud, server) -> Iterator[None]:
    """Have a snapshot in Glance; of a flat disk it is raw."""
    connection = client.connect(cloud)
    made = connection.compute.create_server_image(
        server.id, _NAME + 'snapshot', wait=True, timeout=600)
    try:
        instances.wait_idle(connection.compute, server)
        yield
    finally:
        connection.image.delete_image(made.id, ignore_missing=True)


@contextlib.contextmanager
def empty_cache(cloud: clouds.Cloud, server) -> Iterator[None]:
    """Take away the cached images of the host a server will come to."""
    host = _other(cloud, server)
    away = host.directory / 'cache-away'
    (host.directory / _CACHE).rename(away)
    (host.directory / _CACHE).mkdir()
    try:
        yield
    finally:
        # What Nova has put there meanwhile is there already.
        shutil.rmtree(host.directory / _CACHE)
        away.rename(host.directory / _CACHE)


def _other(cloud: clouds.Cloud, server):
    """Return the host that a server is not on."""
    server = client.connect(cloud).compute.get_server(server.id)
    source = instances.host_of(cloud, server)
    return next(one for one in cloud.computes if one.name != source.name)


def prepare(cloud: clouds.Cloud, server) -> tuple[float, int]:
    """Have the other host make a replica; seconds, bytes on the link.

    :raises LabError: the command fails
    """
    server = client.connect(cloud).compute.get_server(server.id)
    source, other = instances.host_of(cloud, server), _other(cloud, server)
    sent = source.link('migration').carried()[0]
    begun = time.monotonic()
    cloud.execute(source, 'prepare', [
        *cloud.script('nova-dedup-migrate'), 'prepare', server.id,
        '--host', other.name], timeout=600.0)
    return (time.monotonic() - begun,
            source.link('migration').carried()[0] - sent)


def measure(cloud: clouds.Cloud, given: argparse.Namespace,
            progress: steps.Progress,
            found: dict[int, dict[str, Variant]]) -> None:
    """Run all variants over each link.

    :param found: Mbit/s -> variant; gets what there is, also if it fails
    """
    usual = cloud.settings
    if set(given.variants) - set(services.LOADS):
        instances.cache_image(cloud, functools.partial(
            instances.boot, disks=instances.Disks()))
    if set(given.variants) & set(services.LOADS):
        guest.upload_debian(cloud)
        instances.cache_image(cloud, guests.boot_debian)
    try:
        for link in given.link:
            rate = link * settings.MBIT
            for host in cloud.computes:
                host.link('migration').limit(send=rate, receive=rate)
            of_link = found[link] = {}
            for variant in given.variants:
                wanted = dataclasses.replace(usual,
                                             **_SETTINGS.get(variant, {}))
                if wanted != cloud.settings:
                    cloud.settings = wanted
                    nova.restart_computes(cloud)
                of_link[variant] = Variant()
                if variant in services.LOADS:
                    serve(cloud, variant, given.count, progress,
                          of_link[variant])
                else:
                    run(cloud, variant, given.count, given.write, progress,
                        of_link[variant])
    finally:
        if cloud.settings != usual:
            cloud.settings = usual
            nova.restart_computes(cloud)


def judge(found: dict[str, Variant], rows: results.Results,
          link: int = 100) -> None:
    """Add the rows of a link of so many Mbit/s.

    Those of variants that have not come to a migration are left out.
    """
    found = {name: variant for name, variant in found.items()
             if variant.outcomes}
    for name, variant in found.items():
        _judge(f'{link} Mbit/s, {name}', name, variant,
               found.get(REFERENCES.get(name, '')), rows)


def _judge(title: str, name: str, variant: Variant, stock: Variant | None,
           rows: results.Results) -> None:
    """Add the rows of a variant.

    :param stock: what it is compared with, if that was run
    """
    outcomes = variant.outcomes
    problems = [problem for one in outcomes for problem in one.differing]
    wrong = sum(one.errors for one in outcomes)
    if name not in _VERIFIES:
        compared = sum(one.compared for one in outcomes)
        rows.add(f'{title}: bytes of disks that were compared',
                 '; '.join(problems) or compared / 1e6, 'MB', 'all equal',
                 compared > 0 and not problems)
    rows.add(f'{title}: wrong pages of memory'
             + (' and of files' if name in _VERIFIES else ''), wrong, '', '0',
             not wrong and all(one.verified for one in outcomes))
    limit = SHARE.get(name) if stock is not None else None
    sent = variant.mean('disk_bytes')
    rows.add(f'{title}: disk on the link', sent / 1e6, 'MB',
             'any' if limit is None else f'{limit:g} of stock or less',
             stock is None or limit is None
             or sent <= limit * stock.mean('disk_bytes'))
    rows.add(f'{title}: memory on the link',
             variant.mean('memory_bytes') / 1e6, 'MB', 'any', True)
    faster = stock is not None and name != 'image'
    rows.add(f'{title}: time', variant.mean('seconds'), 's',
             'less than stock' if faster else 'any',
             stock is None or not faster
             or variant.mean('seconds') < stock.mean('seconds'))
    _judge_downtime(title, variant, stock, rows)
    _judge_served(title, variant, stock, rows)
    for what, value in _building(variant):
        rows.add(f'{title}: {what}', *value, 'any', True)
    if name in REFERENCES:
        _judge_plan(title, name, variant, rows)


def _judge_downtime(title: str, variant: Variant, stock: Variant | None,
                    rows: results.Results) -> None:
    value = variant.downtime
    usual = None if stock is None else stock.downtime
    judged = usual is not None
    rows.add(f'{title}: downtime, median', 'none' if value is None else value,
             'ms', f"stock's and {DOWNTIME} or less" if judged else 'any',
             not judged or (value is not None
                            and value <= usual + DOWNTIME))


def _judge_served(title: str, variant: Variant, stock: Variant | None,
                  rows: results.Results) -> None:
    if not variant.served:
        return
    share = statistics.fmean(one.share for one in variant.served)
    rows.add(f'{title}: requests served, of before', share, '',
             'any' if stock is None else f'{SERVED:g} or more',
             stock is None or share >= SERVED)
    for when in ('before', 'meanwhile'):
        rows.add(f'{title}: 99 % of requests, {when}', 1000 * statistics.fmean(
            getattr(one, when) for one in variant.served), 'ms', 'any', True)


def _building(variant: Variant) -> Iterator[tuple[str, tuple[float, str]]]:
    if variant.prepared:
        seconds, sent = zip(*variant.prepared, strict=True)
        yield 'preparing', (statistics.fmean(seconds), 's')
        yield 'preparing, on the link', (statistics.fmean(sent) / 1e6, 'MB')
    disks = [disk for one in variant.outcomes for disk in one.disks
             if disk['build_seconds'] is not None]
    if disks:
        yield 'of the time, building', (statistics.fmean(
            disk['build_seconds'] for disk in disks), 's')
    for source in sorted({name for disk in disks
                          for name in disk['sources']}):
        yield f'from {source}', (statistics.fmean(
            disk['sources'].get(source, 0) for disk in disks) / 1e6, 'MB')


def _judge_plan(title: str, name: str, variant: Variant,
                rows: results.Results) -> None:
    built = [disk['mirrored'] is not None for one in variant.outcomes
             for disk in one.disks]
    reasons = '; '.join(dict.fromkeys(
        disk['reason'] for one in variant.outcomes for disk in one.disks
        if disk['reason']))
    may_not = name == 'overlay'
    rows.add(f'{title}: built', reasons or f'{sum(built)} of {len(built)}',
             'disks', 'any' if may_not else 'all',
             (may_not and bool(reasons)) or (bool(built) and all(built)))


def _links(text: str) -> tuple[int, ...]:
    found = tuple(map(int, text.split(',')))
    if min(found) < 1:
        raise ValueError(f'{min(found)} is less than 1')
    return found


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog=TARGET, description=__doc__.splitlines()[0],
        allow_abbrev=False)
    parser.add_argument('--quick', action='store_true',
                        help='one migration of each: ends within 15 minutes')
    parser.add_argument('--count', type=int, default=3,
                        help='migrations of each (default: %(default)s)')
    parser.add_argument('--variants', metavar='VARIANT,...',
                        type=lambda text: tuple(text.split(',')),
                        help='of %s (default: all; with --quick without %s)'
                        % (', '.join(VARIANTS), ', '.join(services.LOADS)))
    parser.add_argument('--link', type=_links, default=(100,),
                        metavar='Mbit/s,...', help='rates of the link '
                        'between the hosts, one after the other '
                        '(default: 100)')
    parser.add_argument('--write', type=int, default=200, metavar='KB/s',
                        help='that the guest of %s rewrites of its files '
                        'while it migrates (default: %%(default)s)'
                        % ' and '.join(BUSY))
    parser.add_argument('--lab', default='disks', metavar='NAME',
                        help='lab to use; if there is none it is brought up, '
                             'and ended afterwards (default: %(default)s)')
    given = parser.parse_args(arguments)
    if given.variants is None:
        given.variants = tuple(
            name for name in VARIANTS
            if not given.quick or name not in services.LOADS)
    if set(given.variants) - set(VARIANTS):
        parser.error('variants are ' + ', '.join(VARIANTS))
    if min(given.count, given.write) < 1:
        parser.error('--count and --write are at least 1')
    if given.quick:
        given.count = 1
    return given


def main(arguments: list[str] | None = None) -> int:
    given = parse(arguments)
    typed = ' '.join(sys.argv[1:] if arguments is None else arguments)
    rows = results.Results(
        f'make {TARGET}' + (f' ARGS="{typed}"' if typed else ''))
    progress = steps.Progress()
    found: dict[int, dict[str, Variant]] = {}
    problem = 'a fault of the bench, see its traceback'
    try:
        with opened(given.lab, progress) as cloud:
            measure(cloud, given, progress, found)
        problem = ''
    except (errors.LabError, GuestError, RuntimeError, OSError,
            *client.ERRORS) as error:
        problem = f'{type(error).__name__}: {error}'
    except KeyboardInterrupt:
        problem = 'interrupted'
    finally:
        # Hours of migrations are not lost with the last one.
        _report(found, problem, rows)
    if problem:
        print(f'{TARGET}: {problem}', file=sys.stderr)
    return 130 if problem == 'interrupted' else rows.status()


def _report(found: dict[int, dict[str, Variant]], problem: str,
            rows: results.Results) -> None:
    """Write the report and print the tables."""
    outcomes = [one for of_link in found.values()
                for variant in of_link.values() for one in variant.outcomes]
    rows.add('migrations that ended', problem or len(outcomes), '', 'all',
             not problem)
    for link, of_link in found.items():
        judge(of_link, rows, link)
    path = settings.TOP / 'build' / TARGET / 'report.json'
    rows.write(path)
    print(f'\n{disk_table.show(outcomes)}\n\n{rows.text()}\n\nIn {path}.')


if __name__ == '__main__':
    sys.exit(main())
