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

After each migration every byte of the disk is compared with the source's,
which is kept for that, and the guest verifies its memory.  Bytes of disks
are those of the link to the destination without what QEMU has sent of
memory; manifests are among them.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib
import dataclasses
import shutil
import statistics
import sys
import time

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
VARIANTS = ('stock', 'base', 'prepared', 'image', 'stock-overlay', 'overlay')
#: What each variant is compared with.
REFERENCES = {'base': 'stock', 'prepared': 'stock', 'image': 'stock',
              'overlay': 'stock-overlay'}
#: Bytes of disks on the link, against stock's, at most.
SHARE = {'base': 0.7, 'prepared': 0.2, 'image': 0.3, 'overlay': 1.05}
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
    """

    outcomes: list[migrations.Outcome] = dataclasses.field(
        default_factory=list)
    prepared: list[tuple[float, int]] = dataclasses.field(
        default_factory=list)

    def mean(self, name: str) -> float:
        return statistics.fmean(
            getattr(one, name) or 0 for one in self.outcomes)


@contextlib.contextmanager
def opened(name: str, progress: steps.Progress) -> Iterator[clouds.Cloud]:
    """Yield a lab; one that was not there is ended afterwards.

    The links of one that was there have the same rate meanwhile.

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
        for host in cloud.computes:
            host.link('migration').limit(send=_RATE, receive=_RATE)
        yield cloud
    finally:
        topology.limit(cloud)


def run(cloud: clouds.Cloud, variant: str, count: int,
        progress: steps.Progress) -> Variant:
    """Migrate one guest count times."""
    compute = client.connect(cloud).compute
    found = Variant()
    kind = 'dedup' if variant in REFERENCES else 'stock'
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
                outcome = migrations.migrate(cloud, kind, server)
            found.outcomes.append(outcome)
            progress.say(
                f'{variant}, {number + 1} of {count}: '
                f'{outcome.seconds:.1f} s, disks '
                f'{(outcome.disk_bytes or 0) / 1e6:.1f} MB, memory '
                f'{(outcome.memory_bytes or 0) / 1e6:.1f} MB')
    finally:
        instances.delete(compute, server)
    return found


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


def measure(cloud: clouds.Cloud, variants: tuple[str, ...], count: int,
            progress: steps.Progress) -> dict[str, Variant]:
    """Run all variants."""
    found = {}
    usual = cloud.settings
    instances.cache_image(cloud, instances.Disks())
    try:
        for variant in variants:
            wanted = dataclasses.replace(usual, **_SETTINGS.get(variant, {}))
            if wanted != cloud.settings:
                cloud.settings = wanted
                nova.restart_computes(cloud)
            found[variant] = run(cloud, variant, count, progress)
    finally:
        if cloud.settings != usual:
            cloud.settings = usual
            nova.restart_computes(cloud)
    return found


def judge(found: dict[str, Variant], rows: results.Results) -> None:
    """Add the rows."""
    for name, variant in found.items():
        outcomes = variant.outcomes
        problems = [problem for one in outcomes for problem in one.differing]
        wrong = sum(one.errors for one in outcomes)
        compared = sum(one.compared for one in outcomes)
        rows.add(f'{name}: bytes of disks that were compared',
                 '; '.join(problems) or compared / 1e6, 'MB', 'all equal',
                 compared > 0 and not problems)
        rows.add(f'{name}: wrong pages of memory', wrong, '', '0',
                 not wrong and all(one.verified for one in outcomes))
        stock = found.get(REFERENCES.get(name, ''))
        limit = SHARE.get(name) if stock is not None else None
        sent = variant.mean('disk_bytes')
        rows.add(f'{name}: disk on the link', sent / 1e6, 'MB',
                 'any' if limit is None else f'{limit:g} of stock or less',
                 stock is None or limit is None
                 or sent <= limit * stock.mean('disk_bytes'))
        rows.add(f'{name}: memory on the link',
                 variant.mean('memory_bytes') / 1e6, 'MB', 'any', True)
        faster = stock is not None and name != 'image'
        rows.add(f'{name}: time', variant.mean('seconds'), 's',
                 'less than stock' if faster else 'any',
                 stock is None or not faster
                 or variant.mean('seconds') < stock.mean('seconds'))
        rows.add(f'{name}: downtime', variant.mean('downtime_ms'), 'ms',
                 'any', True)
        for what, value in _building(variant):
            rows.add(f'{name}: {what}', *value, 'any', True)
        if name in REFERENCES:
            _judge_plan(name, variant, rows)


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


def _judge_plan(name: str, variant: Variant, rows: results.Results) -> None:
    built = [disk['mirrored'] is not None for one in variant.outcomes
             for disk in one.disks]
    reasons = '; '.join(dict.fromkeys(
        disk['reason'] for one in variant.outcomes for disk in one.disks
        if disk['reason']))
    if name == 'overlay':
        rows.add('overlay: built', reasons or f'{sum(built)} of {len(built)}',
                 'disks', 'any', all(built) or bool(reasons))
    else:
        rows.add(f'{name}: built', reasons or f'{sum(built)} of {len(built)}',
                 'disks', 'all', bool(built) and all(built))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=TARGET, description=__doc__.splitlines()[0],
        allow_abbrev=False)
    parser.add_argument('--quick', action='store_true',
                        help='one migration of each: ends within 15 minutes')
    parser.add_argument('--count', type=int, default=3,
                        help='migrations of each (default: %(default)s)')
    parser.add_argument('--variants', default=VARIANTS, metavar='VARIANT,...',
                        type=lambda text: tuple(text.split(',')),
                        help='of ' + ', '.join(VARIANTS))
    parser.add_argument('--lab', default='disks', metavar='NAME',
                        help='lab to use; if there is none it is brought up, '
                             'and ended afterwards (default: %(default)s)')
    given = parser.parse_args(arguments)
    if set(given.variants) - set(VARIANTS):
        parser.error('variants are ' + ', '.join(VARIANTS))
    typed = ' '.join(sys.argv[1:] if arguments is None else arguments)
    rows = results.Results(
        f'make {TARGET}' + (f' ARGS="{typed}"' if typed else ''))
    progress = steps.Progress()
    try:
        with opened(given.lab, progress) as cloud:
            found = measure(cloud, given.variants,
                            1 if given.quick else given.count, progress)
    except (errors.LabError, GuestError, RuntimeError, OSError,
            *client.ERRORS) as error:
        print(f'{TARGET}: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'{TARGET}: interrupted', file=sys.stderr)
        return 130
    judge(found, rows)
    path = settings.TOP / 'build' / TARGET / 'report.json'
    rows.write(path)
    outcomes = [one for variant in found.values()
                for one in variant.outcomes]
    print(f'\n{disk_table.show(outcomes)}\n\n{rows.text()}\n\nIn {path}.')
    return rows.status()


if __name__ == '__main__':
    sys.exit(main())
