# SPDX-License-Identifier: Apache-2.0
"""Moves a server: its volumes one after the other, then its memory.

::

    obstacles? -> refused, nothing was changed
    each volume: Cinder moves it, Nova swaps it   (filled from its backups)
    the server: live migration                    (page cache from the new
                                                   volumes)
    what users had: compared

There is no record of a move.  What was done is seen in Nova and Cinder, so
the same call again goes on where the last one has ended, and waits for what
is under way.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import time
from typing import TypeVar

from nova_dedup_migrate.server_move import cloud as clouds
from nova_dedup_migrate.server_move import errors
from nova_dedup_migrate.server_move import obstacles

#: Seconds between two looks, and for which the cloud may not answer.
INTERVAL = 2.0
SILENCE = 60.0
#: Seconds until a request that was accepted shows.
_BEGINS = 30.0

TO_DO, DONE, MOVED = 'to do', 'is there', 'moved'
_FAILED = ('error', 'failed', 'cancelled')
_Seen = TypeVar('_Seen')


@dataclasses.dataclass(frozen=True)
class Step:
    """One step, as users see it.

    :ivar state: TO_DO, DONE or MOVED
    :ivar seconds: that it took, None if it was not done
    """

    what: str
    name: str
    source: str
    destination: str
    state: str
    seconds: float | None = None


@dataclasses.dataclass(frozen=True)
class _Kept:
    """What users had of a volume."""

    volume: clouds.Volume
    backups: frozenset[str]


class Mover:
    """One move.

    :param goal: where to
    :param timeout: seconds for each step
    :param say: called with a sentence when something has changed
    """

    def __init__(self, cloud: clouds.Cloud, goal: obstacles.Goal,
                 timeout: float, say: Callable[[str], None],
                 interval: float = INTERVAL) -> None:
        self._cloud = cloud
        self._goal = goal
        self._timeout = timeout
        self._say = say
        self._interval = interval

    def plan(self, name: str) -> list[Step]:
        """Return the steps; nothing is changed.

        :raises MoveRefused: something is in the way
        :raises MoveError:
        """
        server, volumes = self._look(name)
        steps = [self._step(volume, TO_DO) for volume in volumes]
        if self._goal.host:
            steps.append(Step('server', server.name, server.host,
                              self._goal.host, DONE if server.host
                              == self._goal.host else TO_DO))
        return steps

    def move(self, name: str) -> list[Step]:
        """Move a server; return what was done.

        :raises MoveRefused: something is in the way
        :raises StepFailed: Cinder or Nova did not do it
        :raises StepLate: it goes on
        :raises NotKept: all was moved, and something is not as before
        """
        server, volumes = self._look(name)
        before = [_Kept(volume, frozenset(self._cloud.backups(volume.id)))
                  for volume in volumes]
        steps = [self._volume(volume) for volume in volumes]
        if self._goal.host:
            steps.append(self._server(self._cloud.server(server.id)))
        changes = list(self._changes(server, before))
        if changes:
            raise errors.NotKept(server=server.name,
                                 changes='\n  '.join(changes))
        return steps

    def _look(self, name: str
              ) -> tuple[clouds.Server, list[clouds.Volume]]:
        server = self._cloud.find_server(name)
        volumes = []
        if self._goal.pool or self._goal.kind:
            volumes = [self._cloud.volume(one.volume_id)
                       for one in server.attachments]
        found = obstacles.find(self._cloud, server, volumes, self._goal)
        if found:
            raise errors.MoveRefused(server=name,
                                     reasons='\n  '.join(found))
        return server, volumes

    # Volumes

    def _step(self, volume: clouds.Volume, state: str,
              seconds: float | None = None,
              now: clouds.Volume | None = None) -> Step:
        if self._goal.reached(volume):
            state = DONE
        source, destination = volume.host, self._goal.pool
        if self._goal.kind:
            source = '%s, %s' % (volume.kind, volume.host)
            destination = self._goal.kind + (
                ', ' + now.host if now is not None else '')
        return Step('volume', volume.title, source, destination, state,
                    seconds)

    def _volume(self, volume: clouds.Volume) -> Step:
        if self._goal.reached(volume):
            return self._step(volume, DONE)
        begun = time.monotonic()
        what = 'moving volume %s' % volume.title
        if not volume.moving:
            if self._goal.kind:
                self._cloud.retype_volume(volume.id, self._goal.kind)
            else:
                self._cloud.migrate_volume(volume.id, self._goal.pool)
        self._say('%s from %s' % (what, volume.host))
        now = self._wait(
            what, lambda: self._cloud.volume(volume.id),
            lambda one: not one.moving,
            lambda one: one.migration_status or one.status)
        if not self._goal.reached(now):
            raise errors.StepFailed(step=what, reason=(
                'Cinder has left it on %s, its migration is %s. See the log '
                'of cinder-volume and of nova-compute' % (
                    now.host, now.migration_status or 'none')))
        # Nova writes what Cinder has completed.
        self._settled(what, volume.attachments[0][0])
        return self._step(volume, MOVED, time.monotonic() - begun, now)

    def _settled(self, what: str, server_id: str) -> None:
        self._wait(what, lambda: self._cloud.server(server_id),
                   lambda one: one.task_state is None,
                   lambda one: one.task_state or '')

    # The server

    def _server(self, server: clouds.Server) -> Step:
        def step(state: str, seconds: float | None = None) -> Step:
            return Step('server', server.name, server.host, self._goal.host,
                        state, seconds)

        if server.host == self._goal.host and server.status == 'ACTIVE':
            return step(DONE)
        begun = time.monotonic()
        what = 'migrating server %s' % server.name
        before = self._cloud.migration(server.id)
        if server.status != 'MIGRATING':
            self._cloud.live_migrate(server.id, self._goal.host)
            last = before and before.uuid
        else:
            last = None
        self._say('%s from %s' % (what, server.host))

        def look() -> tuple[clouds.Server, clouds.Migration | None]:
            return (self._cloud.server(server.id),
                    self._cloud.migration(server.id))

        def over(seen: tuple[clouds.Server, clouds.Migration | None]
                 ) -> bool:
            now, migration = seen
            if now.status not in ('ACTIVE', 'MIGRATING'):
                return True
            if now.status != 'ACTIVE' or now.task_state is not None:
                return False
            if now.host == self._goal.host:
                return True
            if migration is None or migration.uuid == last:
                # The request has not been seen to, or was refused.
                return time.monotonic() - begun > _BEGINS
            return migration.status in _FAILED

        now, migration = self._wait(
            what, look, over, lambda seen: seen[1].status if seen[1]
            and seen[1].uuid != last else 'requested')
        if now.host != self._goal.host or now.status != 'ACTIVE':
            raise errors.StepFailed(step=what, reason=(
                'it is %s on %s, the migration is %s%s. See '
                'nova-dedup-migrate report show on %s' % (
                    now.status, now.host,
                    migration.status if migration else 'none',
                    ': ' + now.fault if now.fault else '', server.host)))
        return step(MOVED, time.monotonic() - begun)

    # Both

    def _wait(self, what: str, look: Callable[[], _Seen],
              over: Callable[[_Seen], bool],
              describe: Callable[[_Seen], str]) -> _Seen:
        """Return what was seen when it was over.

        :raises StepLate:
        :raises CallFailed: the cloud does not answer for a minute
        """
        end = time.monotonic() + self._timeout
        heard, said = time.monotonic(), ''
        while True:
            try:
                seen = look()
                heard = time.monotonic()
            except errors.CallFailed:
                if time.monotonic() - heard > SILENCE:
                    raise
            else:
                if over(seen):
                    return seen
                if describe(seen) != said:
                    said = describe(seen)
                    self._say('%s: %s' % (what, said))
            if time.monotonic() > end:
                raise errors.StepLate(step=what, seconds=self._timeout)
            time.sleep(self._interval)

    def _changes(self, server: clouds.Server, before: list[_Kept]
                 ) -> Iterator[str]:
        """Yield what users had and have not any more."""
        now = self._cloud.server(server.id)
        if now.attachments != server.attachments:
            yield 'the volumes of the server: %s instead of %s' % (
                now.attachments, server.attachments)
        for kept in before:
            old, new = kept.volume, self._cloud.volume(kept.volume.id)
            for field in ('name', 'description', 'project_id', 'size',
                          'zone', 'bootable', 'encrypted', 'metadata',
                          'image_metadata', 'attachments'):
                if getattr(old, field) != getattr(new, field):
                    yield 'volume %s: %s is %r instead of %r' % (
                        old.title, field, getattr(new, field),
                        getattr(old, field))
            if not self._goal.kind and new.kind != old.kind:
                yield 'volume %s: its type is %s instead of %s' % (
                    old.title, new.kind, old.kind)
            lost = kept.backups - set(self._cloud.backups(old.id))
            if lost:
                yield 'volume %s: backups %s are gone' % (
                    old.title, ', '.join(sorted(lost)))
