# SPDX-License-Identifier: Apache-2.0
"""What a live migration would take, without doing it.

The planner gets what the agent of the host has sampled of the guest.  The
destination is not chosen yet: a guest whose disk reads QEMU has recorded
is planned as if the destination opened the same disks, which the agent
there finds out when the migration begins.  The explanation says so.

The bytes of disks that a block migration copies are left out: whether it
is one is known with the destination only, and agents do not report what
disks have allocated.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import dataclasses
import heapq
import math
from typing import Any

from nova_dedup_migrate.engine import blockers as blocking
from nova_dedup_migrate.engine import cloud as clouds
from nova_dedup_migrate.engine import slots
from nova_dedup_migrate.engine import summary
from nova_dedup_migrate.planner import choose
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.planner import predict

#: A guest that writes more than this of its share of the link runs alone.
ALONE = 0.7
#: Seconds after which a sample says little about now.
_OLD = 900.0
#: GiB that Nova takes a smaller guest for: _live_migration_data_gb() of
#: nova.virt.libvirt.driver.
_LEAST_GB = 2.0
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


def host_facts(row: Mapping[str, Any] | None, drain: Mapping[str, Any],
               options: Any, patched: bool) -> HostFacts:
    """Return what servers that leave a host can count on.

    :param row: of the table hosts, None if no agent has reported it
    :param drain: with max_parallel and link_rate
    :param options: conf.engine
    :param patched: whether another host takes part
    """
    facts = {} if row is None else row['facts']
    of_host = None if row is None else row['max_outbound']
    rates = [rate for rate in (
        drain.get('link_rate'), None if row is None else row['link_rate'])
        if rate]
    return HostFacts(
        facts=facts,
        link_rate=min(rates) if rates else options.link_rate * 1e6 or None,
        slots=slots.limit(
            facts.get('max_outbound'),
            of_host or (None if drain.get('max_parallel')
                        else options.max_outbound),
            drain.get('max_parallel')),
        patched=patched)


def estimate(server: clouds.Server, host: HostFacts,
             blockers: Iterable[blocking.Blocker]) -> dict[str, Any]:
    """Return an estimate as api.schemas.SERVER_ESTIMATE has it."""
    sample = host.guest(server.id)
    dirty = None if sample is None else sample.get('dirty_rate')
    alone = dirty is not None and dirty > ALONE * host.link / host.slots
    known = _facts(server, sample, host, 0 if alone else host.slots - 1)
    plan = choose.choose(known)
    working_set = predict.working_set(known)
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
        'runs_alone': alone,
        'confidence': _confidence(sample, host), 'explanation': notes}


def _facts(server: clouds.Server, sample: Mapping[str, Any] | None,
           host: HostFacts, sharers: int) -> facts.Facts:
    sample = sample or {}
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
                        configured=(host.facts.get('options') or {}).get(
                            'bandwidth'),
                        host_limit=host.link_rate,
                        sharers=sharers),
        options=_options(host.facts.get('options') or {}, memory))


def _options(known: Mapping[str, Any], memory: float) -> facts.Options:
    """Return how Nova would run the migration of a guest.

    :param known: of its agent, see rpc.objects.DedupMigrationOptions
    :param memory: bytes of the guest
    """
    size = max(_LEAST_GB, memory / (1 << 30))
    usual = facts.Options()
    limit = known.get('downtime_ms', usual.downtime_ms)
    return facts.Options(
        downtime_ms=limit,
        downtime_steps=tuple(_downtime_steps(
            limit, known.get('downtime_steps') or 0,
            known.get('downtime_delay') or 0.0, size)),
        adapt_downtime_limit=known.get('adapt_downtime_limit',
                                       usual.adapt_downtime_limit),
        max_extra_downtime_ms=_or(known.get('max_extra_downtime_ms'),
                                  usual.max_extra_downtime_ms),
        switch_over=facts.SWITCH_OVER,
        postcopy=bool(known.get('post_copy')),
        auto_converge=bool(known.get('auto_converge')),
        timeout=(known['timeout_per_gb'] * size
                 if known.get('timeout_per_gb') else None),
        force_complete=bool(known.get('force_complete')),
        strategy=known.get('strategy', usual.strategy),
        min_gain=_or(known.get('min_gain'), usual.min_gain))


def _or(value: float | None, usual: float) -> float:
    return usual if value is None else value


def _downtime_steps(limit: float, steps: int, delay: float, size: float
                    ) -> Iterator[tuple[float, float]]:
    """Yield the limits as Nova sets them, none if its steps are not known.

    As downtime_steps() of nova.virt.libvirt.migration does.

    :param limit: the highest one, ms
    :param delay: seconds between two for each GiB
    :param size: of the guest, GiB
    """
    if not steps:
        return
    first = limit / steps
    for number in range(steps + 1):
        yield (int(int(delay * size) * number),
               int(first + (limit - first) / steps * number))


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


def rest(estimate: Mapping[str, Any], eta: Mapping[str, Any] | None,
         elapsed: float, overhead: planner_plan.Band) -> Mapping[str, Any]:
    """Return the estimate of a migration under way: what is left of it.

    :param eta: band of its last report, None if none has come
    :param elapsed: seconds since it was requested
    :param overhead: see total, which adds none to this one
    """
    plan = estimate.get('plan')
    if not plan:
        return estimate
    if eta is not None and eta['likely'] is not None:
        time = {name: eta['likely'] if value is None else value
                for name, value in eta.items()}
    else:
        time = {name: None if value is None else max(
            0.0, value + getattr(overhead, name) - elapsed)
            for name, value in plan['time'].items()}
    return {**estimate, 'plan': {**plan, 'time': time}, 'begun': True}


def total(found: Iterable[Mapping[str, Any]], slots: int,
          overhead: planner_plan.Band) -> dict[str, float | None]:
    """Return the band of the time until all have moved.

    Each takes the first free slot in the order given; one that runs alone
    waits for all before it.

    :param found: estimates, in order
    :param overhead: seconds that Nova takes for each besides
    """
    found = list(found)
    made: dict[str, float | None] = {}
    for name in ('low', 'likely', 'high'):
        free = [0.0] * slots
        for one in found:
            length = seconds(one, name)
            if not one.get('begun'):
                if name == 'low' and not one['runs_alone']:
                    # At best the others need nothing of the link meanwhile.
                    length /= slots
                length += getattr(overhead, name)
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
