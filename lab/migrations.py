# SPDX-License-Identifier: Apache-2.0
"""Migrating one instance, and what came of it."""

import contextlib
import dataclasses
import json
import re
import time

from guests.synthetic import console
from lab import client
from lab import disk_checks
from lab import errors
from lab import guest
from lab import instances

_DOWNTIME = re.compile(r'^Total downtime:\s+(\d+)\s+ms', re.MULTILINE)
_LIMIT = 900
_OPERATIONS = 'var/lib/nova/dedup_migrate/operations'
#: Seconds until a report is closed, after Nova is done.
_CLOSING = 20


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One migration.

    :ivar kind: of instances.KINDS
    :ivar seconds: from the request to status ACTIVE on the other host
    :ivar link_bytes: the source sent on the migration network
    :ivar downtime_ms: None if libvirt does not tell
    :ivar verified: bytes of the guest's memory that have the right
        content
    :ivar errors: wrong pages
    :ivar migration: its UUID
    :ivar strategy: strategy_used of the report, '' where there is none
    :ivar reason: its fallback_reason
    :ivar memory_bytes: its link_bytes, of link_bytes what memory took; None
        where there is no report
    :ivar pages: its pages: peer, zero, storage
    :ivar page_cache: its page_cache, what the guest said it caches; None
        where the guest was not to be asked
    :ivar content_index: its content_index, what was found on the disks
    :ivar prediction_error: its prediction_error; None where nothing was
        predicted
    :ivar disks: its disks, those of a block migration that were, or might
        have been, built at the destination
    :ivar compared: bytes of disks that were compared with the source's
    :ivar differing: what of them was not equal, sentences
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
    strategy: str = ''
    reason: str = ''
    memory_bytes: int | None = None
    pages: dict = dataclasses.field(default_factory=dict)
    page_cache: dict | None = None
    content_index: dict | None = None
    prediction_error: dict | None = None
    disks: list = dataclasses.field(default_factory=list)
    compared: int = 0
    differing: tuple = ()

    @property
    def disk_bytes(self):
        """What else went over the link, most of it copies of disks."""
        if self.memory_bytes is None:
            return None
        return max(0, self.link_bytes - self.memory_bytes)


def migrate(cloud, kind, server, lister=None, write=None):
    """Migrate an instance to wherever Nova likes; an Outcome.

    :param lister: what happens to the lister in the guest meanwhile, of
        console.LISTER_FAULTS; afterwards it goes on
    :param write: KB/s that the guest rewrites of its files meanwhile; then
        it verifies what is on its disks as well, instead of the lab
    :raises LabError: it does not arrive
    """
    server = client.connect(cloud).compute.get_server(server.id)
    if lister is not None:
        console.lister(guest.console(instances.host_of(cloud, server),
                                     server.id), lister)
    if write is not None:
        console.write(guest.console(instances.host_of(cloud, server),
                                    server.id), write)
    moved = move(cloud, kind, server, compare=write is None)
    terminal = guest.console(cloud.host(moved.destination), server.id)
    if lister in ('hang', 'kill'):
        console.lister(terminal, 'go')
    if write is not None:
        console.rest(terminal)
    verified, wrong, _first = console.verify(terminal, write is not None)
    return dataclasses.replace(moved, verified=verified, errors=wrong)


def move(cloud, kind, server, compare=False):
    """Migrate it and leave it alone; an Outcome of a guest not verified.

    :param compare: whether to pause it after its arrival and compare its
        disks, which it must not write to
    :raises LabError: it does not arrive
    """
    compute = client.connect(cloud).compute
    server = compute.get_server(server.id)
    source = instances.host_of(cloud, server)
    if instances.KINDS[kind].forgets:
        instances.forget(source, server)
    with _kept(cloud, source, server, compare) as kept:
        sent, _received = source.link('migration').carried()
        started = time.monotonic()
        compute.live_migrate_server(server, block_migration='auto')
        server, migration = _wait(compute, server, source.name, started)
        seconds = time.monotonic() - started
        sent = source.link('migration').carried()[0] - sent
        destination = instances.host_of(cloud, server)
        found = downtime(destination, server)
        compared = (disk_checks.Compared() if kept is None
                    else kept.compare(destination))
    report = report_of(source, migration)
    return Outcome(kind, source.name, destination.name, round(seconds, 2),
                   sent, found, 0, 0, migration,
                   report.get('strategy_used', ''),
                   report.get('fallback_reason', ''),
                   report.get('link_bytes'), report.get('pages', {}),
                   report.get('page_cache'), report.get('content_index'),
                   report.get('prediction_error'),
                   report.get('disks', []), compared.bytes,
                   compared.problems)


def _kept(cloud, source, server, compare):
    """Return what gives disk_checks.Kept if Nova copies the disks."""
    if cloud.settings.profile != 'local' or not compare:
        return contextlib.nullcontext()
    return disk_checks.Kept(cloud, source, server.id)


def _wait(compute, server, source, started):
    """Wait for its arrival; (server, UUID of the migration)."""
    while time.monotonic() < started + _LIMIT:
        server = compute.get_server(server.id)
        if server.status == 'ACTIVE' and server.compute_host != source:
            return server, instances.migration(compute, server).uuid
        if server.status == 'ERROR':
            break
        if server.status == 'ACTIVE' and server.task_state is None:
            status = instances.migration(compute, server).status
            if status in ('error', 'failed', 'cancelled'):
                break
        time.sleep(0.2)
    migration = instances.migration(compute, server)
    raise errors.LabError(
        'instance %s did not migrate from %s: it is %s, its migration %s; '
        'see make lab-logs ARGS="%s"' % (
            server.name, source, server.status, migration.status, source))


def downtime(host, server):
    """Return ms that an instance stood still in its last migration.

    :param host: lab host that it has come to
    :returns: None if libvirt does not tell
    """
    done = host.run(['virsh', 'domjobinfo', '--completed', server.id],
                    check=False)
    found = _DOWNTIME.search(done.stdout)
    return int(found[1]) if found else None


def report_of(host, migration):
    """Return the report of a migration as a dict, {} if there is none.

    :param host: the source
    :param migration: its UUID
    """
    path = host.directory / _OPERATIONS / (migration + '.json')
    deadline = time.monotonic() + _CLOSING
    while path.exists():
        report = json.loads(path.read_text())['report']
        if report['outcome'] != 'running' or time.monotonic() > deadline:
            return report
        time.sleep(0.2)
    return {}
