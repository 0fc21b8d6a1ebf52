# SPDX-License-Identifier: Apache-2.0
"""JSON Schemas (2020-12) of requests and responses.

Bytes, seconds, bytes per second; times are ISO 8601 in UTC.  null stands
for "not known", and in the bands of predictions for "without end".  A
response may get new fields with a new microversion; a request with a
field that is not here is refused.
"""

from __future__ import annotations

from typing import Any

from nova_dedup_migrate.db import drains
from nova_dedup_migrate.db import estimates
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import migrations

Schema = dict[str, Any]

UUID: Schema = {
    'type': 'string',
    'pattern': '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'}
#: Nova's names of hosts; no control characters, no slash.
HOST: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 255,
                'pattern': r'^[A-Za-z0-9_.:\-]+$'}
#: Two out of a set of markers: numbers, times, names of hosts.
_MARKER: Schema = {'type': 'string', 'minLength': 1, 'maxLength': 255,
                   'pattern': r'^[A-Za-z0-9_.:\-]+$'}
_TIME: Schema = {'type': 'string', 'format': 'date-time', 'maxLength': 40}
_TEXT: Schema = {'type': 'string'}
_COUNT: Schema = {'type': 'integer', 'minimum': 0}
_NUMBER: Schema = {'type': 'number', 'minimum': 0}


def _or_null(schema: Schema) -> Schema:
    return {'anyOf': [schema, {'type': 'null'}]}


def _choice(*words: str) -> Schema:
    return {'type': 'string', 'enum': list(words)}


def _object(**properties: Schema) -> Schema:
    """An object that has all of these and nothing else."""
    return {'type': 'object', 'properties': properties,
            'required': sorted(properties), 'additionalProperties': False}


def _open(**properties: Schema) -> Schema:
    """The body of a request: some of these."""
    return {'type': 'object', 'properties': properties,
            'additionalProperties': False}


def _list(schema: Schema) -> Schema:
    return {'type': 'array', 'items': schema}


_BAND = _object(low=_or_null(_NUMBER), likely=_or_null(_NUMBER),
                high=_or_null(_NUMBER))
_DONE = _object(total=_or_null(_COUNT), done=_or_null(_COUNT),
                remaining=_or_null(_COUNT))
_PREDICTION = _object(time=_BAND, bytes=_BAND, downtime=_BAND,
                      completes={'type': 'boolean'})
_PATHS = _object(peer=_COUNT, zero=_COUNT, storage=_COUNT)

_MIGRATION = _object(
    uuid=UUID, server_id=UUID, server_name=_or_null(_TEXT),
    project_id=_or_null(_TEXT), source=_or_null(_TEXT),
    destination=_or_null(_TEXT), state=_choice(*migrations.STATES),
    phase=_TEXT, strategy=_TEXT, fallback_reason=_or_null(_TEXT),
    error=_or_null(_TEXT), started_at=_TIME, finished_at=_or_null(_TIME),
    updated_at=_TIME, share=_or_null(_NUMBER),
    progress=_object(memory=_DONE, disk=_DONE),
    rates=_object(link=_or_null(_NUMBER), dirty=_or_null(_NUMBER)),
    round=_or_null(_COUNT), bytes=_PATHS, link_bytes=_or_null(_COUNT),
    eta=_or_null(_BAND), eta_memory=_or_null(_BAND),
    eta_disk=_or_null(_BAND), waiting_for=_or_null(_TEXT),
    drain_id=_or_null(UUID), total_time=_or_null(_NUMBER),
    downtime_ms=_or_null(_NUMBER), predicted=_or_null(_PREDICTION),
    stock=_or_null(_PREDICTION), warnings=_COUNT)

_ROUND = _object(
    number=_COUNT, seconds=_NUMBER, pages=_PATHS, transferred_bytes=_COUNT,
    remaining_bytes=_COUNT, link_rate=_NUMBER, dirty_rate=_NUMBER,
    refused_pages=_COUNT, resent_pages=_COUNT)

BLOCKER = _object(code=_TEXT, message=_TEXT,
                  choices=_list(_choice(*drains.ON_BLOCKED)))

SERVER_ESTIMATE = _object(
    server_id=UUID, server_name=_TEXT, project_id=_or_null(_TEXT),
    blockers=_list(BLOCKER), strategy=_or_null(_TEXT),
    plan=_or_null(_PREDICTION), stock=_or_null(_PREDICTION),
    dirty_rate=_or_null(_NUMBER), working_set=_or_null(_NUMBER),
    runs_alone={'type': 'boolean'},
    confidence=_choice('high', 'medium', 'low'),
    explanation=_list(_TEXT))

_ESTIMATE = _object(
    id=UUID, server_id=_or_null(UUID), host=_or_null(_TEXT),
    state=_choice(*estimates.STATES), error=_or_null(_TEXT),
    created_at=_TIME, expires_at=_TIME,
    total_time=_or_null(_BAND), servers=_or_null(_list(SERVER_ESTIMATE)))

CONDITION = _object(type=_TEXT, status={'type': 'boolean'}, reason=_TEXT,
                    checked_at=_TIME)

_DRAIN = _object(
    id=UUID, host=_TEXT, state=_choice(*drains.STATES), reason=_TEXT,
    requested=_choice(*drains.WISHES), dry_run={'type': 'boolean'},
    order=_choice(*drains.ORDERS), max_parallel=_or_null(_COUNT),
    link_rate=_or_null(_NUMBER), deadline=_or_null(_TIME),
    on_blocked=_choice(*drains.ON_BLOCKED),
    cancel=_or_null(_choice(*drains.IN_FLIGHT_FATES)), user_id=_TEXT,
    created_at=_TIME, updated_at=_TIME, finished_at=_or_null(_TIME),
    revision=_COUNT, counts={
        'type': 'object', 'additionalProperties': False,
        'properties': dict.fromkeys(drains.SERVER_STATES, _COUNT),
        'required': sorted(drains.SERVER_STATES)},
    eta=_or_null(_BAND), safe_to_power_off={'type': 'boolean'},
    conditions=_list(CONDITION))

_DRAIN_SERVER = _object(
    server_id=UUID, server_name=_TEXT, project_id=_or_null(_TEXT),
    state=_choice(*drains.SERVER_STATES), reason=_TEXT,
    blockers=_list(BLOCKER), on_blocked=_choice(*drains.ON_BLOCKED),
    position=_COUNT, action=_TEXT, tries=_COUNT,
    retry_at=_or_null(_TIME), submitted_at=_or_null(_TIME),
    started_at=_or_null(_TIME), finished_at=_or_null(_TIME),
    migration_uuid=_or_null(UUID), destination=_or_null(_TEXT),
    estimate=_or_null(SERVER_ESTIMATE))

_EVENT = _object(at=_TIME, server_id=_or_null(UUID), message=_TEXT)

_HOST = _object(
    name=_TEXT, agent=_choice('up', 'down'), seen_at=_or_null(_TIME),
    release=_or_null(_TEXT), qemu=_object(
        patched=_or_null({'type': 'boolean'}), version=_or_null(_TEXT),
        reason=_or_null(_TEXT)),
    slots=_object(nova=_or_null(_COUNT), limit=_or_null(_COUNT),
                  effective=_COUNT, in_use=_COUNT),
    link_rate=_or_null(_NUMBER), link_rate_limit=_or_null(_NUMBER),
    guests=_COUNT, tracked_guests=_COUNT, waiting_reports=_COUNT,
    replicas=_COUNT, revision=_COUNT)

_SERVICE = _object(id=UUID, binary=_TEXT, host=_TEXT,
                   state=_choice('up', 'down'), release=_TEXT,
                   started_at=_TIME, seen_at=_TIME)

_REPLICA = _object(server_id=UUID, host=_TEXT, source=_TEXT, disk=_TEXT,
                   state=_choice(*hosts.REPLICA_STATES), reason=_TEXT,
                   total_bytes=_COUNT, allocated_bytes=_COUNT,
                   share=_or_null(_NUMBER), refreshed_at=_or_null(_TIME),
                   expires_at=_TIME)

_LINKS = _list(_object(rel=_choice('next'), href=_TEXT))


def _page(name: str, schema: Schema) -> Schema:
    return {'type': 'object', 'additionalProperties': False,
            'properties': {name: _list(schema), name + '_links': _LINKS},
            'required': [name]}


# Responses.
MIGRATIONS = _page('migrations', _MIGRATION)
MIGRATION = _object(migration=_MIGRATION)
ROUNDS = _object(rounds=_list(_ROUND))
REPORT = _object(report={'type': 'object'})
ESTIMATES = _page('estimates', _ESTIMATE)
ESTIMATE = _object(estimate=_ESTIMATE)
DRAINS = _page('drains', _DRAIN)
DRAIN = _object(drain=_DRAIN)
DRAIN_SERVERS = _page('servers', _DRAIN_SERVER)
DRAIN_SERVER = _object(server=_DRAIN_SERVER)
EVENTS = _page('events', _EVENT)
HOSTS = _page('hosts', _HOST)
HOST_SHOW = _object(host=_HOST)
SERVICES = _object(services=_list(_SERVICE))
REPLICAS = _page('replicas', _REPLICA)
ANYTHING: Schema = {'type': 'object'}
ERRORS = _object(errors=_list(_object(
    status=_COUNT, title=_TEXT, detail=_TEXT, request_id=_TEXT)))

# Queries: of each parameter its schema, as the text in the URL.
PAGE: Schema = {
    'limit': {'type': 'string', 'pattern': '^[0-9]{1,4}$'},
    'marker': _MARKER}
MIGRATIONS_QUERY: Schema = {
    **PAGE, 'state': _choice(*migrations.STATES), 'host': HOST,
    'server': UUID,
    'project': {'type': 'string', 'minLength': 1, 'maxLength': 255},
    'drain': UUID, 'changes-since': _TIME}
REPLICAS_QUERY: Schema = {**PAGE, 'host': HOST, 'server': UUID}
ESTIMATES_QUERY: Schema = {**PAGE, 'state': _choice(*estimates.STATES)}
DRAINS_QUERY: Schema = {**PAGE, 'state': _choice(*drains.STATES),
                        'host': HOST}
DRAIN_SERVERS_QUERY: Schema = {**PAGE,
                               'state': _choice(*drains.SERVER_STATES)}

# Bodies of requests.
_PARALLEL: Schema = _or_null({'type': 'integer', 'minimum': 1,
                              'maximum': 100})
_RATE: Schema = _or_null({'type': 'number', 'exclusiveMinimum': 0,
                          'maximum': 1e15})
ESTIMATE_CREATE: Schema = {
    'type': 'object', 'required': ['estimate'],
    'additionalProperties': False, 'properties': {'estimate': {
        'oneOf': [
            {'type': 'object', 'properties': {'server_id': UUID},
             'required': ['server_id'], 'additionalProperties': False},
            {'type': 'object', 'properties': {'host': HOST},
             'required': ['host'], 'additionalProperties': False}]}}}
DRAIN_CREATE: Schema = {
    'type': 'object', 'required': ['drain'], 'additionalProperties': False,
    'properties': {'drain': {
        **_open(id=UUID, host=HOST, dry_run={'type': 'boolean'},
                order=_choice(*drains.ORDERS), max_parallel=_PARALLEL,
                link_rate=_RATE, deadline=_or_null(_TIME),
                on_blocked=_choice(*drains.ON_BLOCKED),
                servers={**_list(_object(
                    server_id=UUID,
                    on_blocked=_choice(*drains.ON_BLOCKED))),
                    'maxItems': 500}),
        'required': ['host']}}}
DRAIN_UPDATE: Schema = {
    'type': 'object', 'required': ['drain'], 'additionalProperties': False,
    'properties': {'drain': {
        **_open(max_parallel=_PARALLEL, link_rate=_RATE,
                deadline=_or_null(_TIME)), 'minProperties': 1}}}
DRAIN_ACTION: Schema = {
    'type': 'object', 'minProperties': 1, 'maxProperties': 1,
    'additionalProperties': False, 'properties': {
        'pause': {'type': 'null'}, 'resume': {'type': 'null'},
        'retry': {'type': 'null'},
        'cancel': {**_open(in_flight=_choice(*drains.IN_FLIGHT_FATES)),
                   'required': ['in_flight']}}}
DRAIN_SERVER_UPDATE: Schema = {
    'type': 'object', 'required': ['server'],
    'additionalProperties': False, 'properties': {'server': {
        **_open(skip={'const': True},
                position=_or_null({'type': 'integer', 'minimum': 0,
                                   'maximum': 1000000}),
                on_blocked=_choice(*drains.ON_BLOCKED)),
        'minProperties': 1}}}
HOST_UPDATE: Schema = {
    'type': 'object', 'required': ['host'], 'additionalProperties': False,
    'properties': {'host': {
        **_open(max_outbound=_PARALLEL, link_rate_limit=_RATE),
        'minProperties': 1}}}
