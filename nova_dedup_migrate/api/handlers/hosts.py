# SPDX-License-Identifier: Apache-2.0
"""/v1/hosts, /v1/services and /v1/replicas"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nova_dedup_migrate.api import request as requests
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import pages
from nova_dedup_migrate.engine import slots


def index(request: requests.Request) -> requests.Response:
    with request.database.read() as session:
        page = hosts.find(session, request.marker, request.limit)
        in_use = hosts.slots_in_use(session,
                                    [row['name'] for row in page.rows])
    now = request.database.now()
    return requests.Response(request.page(
        'hosts', page,
        lambda row: _plain(request, row, in_use[row['name']], now)))


def show(request: requests.Request) -> requests.Response:
    with request.database.read() as session:
        row = hosts.get(session, request.path['name'])
    return _response(request, row)


def update(request: requests.Request) -> requests.Response:
    values = dict(request.body['host'])
    if 'link_rate_limit' in values:
        values['link_rate'] = values.pop('link_rate_limit')
    row = request.database.retrying(lambda session: hosts.change(
        session, request.path['name'], request.if_match, values))
    return _response(request, row)


def services(request: requests.Request) -> requests.Response:
    with request.database.read() as session:
        rows = hosts.services(session)
    late = request.database.now() - request.conf.engine.lease_time
    return requests.Response({'services': [
        {'id': row['id'], 'binary': row['binary'], 'host': row['host'],
         'state': 'up' if row['seen_at'] > late else 'down',
         'release': row['release'],
         'started_at': requests.time(row['started_at']),
         'seen_at': requests.time(row['seen_at'])} for row in rows]})


def replicas(request: requests.Request) -> requests.Response:
    """Those that agents have reported; a page is one of hosts."""
    host, server = (request.query.get(name) for name in ('host', 'server'))
    with request.database.read() as session:
        page = pages.Page([hosts.get(session, host)], None) if host else (
            hosts.find(session, request.marker, request.limit))
    found: list[Mapping[str, Any]] = [
        _replica(row['name'], one) for row in page.rows
        for one in row['facts'].get('replicas', ())
        if server in (None, one['instance_uuid'])]
    return requests.Response(request.page(
        'replicas', pages.Page(found, page.marker), dict))


def _replica(host: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """:param facts: fields of rpc.replica_objects.DedupReplica"""
    total = facts['total']
    return {
        'server_id': facts['instance_uuid'], 'host': host,
        'source': facts['source'], 'disk': facts['target'],
        'state': facts['state'], 'reason': facts['reason'],
        'total_bytes': facts['size'], 'allocated_bytes': facts['allocated'],
        'share': facts['done'] / total if total else None,
        'refreshed_at': requests.time(facts['refreshed'] or None),
        'expires_at': requests.time(facts['expires'])}


def _response(request: requests.Request, row: Mapping[str, Any]
              ) -> requests.Response:
    with request.database.read() as session:
        in_use = hosts.slots_in_use(session, [row['name']])[row['name']]
    return requests.Response(
        {'host': _plain(request, row, in_use, request.database.now())},
        revision=row['revision'])


def _plain(request: requests.Request, row: Mapping[str, Any], in_use: int,
           now: float) -> dict[str, Any]:
    facts = row['facts']
    engine = request.conf.engine
    guests = facts.get('guests', [])
    seen = row['seen_at']
    return {
        'name': row['name'],
        'agent': 'up' if seen is not None
        and seen > now - engine.agent_timeout else 'down',
        'seen_at': requests.time(seen),
        'release': facts.get('release'),
        'qemu': {'patched': facts.get('patched'),
                 'version': facts.get('qemu_version'),
                 'reason': facts.get('reason')},
        'slots': {
            'nova': facts.get('max_outbound'),
            'limit': row['max_outbound'],
            'effective': slots.limit(facts.get('max_outbound'),
                                     row['max_outbound']
                                     or engine.max_outbound),
            'in_use': in_use},
        'link_rate': facts.get('link_rate'),
        'link_rate_limit': row['link_rate'],
        'guests': len(guests),
        'tracked_guests': sum(bool(guest.get('tracked'))
                              for guest in guests),
        'waiting_reports': facts.get('waiting_reports', 0),
        'replicas': len(facts.get('replicas', ())),
        'revision': row['revision']}
