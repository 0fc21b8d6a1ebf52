# SPDX-License-Identifier: Apache-2.0
"""A drain, one step after the other.

::

    pending -> checking -> running <-> paused
                  |         |  ^ \\
                  |         |  |  +-> blocked -> running
                  |         v  |
                  |      verifying -> drained | partial
                  +-> checked (dry run)
    any active state -> cancelling -> cancelled
    pending, checking -> failed

A step reads the drain, looks at Nova, writes what has changed and returns.
It keeps nothing in memory, so any engine can do the next one.  The first
thing that running does is to disable nova-compute of the host; it is
enabled again only if the drain is cancelled and it was this drain that
disabled it, which its reason says.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import concurrent.futures
import functools
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from nova_dedup_migrate.db import drains
from nova_dedup_migrate.engine import blockers as blocking
from nova_dedup_migrate.engine import cloud as clouds
from nova_dedup_migrate.engine import conditions
from nova_dedup_migrate.engine import errors
from nova_dedup_migrate.engine import estimates
from nova_dedup_migrate.engine import moves
from nova_dedup_migrate.engine import records as recording
from nova_dedup_migrate.planner import plan

LOG = logging.getLogger(__name__)

#: Seconds before the drain that Nova's migrations are looked at.
_BEFORE = 3600.0
_CHECKS = 8
_DEADLINE = 'the deadline has passed'
_WAITS_FOR_AGENT = 'the agent has not reported since the last server left'


def reason(drain_id: str) -> str:
    """Return why nova-compute is disabled."""
    return 'dedup-migrate: drain %s' % drain_id


class Drain:
    """Does the steps of one drain.

    :param records: records.Records
    :param cloud: engine.cloud.Cloud
    :param conf: with conf.engine
    """

    def __init__(self, records: recording.Records, cloud: clouds.Cloud,
                 conf: cfg.ConfigOpts) -> None:
        self._records = records
        self._cloud = cloud
        self._options = conf.engine
        self._moves = moves.Moves(records, cloud, conf)

    def step(self) -> None:
        """Do what is to be done now.

        :raises LeaseLost: another engine owns the drain
        :raises CloudUnavailable: to be tried again
        """
        drain, servers, now = self._records.read()
        state = self._wished(drain, servers)
        drain = {**drain, 'state': state}
        if state == drains.PENDING:
            self._begin(drain)
        elif state == drains.CHECKING:
            self._check(drain, servers, now)
        elif state == drains.CANCELLING:
            self._cancel(drain, servers, now)
        elif state == drains.VERIFYING:
            self._verify(drain, servers, now)
        elif state in drains.ACTIVE:
            self._run(drain, servers, now)

    def _wished(self, drain: Mapping[str, Any],
                servers: Sequence[Mapping[str, Any]]) -> str:
        """Enter the state that an operator wishes; return it."""
        state, wish = drain['state'], drain['wish']
        if wish == drains.CANCEL and state != drains.CANCELLING:
            return self._enter(drains.CANCELLING, 'Cancelled by an operator;'
                               ' what runs: %s' % drain['cancel'])
        if wish == drains.PAUSE and state in (drains.RUNNING,
                                              drains.BLOCKED,
                                              drains.VERIFYING):
            return self._enter(drains.PAUSED, 'Paused by an operator')
        if wish == drains.RUN and state == drains.PAUSED:
            return self._enter(drains.RUNNING, 'Resumed by an operator')
        if wish == drains.RETRY:
            def write(writer: recording.Writer) -> None:
                for row in servers:
                    if row['state'] in (drains.SERVER_FAILED,
                                        drains.SKIPPED,
                                        drains.RETRY_WAIT):
                        writer.server(row, state=drains.QUEUED, tries=0,
                                      retry_at=None, reason='',
                                      migration_uuid=None)
                writer.drain(state=drains.CHECKING, wish=drains.RUN,
                             finished_at=None, reason='',
                             safe_to_power_off=False, conditions=[])
                writer.event('Retried by an operator')

            self._records.write(write)
            return drains.CHECKING
        return str(state)

    def _enter(self, state: str, message: str, why: str = '') -> str:
        self._records.write(lambda writer: (
            writer.drain(state=state, reason=why), writer.event(message)))
        return state

    # The beginning

    def _begin(self, drain: Mapping[str, Any]) -> None:
        if self._cloud.service(drain['host']) is None:
            why = 'Nova has no nova-compute on host %s' % drain['host']
            self._records.write(lambda writer: (
                writer.finish(drains.FAILED, why), writer.event(why)))
            return
        self._enter(drains.CHECKING, 'Checking the servers of the host')

    def _check(self, drain: Mapping[str, Any],
               servers: Sequence[Mapping[str, Any]], now: float) -> None:
        """Find the servers, why some cannot move, and an order."""
        found = self._estimates(drain, now)
        known = {row['server_id'] for row in servers}
        host = self._host_facts(drain, now)
        total = estimates.total(
            [one for one in found if not one['blockers']], host.slots,
            self._records.overhead())

        def write(writer: recording.Writer) -> None:
            for position, one in enumerate(found):
                if one['server_id'] not in known:
                    self._add(writer, drain, one, position)
            writer.drain(eta=total)
            blocked = sum(bool(one['blockers']) for one in found)
            writer.event('%d servers, %d of them cannot move now'
                         % (len(found), blocked))
            if drain['dry_run']:
                writer.finish(drains.CHECKED)
                writer.drain(eta=total)
            else:
                writer.drain(state=drains.RUNNING)

        self._records.write(write)

    def _estimates(self, drain: Mapping[str, Any], now: float,
                   only: Sequence[clouds.Server] | None = None
                   ) -> list[Mapping[str, Any]]:
        """Return estimates of the servers of the host, in order."""
        servers = (self._cloud.servers(drain['host']) if only is None
                   else only)
        service = self._cloud.service(drain['host'])
        host = self._host_facts(drain, now)
        found = blocking.Blockers(self._cloud)
        with concurrent.futures.ThreadPoolExecutor(_CHECKS) as pool:
            blockers = list(pool.map(
                lambda server: found.find(server, service), servers))
        order = drain['order']
        if drain['deadline'] is not None and order == 'longest':
            # As many as possible until then.
            order = 'shortest'
        return estimates.ordered(
            [estimates.estimate(server, host, why)
             for server, why in zip(servers, blockers, strict=True)],
            order)

    def _host_facts(self, drain: Mapping[str, Any], now: float
                    ) -> estimates.HostFacts:
        row = self._records.host(drain['host'])
        since = now - self._options.agent_timeout
        return estimates.host_facts(
            row, drain, self._options,
            self._records.others_take_part(drain['host'], since))

    @staticmethod
    def _add(writer: recording.Writer, drain: Mapping[str, Any],
             one: Mapping[str, Any], position: int) -> None:
        blocked = one['blockers']
        writer.add_server(
            server_id=one['server_id'], name=one['server_name'],
            project_id=one['project_id'], position=position,
            on_blocked=(drain['choices'] or {}).get(
                one['server_id'], drain['on_blocked']),
            prediction=dict(one),
            blockers=blocked,
            state=drains.SERVER_BLOCKED if blocked else drains.QUEUED,
            reason='; '.join(why['message'] for why in blocked))

    # The work

    def _run(self, drain: Mapping[str, Any],
             servers: Sequence[Mapping[str, Any]], now: float) -> None:
        paused = drain['state'] == drains.PAUSED
        if not paused:
            self._disable(drain)
        view = self._look(drain, now)
        self._take_late_arrivals(drain, servers, view)
        self._follow(servers, view)
        drain, servers, now = self._records.read()
        late = drain['deadline'] is not None and now >= drain['deadline']
        if not paused:
            if late:
                self._give_up(servers, _DEADLINE)
            else:
                self._unblock(drain, servers, view)
                _, servers, _ = self._records.read()
                self._start(drain, servers, view)
            _, servers, _ = self._records.read()
        self._conclude(drain, servers, now)

    def _look(self, drain: Mapping[str, Any], now: float) -> moves.View:
        """Read what Nova has; migrations first, so that none is missed."""
        found: dict[str, list[clouds.Migration]] = {}
        for one in sorted(self._cloud.migrations(
                drain['created_at'] - _BEFORE,
                source_compute=drain['host']),
                key=lambda one: one.number):
            found.setdefault(one.server_id, []).append(one)
        return moves.View(now, {one.id: one for one in
                                self._cloud.servers(drain['host'])}, found)

    def _disable(self, drain: Mapping[str, Any]) -> None:
        service = self._cloud.service(drain['host'])
        if service is None or not service.enabled:
            return
        try:
            self._cloud.disable(service, reason(drain['id']))
        except errors.CloudRefused as error:
            raise errors.CloudUnavailable(
                doing='disable nova-compute', reason=error) from error
        self._records.write(lambda writer: writer.event(
            'nova-compute of %s disabled' % drain['host']))

    def _take_late_arrivals(self, drain: Mapping[str, Any],
                            servers: Sequence[Mapping[str, Any]],
                            view: moves.View) -> None:
        known = {row['server_id'] for row in servers}
        back = [row for row in servers if row['server_id'] in view.servers
                and row['state'] in (drains.MOVED, drains.GONE)]
        new = [one for server_id, one in view.servers.items()
               if server_id not in known]
        if not new and not back:
            return
        found = self._estimates(drain, view.now, new) if new else []
        first = max((row['position'] for row in servers), default=-1) + 1

        def write(writer: recording.Writer) -> None:
            for position, one in enumerate(found, first):
                self._add(writer, drain, one, position)
                writer.event('The server has come to the host since',
                             one['server_id'])
            for row in back:
                writer.server(row, state=drains.QUEUED, tries=0,
                              migration_uuid=None, finished_at=None)
                writer.event('The server is on the host again',
                             row['server_id'])

        self._records.write(write)

    def _follow(self, servers: Sequence[Mapping[str, Any]],
                view: moves.View) -> None:
        for row in servers:
            if row['state'] in drains.IN_FLIGHT:
                self._moves.follow(row, view)
            elif (row['state'] in drains.WAITING
                  and row['server_id'] not in view.servers):
                self._records.write(functools.partial(_gone, row=row))

    def _unblock(self, drain: Mapping[str, Any],
                 servers: Sequence[Mapping[str, Any]],
                 view: moves.View) -> None:
        """Check again what is blocked or about to be requested."""
        recheck = [row for row in servers
                   if row['state'] == drains.SERVER_BLOCKED
                   and (view.now - row['updated_at']
                        > self._options.recheck_interval
                        or row['on_blocked'] != 'wait')]
        changed = [row for row in servers
                   if row['state'] in (drains.QUEUED, drains.RETRY_WAIT)
                   and row['action'] == moves.LIVE
                   and row['server_id'] in view.servers
                   and blocking.of_state(view.servers[row['server_id']],
                                         _UP)]
        rows = {row['server_id']: row for row in (*recheck, *changed)
                if row['server_id'] in view.servers}
        if not rows:
            return
        found = self._estimates(
            drain, view.now, [view.servers[one] for one in rows])
        for one in found:
            self._choose(rows[one['server_id']], one)

    def _choose(self, row: Mapping[str, Any], one: Mapping[str, Any]
                ) -> None:
        """Queue a server that can move, or do what was chosen for it."""
        why = '; '.join(each['message'] for each in one['blockers'])
        choice = row['on_blocked']
        allowed = all(choice in each['choices']
                      for each in one['blockers'])
        values: dict[str, Any] = {'blockers': one['blockers'],
                                  'reason': why, 'prediction': dict(one)}
        if not one['blockers']:
            values.update(state=drains.QUEUED, action=moves.LIVE)
        elif choice == 'skip':
            values.update(state=drains.SKIPPED)
        elif choice in ('stop', 'cold') and allowed:
            values.update(state=drains.QUEUED, action={
                'stop': moves.STOP, 'cold': moves.COLD}[choice])
        else:
            values.update(state=drains.SERVER_BLOCKED)
            if choice in ('stop', 'cold'):
                values['reason'] += '; "%s" does not help' % choice
        self._records.write(lambda writer: (
            writer.server(row, **values),
            writer.event('%s: %s' % (values['state'],
                                     why or 'it can move now'),
                         row['server_id'])
            if values['state'] != row['state'] else None))

    def _start(self, drain: Mapping[str, Any],
               servers: Sequence[Mapping[str, Any]],
               view: moves.View) -> None:
        """Request migrations of those whose turn it is."""
        host = self._host_facts(drain, view.now)
        flying = [row for row in servers
                  if row['state'] in drains.IN_FLIGHT]
        waiting = sorted(
            (row for row in servers if row['state'] == drains.QUEUED
             or (row['state'] == drains.RETRY_WAIT
                 and row['retry_at'] <= view.now)),
            key=lambda row: (row['position'] if row['fixed_position']
                             is None else row['fixed_position'],
                             row['key']))
        for row in waiting:
            if len(flying) >= host.slots or any(map(_alone, flying)):
                return
            if _alone(row) and flying:
                return
            if not self._moves.submit(row, drain['host'], host.slots, view):
                return
            flying.append(row)

    def _give_up(self, servers: Sequence[Mapping[str, Any]], why: str
                 ) -> None:
        """Leave those where they are that have not been requested."""
        waiting = [row for row in servers if row['state'] in drains.WAITING]
        if waiting:
            self._records.write(lambda writer: [
                writer.server(row, state=drains.SKIPPED, reason=why)
                for row in waiting])

    def _conclude(self, drain: Mapping[str, Any],
                  servers: Sequence[Mapping[str, Any]], now: float) -> None:
        """Go to the state that the servers are in together."""
        states = {row['state'] for row in servers}
        paused = drain['state'] == drains.PAUSED
        active = states & {*drains.IN_FLIGHT, drains.QUEUED,
                           drains.RETRY_WAIT}
        overhead = self._records.overhead()
        eta = estimates.total(self._left(servers, now, overhead),
                              self._host_facts(drain, now).slots, overhead)
        if eta != drain['eta']:
            self._records.write(lambda writer: writer.drain(eta=eta))
        if paused or active:
            if drain['state'] == drains.BLOCKED and active:
                self._enter(drains.RUNNING, 'A blocked server can move')
            return
        if drains.SERVER_BLOCKED in states:
            if drain['state'] != drains.BLOCKED:
                number = sum(row['state'] == drains.SERVER_BLOCKED
                             for row in servers)
                self._enter(drains.BLOCKED, 'All others have moved',
                            '%d server%s cannot move; choose for each to '
                            'wait, skip, stop or migrate it cold'
                            % (number, '' if number == 1 else 's'))
            return
        self._enter(drains.VERIFYING, 'Verifying that the host is empty')

    def _left(self, servers: Sequence[Mapping[str, Any]], now: float,
              overhead: plan.Band) -> list[Mapping[str, Any]]:
        """Return estimates of what is left, those in flight first."""
        known = [row for row in servers if row['prediction'] is not None]
        flying = [row for row in known if row['state'] in drains.IN_FLIGHT]
        etas = self._records.etas(row['migration_uuid'] for row in flying)
        return [estimates.rest(row['prediction'],
                               etas.get(row['migration_uuid']),
                               now - row['submitted_at'], overhead)
                for row in flying] + [
            row['prediction'] for row in known
            if row['state'] in (drains.QUEUED, drains.RETRY_WAIT)]

    # The end

    def _verify(self, drain: Mapping[str, Any],
                servers: Sequence[Mapping[str, Any]], now: float) -> None:
        view = self._look(drain, now)
        done = {row['server_id'] for row in servers
                if row['state'] in (drains.SKIPPED, drains.STOPPED,
                                    drains.SERVER_FAILED)}
        if set(view.servers) - done:
            # The next step finds those that have come since.
            self._enter(drains.RUNNING, 'Servers have come to the host')
            return
        host = self._records.host(drain['host'])
        if conditions.is_stale(host, servers, now,
                               self._options.agent_timeout):
            if drain['reason'] != _WAITS_FOR_AGENT:
                self._records.write(
                    lambda writer: writer.drain(reason=_WAITS_FOR_AGENT))
            return
        found = conditions.check(self._cloud, drain['host'], host, now,
                                 self._options.agent_timeout)
        left = [row for row in servers
                if row['state'] in (drains.SKIPPED, drains.SERVER_FAILED)]
        safe = conditions.safe(found)

        def write(writer: recording.Writer) -> None:
            writer.drain(conditions=found, safe_to_power_off=safe)
            if left:
                writer.finish(drains.PARTIAL, '%d servers stay: %s' % (
                    len(left), '; '.join('%s: %s' % (
                        row['server_id'], row['reason'])
                        for row in left[:5])))
            else:
                writer.finish(drains.DRAINED)
            writer.event('%s; %s to power off' % (
                'Servers stay on the host' if left
                else 'The host is empty', 'safe' if safe else 'not safe'))

        self._records.write(write)

    def _cancel(self, drain: Mapping[str, Any],
                servers: Sequence[Mapping[str, Any]], now: float) -> None:
        waiting = [row for row in servers if row['state'] in drains.WAITING]
        if waiting:
            self._records.write(lambda writer: [
                writer.server(row, state=drains.SERVER_CANCELLED,
                              reason='the drain was cancelled')
                for row in waiting])
        flying = [row for row in servers if row['state'] in drains.IN_FLIGHT]
        if flying:
            view = self._look(drain, now)
            if drain['cancel'] == 'abort':
                for row in flying:
                    self._moves.abort(row, view)
                _, servers, _ = self._records.read()
                flying = [row for row in servers
                          if row['state'] in drains.IN_FLIGHT]
            self._follow(flying, view)
            return
        service = self._cloud.service(drain['host'])
        if (service is not None and not service.enabled
                and service.reason == reason(drain['id'])):
            try:
                self._cloud.enable(service)
            except errors.CloudRefused as error:
                raise errors.CloudUnavailable(
                    doing='enable nova-compute', reason=error) from error
        self._records.write(lambda writer: (
            writer.finish(drains.CANCELLED),
            writer.event('The drain has ended')))


_UP = clouds.Service('', '', True, True, '')


def _gone(writer: recording.Writer, row: Mapping[str, Any]) -> None:
    writer.server(row, state=drains.GONE,
                  reason='it has left the host without this drain')
    writer.event('The server has left the host', row['server_id'])


def _alone(row: Mapping[str, Any]) -> bool:
    return bool(row['prediction'] and row['prediction']['runs_alone']
                and row['action'] == moves.LIVE)
