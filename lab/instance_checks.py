# SPDX-License-Identifier: Apache-2.0
"""Checks of an instance, and of the hosts, after an injected fault."""

import json
import time

from guests.synthetic import console
from lab import client
from lab import disk_checks
from lab import errors
from lab import faults
from lab import guest
from nova_dedup_migrate.operations import operation

_OPERATIONS = 'var/lib/nova/dedup_migrate/operations'
#: Seconds until what Nova does after a migration is done, too.
_LATER_S = 20


def failures(cloud, server, host, survives=True):
    """Yield sentences about an instance that Nova has come to rest with.

    :param server: as the Compute API has it now
    :param host: lab host that Nova says it is on
    :param survives: whether its guest has to run
    """
    running = {one.name: faults.domain_state(one, server.id)
               for one in cloud.computes if faults.qemus(one, server.id)}
    wanted = {host.name: 'running'} if survives else {}
    if running != wanted:
        yield 'QEMUs: %s' % (', '.join(
            '%s %s' % item for item in running.items()) or 'none')
    status = 'ACTIVE' if survives else 'SHUTOFF'
    if server.status != status:
        yield 'its status in Nova is %s' % server.status
    if running == wanted and survives:
        yield from _memory(host, server)
        yield from _armed(host, server)
        if cloud.settings.builds_disks:
            yield from disk_checks.watched(host, server.id)


def _memory(host, server):
    verified, wrong, first = console.verify(guest.console(host, server.id))
    if wrong or not verified:
        yield '%d wrong pages of %d MiB: %s' % (wrong, verified >> 20, first)


def _armed(host, server):
    done = host.run(['virsh', 'qemu-monitor-command', server.id,
                     '{"execute":"query-x-dedup"}'], check=False)
    if done.returncode == 0:
        state = json.loads(done.stdout).get('return', {}).get(
            'source', {}).get('state')
        if state == 'armed':
            yield 'the source is still armed'


def leftovers(cloud, known=frozenset()):
    """Return what is where no instance needs it, a set of sentences.

    :param known: what was left before; what is new may still go away
    """
    deadline = time.monotonic() + _LATER_S
    while True:
        servers = {one.id: one.compute_host for one in
                   client.connect(cloud).compute.servers(all_projects=True)}
        found = set(_on_hosts(cloud, servers))
        found |= set(_allocations(cloud, servers))
        if cloud.settings.has_cinder:
            found |= set(_attachments(cloud, servers))
        if not found - known or time.monotonic() > deadline:
            return found - known
        time.sleep(1)


def _on_hosts(cloud, servers):
    for host in cloud.computes:
        ours = {uuid for uuid, name in servers.items() if name == host.name}
        done = host.run(['virsh', '-q', 'list', '--all', '--uuid'],
                        check=False)
        if done.returncode:
            raise errors.LabError('libvirt of %s does not answer: %s' % (
                host.name, done.stderr.strip()))
        for uuid in set(done.stdout.split()) - ours:
            yield '%s: domain %s' % (host.name, uuid)
        for one in host.processes():
            words = faults.command_line(one.pid)
            if b'qemu-system' in words[0] and not any(
                    uuid.encode() in words for uuid in ours):
                yield '%s: QEMU %d' % (host.name, one.pid)
        for path in (host.directory / _OPERATIONS).glob('*.json'):
            phase = json.loads(path.read_text())['operation']['phase']
            if phase != operation.ENDED:
                yield '%s: operation %s is %s' % (host.name, path.stem,
                                                  phase)
        if cloud.settings.builds_disks:
            yield from disk_checks.left(host)
        if cloud.settings.profile != 'shared':
            for path in (host.root / 'var/lib/nova/instances').glob(
                    '*-*-*-*-*'):
                if path.name not in ours:
                    yield '%s: files of %s' % (host.name, path.name)


def _allocations(cloud, servers):
    """Yield what Placement has otherwise than Nova."""
    placement = client.connect(cloud).placement
    for provider in placement.resource_providers():
        consumers = placement.get(
            '/resource_providers/%s/allocations' % provider.id
        ).json()['allocations']
        for uuid in consumers:
            if uuid not in servers:
                yield '%s: allocation of %s' % (provider.name, uuid)
            elif servers[uuid] != provider.name:
                yield '%s: allocation of instance %s' % (provider.name, uuid)
        for uuid, name in servers.items():
            if name == provider.name and uuid not in consumers:
                yield '%s: no allocation of instance %s' % (name, uuid)


def _attachments(cloud, servers):
    """Yield volumes that are attached twice, or to what is gone.

    Where the backend does not answer, Cinder says that it could not make an
    attachment and keeps it, reserved; Nova does not know its name.
    """
    attached = [(one.volume_id, one.instance) for one in
                client.connect(cloud).block_storage.attachments()
                if one.status != 'reserved']
    for volume, uuid in sorted(set(attached)):
        if uuid not in servers:
            yield 'volume %s: attached to %s' % (volume, uuid)
        elif attached.count((volume, uuid)) > 1:
            yield 'volume %s: %d attachments to instance %s' % (
                volume, attached.count((volume, uuid)), uuid)
