# SPDX-License-Identifier: Apache-2.0
"""Why a server and its volumes are not moved.

All of it is found out before the first step.  Cinder and Nova refuse some
of it themselves, some of it late, and some not at all: what users have,
such as snapshots, would be lost or left behind.
"""

from __future__ import annotations

from collections.abc import Iterator
import dataclasses

from nova_dedup_migrate.server_move import cloud as clouds

#: host@backend of host@backend#pool
_POOL = '#'


@dataclasses.dataclass(frozen=True)
class Goal:
    """Where a server is to be.

    :ivar host: of nova-compute, '' where it is
    :ivar pool: host@backend#pool for its volumes, or ''
    :ivar kind: type for its volumes, or ''
    """

    host: str = ''
    pool: str = ''
    kind: str = ''

    def reached(self, volume: clouds.Volume) -> bool:
        """Return whether a volume is where it is to be."""
        return not volume.moving and (
            (not self.pool or volume.host == self.pool)
            and (not self.kind or volume.kind == self.kind))


def find(cloud: clouds.Cloud, server: clouds.Server,
         volumes: list[clouds.Volume], goal: Goal) -> list[str]:
    """Return sentences, none if nothing is in the way.

    :raises CallFailed:
    """
    left = [volume for volume in volumes
            if not goal.reached(volume) and not volume.moving]
    found = list(_of_server(server, goal, volumes))
    if goal.host and goal.host != server.host:
        found += _of_host(cloud, goal.host)
    if left:
        found += _of_goal(cloud, left, goal)
    for volume in left:
        found += ['volume %s %s' % (volume.title, reason)
                  for reason in _of_volume(cloud, server, volume, goal)]
    return found


def _of_server(server: clouds.Server, goal: Goal,
               volumes: list[clouds.Volume]) -> Iterator[str]:
    if server.status == 'MIGRATING' and all(map(goal.reached, volumes)):
        # The last step of a move that was begun.
        return
    if server.status != 'ACTIVE':
        yield 'the server is %s and has to be ACTIVE' % server.status
    elif server.task_state is not None:
        yield 'the server is busy: %s' % server.task_state
    if server.locked:
        yield 'the server is locked. Unlock it first'


def _of_host(cloud: clouds.Cloud, host: str) -> Iterator[str]:
    service = cloud.compute_service(host)
    if service is None:
        yield 'there is no nova-compute on %s' % host
    elif not service.usable:
        yield 'nova-compute of %s is down or disabled' % host


def _of_goal(cloud: clouds.Cloud, volumes: list[clouds.Volume], goal: Goal
             ) -> Iterator[str]:
    """Yield what is in the way of all volumes."""
    if goal.kind:
        kind = cloud.volume_type(goal.kind)
        if kind is None:
            yield 'there is no volume type %s' % goal.kind
        elif kind.encrypted:
            yield ('volumes of type %s are encrypted, and those in use '
                   'cannot become so' % goal.kind)
        return
    pools = cloud.pools()
    pool = pools.get(goal.pool)
    if pool is None:
        yield 'there is no pool %s. There are: %s' % (
            goal.pool, ', '.join(sorted(pools)) or 'none')
        return
    backend = goal.pool.partition(_POOL)[0]
    service = cloud.volume_service(backend)
    if service is None or not service.usable:
        yield 'cinder-volume of %s is down or disabled' % backend
    size = sum(volume.size for volume in volumes)
    if pool.free is not None and pool.free < size:
        yield 'the volumes have %d GiB, and %s has %d free' % (
            size, goal.pool, pool.free)
    for volume in volumes:
        if service is not None and service.zone != volume.zone:
            yield ('volume %s is in the availability zone %s, and %s is in '
                   '%s' % (volume.title, volume.zone, backend, service.zone))
        kind = cloud.volume_type(volume.kind) if volume.kind else None
        if kind is not None and kind.backend not in ('', pool.backend):
            yield ('volume %s has the type %s, which needs the backend %s. '
                   'Use --volume-type with one that needs %s' % (
                       volume.title, volume.kind, kind.backend,
                       pool.backend))


def _of_volume(cloud: clouds.Cloud, server: clouds.Server,
               volume: clouds.Volume, goal: Goal) -> Iterator[str]:
    if volume.status != 'in-use':
        yield ('is %s and has to be in-use; a backup that is being made '
               'ends first' % volume.status)
    others = {uuid for uuid, _ in volume.attachments} - {server.id}
    if others:
        yield 'is attached to other servers, too: %s' % ', '.join(
            sorted(others))
    elif len(volume.attachments) > 1:
        yield 'is attached more than once'
    if volume.multiattach:
        yield 'can be attached more than once (multiattach)'
    if volume.encrypted:
        yield ('is encrypted. Volumes in use are not decrypted and encrypted '
               'anew')
    if volume.group:
        yield 'is in the group %s, which it would leave' % volume.group
    if volume.replicated:
        yield 'is replicated (%s)' % volume.replication
    snapshots = cloud.snapshots(volume.id)
    if snapshots:
        yield ('has %d snapshots, which stay on the old backend: %s' % (
            len(snapshots), ', '.join(sorted(snapshots)[:5])))
