# SPDX-License-Identifier: Apache-2.0
"""Concurrent migrations: several instances, half of them each way."""

from concurrent import futures
import time

from guests.synthetic import console
from lab import client
from lab import guest
from lab import instance_checks
from lab import instances
from lab import migrations

#: Name of the trial -> instances.
SIZES = {'two-at-once': 2, 'four-at-once': 4}
_NAME = 'concurrent-%d'


def run(cloud, disks, trial):
    """Do it, and fill in a trials.Trial.

    :param disks: instances.Disks
    :raises LabError: an instance does not migrate
    """
    compute = client.connect(cloud).compute
    servers = []
    try:
        for number in range(SIZES[trial.fault]):
            servers.append(instances.wait_active(compute, instances.boot(
                cloud, _NAME % number, 'dedup', disks)))
        for server in servers:
            console.ready(guest.console(instances.host_of(cloud, server),
                                      server.id), 600.0)
        servers = _spread(cloud, servers)
        before = {one.id: one.compute_host for one in servers}
        started = time.monotonic()
        with futures.ThreadPoolExecutor(len(servers)) as pool:
            outcomes = list(pool.map(
                lambda one: migrations.migrate(cloud, 'dedup', one),
                servers))
        trial.seconds = time.monotonic() - started
        servers = [compute.get_server(one.id) for one in servers]
        trial.status = '/'.join(sorted({one.status for one in servers}))
        trial.source = trial.host = '/'.join(sorted(set(before.values())))
        trial.migration = '/'.join(sorted({
            instances.migration(compute, one).status for one in servers}))
        trial.note = '%d MB sent' % (
            sum(one.link_bytes for one in outcomes) // 10**6)
        for server in servers:
            if server.compute_host == before[server.id]:
                trial.problems.append('%s stayed' % server.name)
            trial.problems += instance_checks.failures(
                cloud, server, instances.host_of(cloud, server))
    finally:
        instances.delete(compute, *servers)


def _spread(cloud, servers):
    """Have half of them on each host; the instances as they are then."""
    compute = client.connect(cloud).compute
    for server in servers:
        count = {}
        for one in servers:
            name = compute.get_server(one.id).compute_host
            count[name] = count.get(name, 0) + 1
        here = compute.get_server(server.id).compute_host
        if count[here] > len(servers) // 2:
            migrations.migrate(cloud, 'dedup', server)
    return [compute.get_server(one.id) for one in servers]
