# SPDX-License-Identifier: Apache-2.0
"""Why a server cannot be migrated live: every reason, not the first one.

Each names what an operator may choose instead: wait, skip, stop (shut it
down, it stays on the host), cold (migrate it shut down).
"""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

from nova_dedup_migrate.engine import cloud as clouds

_LIVE = ('ACTIVE', 'PAUSED')
#: Words in the extra specs of a flavor, and what they stand for.
_DEVICES = (('pci_passthrough:alias', 'a PCI device'),
            ('resources:VGPU', 'a virtual GPU'),
            ('resources:PGPU', 'a GPU'),
            ('accel:device_profile', 'an accelerator'))
_ENCRYPTED = 'hw:mem_encryption'
#: Policies of a group whose members may not leave each other.
_TOGETHER = 'affinity'


@dataclasses.dataclass(frozen=True)
class Blocker:
    """:ivar code: for programs
    :ivar message: one sentence without a full stop
    :ivar choices: of db.drains.ON_BLOCKED
    """

    code: str
    message: str
    choices: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        return {'code': self.code, 'message': self.message,
                'choices': list(self.choices)}


class Blockers:
    """Finds them; what is the same for many servers is read once.

    :param cloud: engine.cloud.Cloud
    """

    def __init__(self, cloud: clouds.Cloud) -> None:
        self._cloud = cloud
        self._lock = threading.Lock()
        self._room: dict[tuple[Any, ...], bool] = {}
        self._groups: list[clouds.Group] | None = None

    def find(self, server: clouds.Server, service: clouds.Service | None
             ) -> list[Blocker]:
        """Return why a server cannot be migrated live; empty if it can.

        :param service: nova-compute of its host
        :raises CloudUnavailable:
        """
        found = of_state(server, service)
        for word, what in _DEVICES:
            if any(name.startswith(word) for name in server.extra_specs):
                found.append(Blocker(
                    'device', 'it has %s of its host (flavor extra spec '
                    '%s)' % (what, word), ('skip', 'stop', 'cold')))
        if server.extra_specs.get(_ENCRYPTED, '').lower() in (
                'true', '1', 'yes', 'on'):
            found.append(Blocker(
                'encrypted_memory', 'its memory is encrypted for the '
                'processor of its host', ('skip', 'stop', 'cold')))
        for group in self._together():
            if server.id in group.members and len(group.members) > 1:
                found.append(Blocker(
                    'affinity', 'it has to stay with the %d other servers '
                    'of its group %s' % (len(group.members) - 1, group.id),
                    ('wait', 'skip', 'stop')))
        if server.resources and not self._has_room(server):
            found.append(Blocker(
                'no_room', 'no other host has room for %s' % ', '.join(
                    '%d %s' % (number, name) for name, number
                    in sorted(server.resources.items())),
                ('wait', 'skip', 'stop')))
        return found

    def _has_room(self, server: clouds.Server) -> bool:
        key = (server.node, *sorted(server.resources.items()))
        with self._lock:
            if key not in self._room:
                self._room[key] = self._cloud.has_room(server.resources,
                                                       server.node)
            return self._room[key]

    def _together(self) -> list[clouds.Group]:
        """Return the groups whose members may not leave each other."""
        with self._lock:
            if self._groups is None:
                self._groups = [one for one in self._cloud.groups()
                                if one.policy == _TOGETHER]
            return self._groups


def of_state(server: clouds.Server, service: clouds.Service | None
             ) -> list[Blocker]:
    """Return what a list of servers shows already."""
    found = []
    if service is None or not service.up:
        found.append(Blocker(
            'source_down', 'nova-compute of %s is down; a live migration '
            'needs it' % server.host, ('wait', 'skip')))
    if server.status == 'MIGRATING' or server.task_state == 'migrating':
        found.append(Blocker('migrating', 'another request migrates it',
                             ('wait', 'skip')))
    elif server.task_state:
        found.append(Blocker(
            'busy', 'Nova works on it: %s' % server.task_state,
            ('wait', 'skip')))
    elif server.status == 'ERROR':
        found.append(Blocker('error', 'it is in ERROR; see its fault',
                             ('wait', 'skip')))
    elif server.status not in _LIVE:
        found.append(Blocker(
            'not_running', 'it is %s; only servers that run are migrated '
            'live' % server.status, ('wait', 'skip', 'cold')))
    return found
