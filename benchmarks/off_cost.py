# SPDX-License-Identifier: Apache-2.0
"""make lab-off-cost: our driver where it has nothing to do, against Nova's.

An idle guest of 128 MiB goes to and fro through Nova, without a limit of the
rate, in two series:

off         ``[dedup_migrate] enabled = false``, patched QEMU on both sides
stock QEMU  our driver enabled, but stock QEMU on both sides

Each pair is a migration with nova-compute of both hosts configured for
LibvirtDriver and one with it configured for ours, both the same way.  Which
is first alternates from pair to pair, and so does the way.  It is one and
the same instance throughout a series.  A nova-compute that has just been
started migrates it once before it is measured: the first migration of a
process takes up to a second longer, with either driver.

The agents of the hosts run throughout, idle.

Nova's time is from the request until the migration is ``completed``;
QEMU's is the time of libvirt's job on the source, which is that of QEMU's
migration.  Bytes are those that the source sent on the migration network.
"""

from collections.abc import Iterator
import dataclasses
import re
import statistics
import sys
import time

from benchmarks import lab_bench
from guests.synthetic import console
from lab import client
from lab import errors
from lab import guest
from lab import instances
from testkit import table
from testkit.results import Row

TARGET = 'lab-off-cost'
PAIRS, QUICK_PAIRS = 12, 3
#: Per cent that ours may take or send more than LibvirtDriver.
LIMIT = 3.0
SERIES = {
    'off': (lab_bench.OFF, ('patched', 'patched')),
    'stock QEMU': (lab_bench.OURS, ('stock', 'stock')),
}
_NAME = 'off-cost'
_TIMEOUT_S = 300.0
_POLL_S = 0.1
#: Seconds after nova-compute has started, for what it does at first.
_SETTLES_S = 5.0
_ELAPSED = re.compile(r'^Time elapsed:\s+(\d+)\s+ms', re.MULTILINE)
_FAILED = ('error', 'failed', 'cancelled')


@dataclasses.dataclass(frozen=True)
class Migration:
    """:ivar seconds: Nova's
    :ivar job_seconds: libvirt's and QEMU's, None if libvirt has none
    :ivar link_bytes: sent by the source
    """

    seconds: float
    job_seconds: float | None
    link_bytes: int


#: What is compared: name, field, unit, factor.
MEASURES = (('total time, Nova', 'seconds', 's', 1.0),
            ('total time, QEMU', 'job_seconds', 's', 1.0),
            ('sent', 'link_bytes', 'MB', 1e-6))


def migrate(cloud, server) -> Migration:
    """Migrate it to the other host.

    :raises LabError: it does not arrive
    """
    compute = client.connect(cloud).compute
    source = instances.host_of(cloud, compute.get_server(server.id))
    known = {one.id for one in compute.migrations(instance_uuid=server.id)}
    sent = source.link('migration').carried()[0]
    started = time.monotonic()
    compute.live_migrate_server(server, block_migration='auto')
    status = ''
    while status != 'completed':
        time.sleep(_POLL_S)
        status = next(
            (one.status for one in
             compute.migrations(instance_uuid=server.id)
             if one.id not in known), '')
        if status in _FAILED or time.monotonic() - started > _TIMEOUT_S:
            raise errors.LabError(
                f'the migration of instance {server.name} from '
                f'{source.name} is {status or "missing"}: see make lab-logs '
                f'ARGS={source.name}')
    seconds = time.monotonic() - started
    sent = source.link('migration').carried()[0] - sent
    there = instances.host_of(cloud, compute.get_server(server.id))
    job = _ELAPSED.search(there.run(
        ['virsh', 'domjobinfo', '--completed', server.id],
        check=False).stdout)
    return Migration(seconds, int(job[1]) / 1000 if job else None, sent)


def order(pair: int, ours: lab_bench.Driver) -> list[lab_bench.Driver]:
    """The drivers of a pair, in the order they are measured in."""
    drivers = [lab_bench.PLAIN, ours]
    return drivers if pair % 2 == 0 else drivers[::-1]


def schedule(pairs: int, ours: lab_bench.Driver
             ) -> Iterator[tuple[int, lab_bench.Driver, bool]]:
    """Yield (pair, driver, whether it is measured) of each migration."""
    used = lab_bench.PLAIN
    for pair in range(pairs):
        for driver in order(pair, ours):
            if driver != used:
                used = driver
                yield pair, driver, False
            yield pair, driver, True


def series(cloud, name, pairs, progress) -> dict[str, list[Migration]]:
    """Run one; the migrations of each driver, by its title."""
    ours, qemus = SERIES[name]
    compute = client.connect(cloud).compute
    lab_bench.use_qemus(cloud, qemus)
    lab_bench.use_driver(cloud, lab_bench.PLAIN)
    guest.upload_idle(cloud)
    server = instances.wait_active(compute, instances.boot_image(
        cloud, _NAME, 'dedup', guest.IDLE_IMAGE, guest.IDLE_MEMORY, 1))
    found: dict[str, list[Migration]] = {
        lab_bench.PLAIN.title: [], ours.title: []}
    try:
        console.ready(guest.console(instances.host_of(cloud, server),
                                    server.id))
        # the first migration of a guest has more to send
        migrate(cloud, server)
        used = lab_bench.PLAIN
        for pair, driver, measured in schedule(pairs, ours):
            if driver != used:
                lab_bench.use_driver(cloud, driver)
                used = driver
                time.sleep(_SETTLES_S)
            one = migrate(cloud, server)
            if not measured:
                continue
            found[driver.title].append(one)
            progress.say(
                f'{name}, pair {pair + 1}, {driver.title}: '
                f'{one.seconds:.2f} s, QEMU {one.job_seconds or 0:.2f} '
                f's, {one.link_bytes / 1e6:.1f} MB')
        verified, wrong, _first = console.verify(guest.console(
            instances.host_of(cloud, compute.get_server(server.id)),
            server.id))
        if wrong or not verified:
            raise errors.LabError(
                f'{name}: the guest finds {wrong} wrong pages')
    finally:
        instances.delete(compute, server)
    return found


def values(migrations: list[Migration], field: str,
           factor: float) -> list[float]:
    return [value * factor for one in migrations
            if (value := getattr(one, field)) is not None]


def compare(name: str, plain: list[Migration],
            ours: list[Migration]) -> list[Row]:
    """The rows of a series: by how much the medians differ."""
    rows = []
    for title, field, _unit, factor in MEASURES:
        ones, others = (values(each, field, factor)
                        for each in (plain, ours))
        percent = None
        if ones and others and statistics.median(ones):
            percent = round(100 * (statistics.median(others)
                                   / statistics.median(ones) - 1), 2)
        rows.append(Row(
            f'{name}: {title}, more than LibvirtDriver',
            'not known' if percent is None else percent, '%',
            f'at most {LIMIT:g}', percent is not None and percent <= LIMIT))
    return rows


def spread(name: str, found: dict[str, list[Migration]]) -> list[tuple]:
    """Lines of the table of a series: median, lowest and highest."""
    lines = []
    for driver, migrations in found.items():
        cells = []
        for _title, field, _unit, factor in MEASURES:
            got = values(migrations, field, factor)
            cells.append(f'{statistics.median(got):.2f} '
                         f'({min(got):.2f} to {max(got):.2f})'
                         if got else '-')
        lines.append((name, driver, len(migrations), *cells))
    return lines


def measure(cloud, quick, progress) -> list[Row]:
    rows, lines = [], []
    for name, (ours, _qemus) in SERIES.items():
        found = series(cloud, name, QUICK_PAIRS if quick else PAIRS,
                       progress)
        lines += spread(name, found)
        rows += compare(name, found[lab_bench.PLAIN.title],
                        found[ours.title])
    print('\n' + table.text(
        ('series', 'driver', 'migrations',
         *(f'{title}, {unit}' for title, _field, unit, _factor in MEASURES)),
        lines))
    return rows


if __name__ == '__main__':
    sys.exit(lab_bench.main(TARGET, __doc__, measure))
