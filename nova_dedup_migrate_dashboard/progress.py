# SPDX-License-Identifier: Apache-2.0
"""What pages show of drains, worked out from what the API has."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import re
from typing import Any

from nova_dedup_migrate_dashboard import charts

OVER = ('drained', 'partial', 'cancelled', 'failed', 'checked')
MOVED = ('moved', 'stopped', 'gone')
FLYING = ('submitting', 'migrating', 'verifying')
WAITING = ('queued', 'retry_wait')
BLOCKED = ('blocked',)
STAY = ('skipped', 'failed', 'cancelled')
#: Class of the colour -> states of servers, in the order of the bar.
GROUPS = {'moved': MOVED, 'flying': FLYING, 'waiting': WAITING,
          'blocked': BLOCKED, 'stays': STAY}
#: States in which an operator may leave a server on the host.
_SKIPPABLE = (*WAITING, *BLOCKED)
#: States of a drain after which servers that stayed can be tried again.
_RETRIED = ('partial', 'failed')
_CHOICES = ('skip', 'stop', 'cold')


def drain(one: Mapping[str, Any]) -> dict[str, Any]:
    """Return a drain with

    groups    class -> number of servers
    bar       charts.Part of each group
    total     number of servers
    over      whether it has ended
    can       names of the actions that it permits
    """
    counts = one['counts']
    groups = {name: sum(counts.get(state, 0) for state in states)
              for name, states in GROUPS.items()}
    over = one['state'] in OVER
    can = set()
    if not over and one['state'] != 'cancelling' and (
            one['requested'] != 'cancel'):
        can = {'cancel', 'resume' if one['requested'] == 'pause'
               or one['state'] == 'paused' else 'pause'}
    if one['state'] in _RETRIED and not one['dry_run'] or (
            not over and groups['stays'] and can):
        can.add('retry')
    return {**one, 'groups': groups, 'total': sum(groups.values()),
            'bar': charts.parts(groups.items()), 'over': over, 'can': can}


def servers(rows: Iterable[Mapping[str, Any]],
            migrations: Iterable[Mapping[str, Any]] = ()
            ) -> list[dict[str, Any]]:
    """Return the servers of a drain as an operator reads them.

    Those on their way first, then those that need a choice, those in the
    queue in their order, those that stay, those that have gone.  Each has

    group     of GROUPS
    live      its running migration, as the API has it; None
    choices   what an operator may do with it: skip, stop, cold
    turn      its place in the queue, from 1 on; None

    :param migrations: that leave the host now
    """
    live = {one['uuid']: one for one in migrations}
    order = ('flying', 'blocked', 'waiting', 'stays', 'moved')
    made: list[dict[str, Any]] = []
    for row in rows:
        group = next(name for name, states in GROUPS.items()
                     if row['state'] in states)
        made.append({**row, 'group': group, 'choices': choices(row),
                     'live': live.get(row['migration_uuid']), 'turn': None})
    made.sort(key=lambda row: (order.index(row['group']), row['position']))
    turn = 0
    for row in made:
        if row['group'] == 'waiting':
            turn += 1
            row['turn'] = turn
    return made


def choices(row: Mapping[str, Any]) -> list[str]:
    """Return what an operator may do with a server of a drain."""
    if row['state'] not in _SKIPPABLE:
        return []
    if row['state'] not in BLOCKED:
        return ['skip']
    return allowed(row['blockers'])


def allowed(blockers: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the choices that help against every reason of a server."""
    return [choice for choice in _CHOICES
            if all(choice in one['choices'] for one in blockers)]


def helpful(blocked: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the choices that help at least one server of an estimate."""
    return [choice for choice in _CHOICES
            if any(all(choice in one['choices'] for one in row['blockers'])
                   for row in blocked)]


def is_uuid(text: str) -> bool:
    """Return whether a text is a UUID as the API has it."""
    return re.fullmatch('[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}',
                        text) is not None


def saved(one: Mapping[str, Any]) -> float | None:
    """Return the share of memory that was not sent; None if unknown."""
    total = sum(one['bytes'].values())
    return 1 - one['bytes']['peer'] / total if total else None
