# SPDX-License-Identifier: Apache-2.0
"""What a live migration would take, without doing it.

The planner gets what the agent of the host has sampled of the guest.  The
destination is not chosen yet: a guest whose disk reads QEMU has recorded
is planned as if the destination opened the same disks, which the agent
there finds out when the migration begins.  The explanation says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import heapq
import math
from typing import Any

from nova_dedup_migrate.engine import blockers as blocking
from nova_dedup_migrate.engine import cloud as clouds
from nova_dedup_migrate.engine import summary
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import predict

#: A guest that writes more than this of its share of the link runs alone.
ALONE = 0.7
#: Seconds after which a sample says little about now.
_OLD = 900.0
_ASSUMED = ('It is assumed that the destination opens the same disks; its '
            'agent finds out when the migration begins.')
_NOT_SAMPLED = ('The agent has no sample of this guest: its memory counts '
                'as in use, and how fast it writes is not known.')


@dataclasses.dataclass(frozen=True)
class HostFacts:
    """What is known of the host that servers are to leave.

    :ivar facts: of hosts.facts, see rpc.objects.DedupHostReport
    :ivar link_rate: limit of an operator or the configuration, bytes/s
    :ivar slots: servers that leave it at a time
    :ivar patched: whether another host takes part
    """

    facts: Mapping[str, Any]
    link_rate: float | None
    slots: int
    patched: bool

    def guest(self, server_id: str) -> Mapping[str, Any] | None:
        """Return the sample of a guest, None if there is none."""
        for one in self.facts.get('guests', ()):
            if one.get('uuid') == server_id:
                return dict(one)
        return None

    @property
    def link(self) -> float:
        """Bytes/s that all its migrations share."""
        return predict.link_rate(facts.Facts(
            facts.Guest(0, 0, 0, 0), (), facts.End('', False),
            facts.End('', False), facts.Link(
                measured=self.facts.get('link_rate'),
                host_limit=self.link_rate)))


def estimate(server: clouds.Server, host: HostFacts,
             blockers: Iterable[blocking.Blocker]) -> dict[str, Any]:
    """Return an estimate as api.schemas.SERVER_ESTIMATE has it."""
    sample = host.guest(server.id)
    known = _facts(server, sample, host)
    plan = choose.choose(known)
    working_set = predict.working_set(known)
    dirty = None if sample is None else sample.get('dirty_rate')
    notes = [*plan.explanation]
    if sample is None or dirty is None:
        notes.append(_NOT_SAMPLED)
    if known.disks:
        notes.append(_ASSUMED)
    return {
        'server_id': server.id, 'server_name': server.name,
        'project_id': server.project_id or None,
        'blockers': [one.plain() for one in blockers],
        'strategy': plan.strategy,
        'plan': summary.prediction(plan.prediction),
        'stock': summary.prediction(plan.stock),
        'dirty_rate': dirty,
        'working_set': (working_set if sample is not None
                        and math.isfinite(working_set) else None),
        'runs_alone': (dirty is not None
                       and dirty > ALONE * host.link / host.slots),
        'confidence': _confidence(sample, host), 'explanation': notes}


def _facts(server: clouds.Server, sample: Mapping[str, Any] | None,
           host: HostFacts) -> facts.Facts:
    sample = sample or {}
    options = host.facts.get('options') or {}
    memory = float(sample.get('memory') or server.memory)
    in_use = sample.get('in_use')
    pages = int(sample.get('hint_pages') or 0)
    disks: tuple[facts.Disk, ...] = ()
    if pages and sample.get('tracked'):
        disks = (facts.Disk('disk', 'disks', facts.SHARED,
                            hint_pages=pages),)
    return facts.Facts(
        guest=facts.Guest(
            memory=memory, resident=memory, hint_pages=pages,
            dirty_rate=float(sample.get('dirty_rate') or 0.0),
            disk_write_rate=sample.get('disk_write_rate'),
            map_pages=int(sample.get('map_pages') or 0), in_use=in_use,
            in_use_error=float(sample.get('in_use_error') or 0.0)),
        disks=disks,
        source=facts.End(server.host, bool(sample.get('tracked'))),
        destination=facts.End('', host.patched),
        link=facts.Link(measured=host.facts.get('link_rate'),
                        configured=options.get('bandwidth'),
                        host_limit=host.link_rate,
                        sharers=host.slots - 1),
        options=facts.Options(
            downtime_ms=options.get('downtime_ms', 500),
            postcopy=bool(options.get('post_copy')),
            auto_converge=bool(options.get('auto_converge')),
            timeout=(options['timeout_per_gb'] * max(
                2.0, memory / (1 << 30))
                if options.get('timeout_per_gb') else None),
            force_complete=bool(options.get('force_complete')),
            strategy=options.get('strategy', 'auto')))


def _confidence(sample: Mapping[str, Any] | None, host: HostFacts) -> str:
    if sample is None or sample.get('dirty_rate') is None:
        return 'low'
    if sample.get('age', math.inf) > _OLD or not host.facts.get('link_rate'):
        return 'medium'
    return 'high'


def seconds(estimate: Mapping[str, Any], name: str = 'likely') -> float:
    """Return the predicted time of an estimate, infinite if without end."""
    plan = estimate.get('plan')
    value = plan['time'][name] if plan else None
    return math.inf if value is None else float(value)


def total(found: Iterable[Mapping[str, Any]], slots: int
          ) -> dict[str, float | None]:
    """Return the band of the time until all have moved.

    Each takes the first free slot in the order given; one that runs alone
    waits for all before it.

    :param found: estimates, in order
    """
    found = list(found)
    made: dict[str, float | None] = {}
    for name in ('low', 'likely', 'high'):
        free = [0.0] * slots
        for one in found:
            length = seconds(one, name)
            if one['runs_alone']:
                free = [max(free) + length] * slots
            else:
                heapq.heapreplace(free, free[0] + length)
        end = max(free)
        made[name] = end if math.isfinite(end) else None
    return made


def ordered(found: Iterable[Mapping[str, Any]], order: str
            ) -> list[Mapping[str, Any]]:
    """Return estimates in the order in which servers are to leave.

    Guests that run alone come last, so that nobody waits for them.

    :param order: of db.drains.ORDERS
    """
    def key(one: Mapping[str, Any]) -> tuple[Any, ...]:
        time = seconds(one)
        if order == 'longest':
            rank = -time if math.isfinite(time) else math.inf
        elif order == 'shortest':
            rank = time
        else:
            rank = (math.inf if one['working_set'] is None
                    else one['working_set'])
        return (one['runs_alone'], rank, one['server_id'])

    return sorted(found, key=key)
