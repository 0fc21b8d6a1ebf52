# SPDX-License-Identifier: Apache-2.0
"""Migrates guests to and fro, stock and dedup in alternation.

Instances are made and migrated with calls of the Compute API alone. What
it does not tell is measured on the hosts: bytes at the migration network's
links, downtime as libvirt at the destination has it, and the content of
the guest's memory, which the guest verifies.
"""

import dataclasses
import json
import re
import time

from lab import client
from lab import errors
from lab import guest
from lab import table

#: Kind of migration -> flavor.
KINDS = {'stock': 'small-stock', 'dedup': 'small'}
_DOWNTIME = re.compile(r'^Total downtime:\s+(\d+)\s+ms', re.MULTILINE)
_LIMIT = 900


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One migration.

    :ivar seconds: from the request to status ACTIVE on the other host
    :ivar link_bytes: the source sent on the migration network
    :ivar downtime_ms: None if libvirt does not tell
    :ivar verified: bytes of the guest's memory that have the right
        content
    :ivar errors: wrong pages
    """

    kind: str
    source: str
    destination: str
    seconds: float
    link_bytes: int
    downtime_ms: int | None
    verified: int
    errors: int
    migration: str


def run(cloud, kinds, rounds, volume, keep, json_file, progress):
    """Show it; returns the exit status."""
    outcomes = measure(cloud, kinds, rounds, volume, keep, progress)
    print()
    print(show(outcomes))
    if json_file is not None:
        json_file.write_text(json.dumps(
            [dataclasses.asdict(one) for one in outcomes], indent=1) + '\n')
    return 1 if any(one.errors for one in outcomes) else 0


def measure(cloud, kinds, rounds, volume, keep, progress):
    """Boot a guest of each kind and migrate them; a list of Outcome.

    :param kinds: of KINDS
    :param rounds: migrations of each
    :param volume: they boot from Cinder volumes
    :param keep: do not delete them
    :raises LabError: one does not start, or does not arrive
    """
    for kind in kinds:
        if kind not in KINDS:
            raise errors.LabError('there is no kind %s: choose from %s' % (
                kind, ', '.join(KINDS)))
    compute = client.connect(cloud).compute
    servers, outcomes = {}, []
    try:
        for kind in kinds:
            servers[kind] = boot(cloud, 'demo-' + kind, KINDS[kind], volume)
        for kind in kinds:
            servers[kind] = wait_active(compute, servers[kind])
            terminal = guest.console(host_of(cloud, servers[kind]),
                                     servers[kind].id)
            guest.ready(terminal)
            progress.say('%s: runs on %s, its memory is filled' % (
                servers[kind].name, host_of(cloud, servers[kind]).name))
        for number in range(rounds):
            for kind in kinds:
                outcome = migrate(cloud, kind, servers[kind])
                outcomes.append(outcome)
                progress.say(
                    '%s, round %d: %.1f s, %.0f MB' % (
                        kind, number + 1, outcome.seconds,
                        outcome.link_bytes / 1e6))
    finally:
        if not keep:
            for server in servers.values():
                compute.delete_server(server, force=True)
    return outcomes


def boot(cloud, name, flavor, volume=False):
    """Ask for an instance of the lab's guest.

    :param volume: its disk is a new Cinder volume
    """
    connection = client.connect(cloud)
    compute = connection.compute
    for left in compute.servers(name='^%s$' % name):
        compute.delete_server(left, force=True)
        compute.wait_for_delete(left, interval=0.5, wait=120)
    image = connection.image.find_image(guest.IMAGE, ignore_missing=False)
    disk = {'image_id': image.id}
    if volume:
        disk = {'block_device_mapping': [{
            'boot_index': 0, 'uuid': image.id, 'source_type': 'image',
            'destination_type': 'volume', 'volume_size': 1,
            'delete_on_termination': True}]}
    return compute.create_server(
        name=name, networks='none', **disk,
        flavor_id=compute.find_flavor(flavor, ignore_missing=False).id)


def wait_active(compute, server, timeout=300.0):
    """Wait until an instance is ACTIVE.

    :raises LabError: it is not, with Nova's reason
    """
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        server = compute.get_server(server.id)
        if server.status == 'ACTIVE':
            return server
        if server.status == 'ERROR':
            raise errors.LabError('instance %s: %s' % (
                server.name, (server.fault or {}).get('message')))
        time.sleep(0.3)
    raise errors.LabError('instance %s is %s after %.0f s' % (
        server.name, server.status, timeout))


def host_of(cloud, server):
    """The lab host an instance is on."""
    return cloud.host(server.compute_host)


def migrate(cloud, kind, server):
    """Migrate an instance to wherever Nova likes; an Outcome.

    :raises LabError: it does not arrive
    """
    compute = client.connect(cloud).compute
    server = compute.get_server(server.id)
    source = host_of(cloud, server)
    sent, _received = source.link('migration').carried()
    started = time.monotonic()
    compute.live_migrate_server(server, block_migration='auto')
    server, migration = _wait(compute, server, source.name, started)
    seconds = time.monotonic() - started
    sent = source.link('migration').carried()[0] - sent
    destination = host_of(cloud, server)
    downtime = _downtime(destination, server)
    verified, wrong, _first = guest.verify(
        guest.console(destination, server.id))
    return Outcome(kind, source.name, destination.name, round(seconds, 2),
                   sent, downtime, verified, wrong, migration)


def _wait(compute, server, source, started):
    """Wait for its arrival; (server, UUID of the migration)."""
    while time.monotonic() < started + _LIMIT:
        server = compute.get_server(server.id)
        if server.status == 'ACTIVE' and server.compute_host != source:
            return server, _migration(compute, server).uuid
        if server.status == 'ERROR':
            break
        if server.status == 'ACTIVE' and server.task_state is None:
            status = _migration(compute, server).status
            if status in ('error', 'failed', 'cancelled'):
                break
        time.sleep(0.2)
    migration = _migration(compute, server)
    raise errors.LabError(
        'instance %s did not migrate from %s: it is %s, its migration %s; '
        'see make lab-logs ARGS="%s"' % (
            server.name, source, server.status, migration.status, source))


def _migration(compute, server):
    """The newest migration of an instance."""
    return max(compute.migrations(instance_uuid=server.id),
               key=lambda one: one.id)


def _downtime(host, server):
    done = host.run(['virsh', 'domjobinfo', '--completed', server.id],
                    check=False)
    found = _DOWNTIME.search(done.stdout)
    return int(found[1]) if found else None


def show(outcomes):
    """Return the table, and a line that compares the kinds."""
    text = table.text(
        ('kind', 'from', 'to', 'time s', 'link MB', 'downtime ms',
         'verified MiB', 'wrong pages'),
        [(one.kind, one.source, one.destination, '%.1f' % one.seconds,
          '%.1f' % (one.link_bytes / 1e6),
          '-' if one.downtime_ms is None else one.downtime_ms,
          one.verified >> 20, one.errors) for one in outcomes])
    means = {kind: [sum(values) / len(values) for values in zip(*(
        (one.seconds, one.link_bytes) for one in outcomes
        if one.kind == kind), strict=True)]
        for kind in {one.kind for one in outcomes}}
    if {'stock', 'dedup'} <= set(means):
        time_, bytes_ = (100 * dedup / stock for dedup, stock in zip(
            means['dedup'], means['stock'], strict=True))
        text += ('\n\ndedup took %.0f %% of the time of stock and sent '
                 '%.0f %% of the bytes' % (time_, bytes_))
    return text
