# SPDX-License-Identifier: Apache-2.0
"""make lab-concurrent: twenty migrations at once, ours against Nova's.

Twenty idle guests of 128 MiB are on one host and migrate to the other all
at the same time, max_concurrent_live_migrations being raised for it; first
with our driver, which is told to use the shared storage, and then back with
LibvirtDriver.  Shown is

- whether each arrived with its memory as it was, and used the strategy,
- the most threads that nova-compute of a host had meanwhile,
- messages that RabbitMQ took (RPC calls, casts and replies), and queries
  that MariaDB was sent, for each migration: beyond what the cloud does when
  nothing migrates, and compared with LibvirtDriver.
"""

from concurrent import futures
import dataclasses
import sys
import time

from benchmarks import lab_bench
from guests.synthetic import console
from lab import client
from lab import counters
from lab import errors
from lab import guest
from lab import instances
from lab import migrations
from testkit import table
from testkit.results import Row

TARGET = 'lab-concurrent'
COUNT = 20
#: Extra spec of the guests' flavor: the planner is not to leave one out
#: because there is little to gain.
KIND = 'tracking'
STRATEGY = instances.KINDS[KIND].strategy
_NAME = 'at-once-%d'
_TIMEOUT_S = 1200.0
#: Seconds in which the cloud is watched with nothing to do.
_IDLE_S, _QUICK_IDLE_S = 60.0, 30.0
_POLL_S = 1.0
_BOOT_S = 900.0
#: What ours may take more than LibvirtDriver, for each migration.
MORE_THREADS = 3.0
MORE_MESSAGES = 40.0
MORE_QUERIES = 40.0


@dataclasses.dataclass
class Round:
    """All of them migrated once.

    :ivar seconds: from the first request until all have come to rest
    :ivar threads: the most that one nova-compute had, beyond those before
    :ivar messages: for each migration
    :ivar queries: for each migration
    :ivar stayed: names of instances that did not arrive
    :ivar ordinary: instances with another strategy, and why
    """

    driver: str
    seconds: float = 0.0
    threads: int = 0
    messages: float = 0.0
    queries: float = 0.0
    stayed: list = dataclasses.field(default_factory=list)
    ordinary: list = dataclasses.field(default_factory=list)


def boot(cloud, count, progress) -> list:
    """Have the guests run, all of them on the first host."""
    compute = client.connect(cloud).compute
    first = cloud.computes[0].name
    guest.upload_idle(cloud)
    servers: list = []
    try:
        for number in range(count):
            servers.append(instances.boot_image(
                cloud, _NAME % number, KIND, guest.IDLE_IMAGE,
                guest.IDLE_MEMORY, 1, host=first))
            # Nova gives some up if many claims on a host conflict.
            servers[number] = instances.wait_active(
                compute, servers[number], _BOOT_S)
        for server in servers:
            console.ready(guest.console(
                instances.host_of(cloud, server), server.id), _BOOT_S)
    except BaseException:
        instances.delete(compute, *servers)
        raise
    progress.say(f'{count} guests run on {first}')
    return servers


def _poll(cloud) -> dict:
    """What is asked now and then, migrations or not: {uuid: instance}."""
    return {one.id: one for one in
            client.connect(cloud).compute.servers(name='^at-once-')}


def idle(cloud, seconds) -> tuple[counters.Counters, counters.Counters]:
    """Count for a while in which nothing is done but polling."""
    before = counters.read(cloud)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        _poll(cloud)
        time.sleep(_POLL_S)
    return before, counters.read(cloud)


def _rests(server) -> bool:
    return server.status in ('ACTIVE', 'ERROR') and server.task_state is None


def migrate_all(cloud, driver, servers, quiet) -> Round:
    """Migrate all at once, each to the other host.

    :param quiet: what idle() returned
    :raises LabError: they do not come to rest
    """
    found = Round(driver.title)
    compute = client.connect(cloud).compute
    homes = {one.id: one.compute_host for one in _poll(cloud).values()}
    processes = {host.name: host.process('nova-compute')
                 for host in cloud.computes}
    usual = {name: counters.threads(one) for name, one in processes.items()}
    before = counters.read(cloud)
    started = time.monotonic()
    with (counters.ThreadSampler(processes) as sampler,
          futures.ThreadPoolExecutor(len(servers)) as pool):
        list(pool.map(
            lambda one: client.connect(cloud).compute.live_migrate_server(
                one, block_migration='auto'), servers))
        while True:
            now = _poll(cloud)
            if all(_rests(now[one.id]) for one in servers):
                break
            if time.monotonic() - started > _TIMEOUT_S:
                raise errors.LabError(
                    f'{driver.title}: after {_TIMEOUT_S:.0f} s still at it: '
                    + ', '.join(one.name for one in now.values()
                                if not _rests(one)))
            time.sleep(_POLL_S)
    found.seconds = time.monotonic() - started
    found.messages, found.queries = (
        value / len(servers)
        for value in counters.busy(quiet, before, counters.read(cloud)))
    found.threads = max(sampler.most[name] - usual[name] for name in usual)
    for server in servers:
        last = instances.migration(compute, server)
        if (now[server.id].compute_host == homes[server.id]
                or now[server.id].status != 'ACTIVE'):
            found.stayed.append(f'{server.name}: {now[server.id].status}, '
                                f'migration {last.status}')
        if driver.enabled and driver.name == 'dedup':
            report = migrations.report_of(cloud.host(homes[server.id]),
                                          last.uuid)
            used = report.get('strategy_used', 'none: there is no report')
            if used != STRATEGY:
                found.ordinary.append(
                    f'{server.name}: {used}, '
                    f'{report.get("fallback_reason", "")}')
    return found


def wrong_memory(cloud, servers) -> list[str]:
    """Instances whose guests do not find their memory as it was."""
    compute = client.connect(cloud).compute
    found = []
    for server in servers:
        host = instances.host_of(cloud, compute.get_server(server.id))
        verified, wrong, first = console.verify(
            guest.console(host, server.id))
        if wrong or not verified:
            found.append(f'{server.name}: {wrong} wrong pages, {first}')
    return found


def rows_of(ours: Round, plain: Round, wrong: list[str],
            count: int) -> list[Row]:
    def more(name, one, other, limit):
        value = round(one - other, 2)
        return Row(f'{name} for each migration, more than LibvirtDriver',
                   value, '', f'at most {limit:g}', value <= limit)

    return [
        Row('arrived, ours', count - len(ours.stayed), 'guests',
            f'{count}', not ours.stayed),
        Row('arrived, LibvirtDriver', count - len(plain.stayed), 'guests',
            f'{count}', not plain.stayed),
        Row('memory as it was', count - len(wrong), 'guests', f'{count}',
            not wrong),
        Row('ordinary migrations, ours', len(ours.ordinary), 'guests', '0',
            not ours.ordinary),
        more('threads of nova-compute', ours.threads / count,
             plain.threads / count, MORE_THREADS),
        more('messages', ours.messages, plain.messages, MORE_MESSAGES),
        more('queries', ours.queries, plain.queries, MORE_QUERIES),
    ]


def measure(cloud, quick, progress) -> list[Row]:
    compute = client.connect(cloud).compute
    rounds, wrong, servers = [], [], []
    lab_bench.use_driver(cloud, lab_bench.OURS, at_once=COUNT)
    try:
        servers = boot(cloud, COUNT, progress)
        for driver in (lab_bench.OURS, lab_bench.PLAIN):
            lab_bench.use_driver(cloud, driver, at_once=COUNT)
            quiet = idle(cloud, _QUICK_IDLE_S if quick else _IDLE_S)
            one = migrate_all(cloud, driver, servers, quiet)
            rounds.append(one)
            progress.say(f'{driver.title}: {one.seconds:.0f} s')
            for line in (*one.stayed, *one.ordinary):
                progress.say(line)
            wrong += wrong_memory(cloud, servers)
    finally:
        instances.delete(compute, *servers)
    for line in wrong:
        progress.say(line)
    print('\n' + table.text(
        ('driver', 'seconds', 'threads more', 'messages each',
         'queries each'),
        [(one.driver, f'{one.seconds:.0f}', one.threads,
          f'{one.messages:.1f}', f'{one.queries:.1f}') for one in rounds]))
    return rows_of(*rounds, wrong, COUNT)


if __name__ == '__main__':
    sys.exit(lab_bench.main(TARGET, __doc__, measure))
