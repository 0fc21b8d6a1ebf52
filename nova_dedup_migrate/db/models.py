# SPDX-License-Identifier: Apache-2.0
"""The tables of the controller.

Times are seconds since the epoch by the database's clock (db/clock.py),
sizes bytes, rates bytes per second.  A page of a list continues after a
key (id), never at an offset.

===============  ======================================================
migrations       one row a live migration: what lists and charts show
reports          the whole report of a migration, zlib of JSON
estimates        predictions that somebody has requested
drains           hosts that are being emptied
drain_servers    the servers of a drain
events           what happened in a drain
hosts            what agents report of their hosts, and limits
services         engines, with their heartbeats
leases           which engine works on what; see db/leases.py
claims           slots of hosts that a server of a drain occupies
===============  ======================================================
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql

#: Lengths of Nova's own columns.
_HOST = 255
_NAME = 255

METADATA = sa.MetaData(naming_convention={
    'ix': 'ix_%(table_name)s_%(column_0_N_name)s',
    'uq': 'uq_%(table_name)s_%(column_0_N_name)s',
    'pk': 'pk_%(table_name)s'})

_OPTIONS: dict[str, Any] = {'mysql_engine': 'InnoDB',
                            'mysql_charset': 'utf8mb4'}


def _key() -> sa.types.TypeEngine:
    # SQLite counts up only what is declared INTEGER.
    return sa.BigInteger().with_variant(sa.Integer(), 'sqlite')


def _host() -> sa.types.TypeEngine:
    """Names of hosts and UUIDs: compared byte by byte everywhere."""
    return sa.String(_HOST).with_variant(
        mysql.VARCHAR(_HOST, charset='utf8mb4', collation='utf8mb4_bin'),
        'mysql', 'mariadb')


def _uuid() -> sa.types.TypeEngine:
    return sa.String(36)


def _word() -> sa.types.TypeEngine:
    return sa.String(32)


def _data() -> sa.types.TypeEngine:
    return sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql',
                                         'mariadb')


def _long_text() -> sa.types.TypeEngine:
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


migrations = sa.Table(
    'migrations', METADATA,
    sa.Column('id', _key(), primary_key=True),
    sa.Column('uuid', _uuid(), nullable=False, unique=True),
    sa.Column('server_id', _uuid(), nullable=False),
    sa.Column('server_name', sa.String(_NAME)),
    sa.Column('project_id', sa.String(255)),
    sa.Column('source', _host(), nullable=False),
    sa.Column('destination', _host(), nullable=False),
    # running, completed, cancelled, failed
    sa.Column('state', _word(), nullable=False),
    sa.Column('phase', _word(), nullable=False),
    sa.Column('strategy', _word(), nullable=False),
    sa.Column('started_at', sa.Double(), nullable=False),
    sa.Column('finished_at', sa.Double()),
    sa.Column('updated_at', sa.Double(), nullable=False),
    # of the newest report; 0: known from Nova alone
    sa.Column('revision', sa.BigInteger(), nullable=False),
    sa.Column('drain_id', _uuid()),
    # see engine/summary.py
    sa.Column('summary', sa.JSON(), nullable=False),
    sa.Index(None, 'state', 'id'),
    sa.Index(None, 'source', 'id'),
    sa.Index(None, 'destination', 'id'),
    sa.Index(None, 'server_id', 'id'),
    sa.Index(None, 'project_id', 'id'),
    sa.Index(None, 'drain_id', 'id'),
    sa.Index(None, 'updated_at', 'id'), **_OPTIONS)

reports = sa.Table(
    'reports', METADATA,
    sa.Column('migration_uuid', _uuid(), primary_key=True),
    sa.Column('revision', sa.BigInteger(), nullable=False),
    sa.Column('updated_at', sa.Double(), nullable=False),
    sa.Column('data', _data(), nullable=False),
    sa.Index(None, 'updated_at'), **_OPTIONS)

estimates = sa.Table(
    'estimates', METADATA,
    sa.Column('key', _key(), primary_key=True),
    sa.Column('id', _uuid(), nullable=False, unique=True),
    sa.Column('server_id', _uuid()),
    sa.Column('host', _host()),
    # of who has requested it; NULL: may see all projects
    sa.Column('project_id', sa.String(255)),
    # pending, running, done, failed
    sa.Column('state', _word(), nullable=False),
    sa.Column('error', sa.Text(), nullable=False),
    sa.Column('created_at', sa.Double(), nullable=False),
    sa.Column('expires_at', sa.Double(), nullable=False),
    # whose turn ends then; another engine repeats the work
    sa.Column('claimed_until', sa.Double()),
    # JSON, see engine/estimates.py
    sa.Column('result', _long_text()),
    sa.Index(None, 'state', 'created_at'),
    sa.Index(None, 'expires_at'), **_OPTIONS)

drains = sa.Table(
    'drains', METADATA,
    sa.Column('key', _key(), primary_key=True),
    sa.Column('id', _uuid(), nullable=False, unique=True),
    sa.Column('host', _host(), nullable=False),
    # the host while the drain is under way: one at a time
    sa.Column('active_host', _host(), unique=True),
    sa.Column('state', _word(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('revision', sa.Integer(), nullable=False),
    sa.Column('dry_run', sa.Boolean(), nullable=False),
    sa.Column('order', _word(), nullable=False),
    sa.Column('max_parallel', sa.Integer()),
    sa.Column('link_rate', sa.Double()),
    sa.Column('deadline', sa.Double()),
    sa.Column('on_blocked', _word(), nullable=False),
    # {server: what to do if it cannot move}, null if there is none
    sa.Column('choices', sa.JSON(none_as_null=True)),
    # what an operator has requested last: run, pause, cancel, retry
    sa.Column('wish', _word(), nullable=False),
    # of a cancelled drain, what happens to what runs: wait, abort
    sa.Column('cancel', _word()),
    sa.Column('user_id', sa.String(255), nullable=False),
    sa.Column('created_at', sa.Double(), nullable=False),
    sa.Column('updated_at', sa.Double(), nullable=False),
    sa.Column('finished_at', sa.Double()),
    sa.Column('eta', sa.JSON()),
    # why it may be switched off, or not; see engine/conditions.py
    sa.Column('safe_to_power_off', sa.Boolean(), nullable=False),
    sa.Column('conditions', sa.JSON(), nullable=False),
    sa.Index(None, 'host', 'key'),
    sa.Index(None, 'state', 'key'), **_OPTIONS)

drain_servers = sa.Table(
    'drain_servers', METADATA,
    sa.Column('key', _key(), primary_key=True),
    sa.Column('drain_id', _uuid(), nullable=False),
    sa.Column('server_id', _uuid(), nullable=False),
    sa.Column('name', sa.String(_NAME), nullable=False),
    sa.Column('project_id', sa.String(255)),
    sa.Column('state', _word(), nullable=False),
    sa.Column('reason', sa.Text(), nullable=False),
    sa.Column('blockers', sa.JSON(), nullable=False),
    sa.Column('on_blocked', _word(), nullable=False),
    sa.Column('position', sa.Integer(), nullable=False),
    # given by an operator; NULL: by the order of the drain
    sa.Column('fixed_position', sa.Integer()),
    # live-migration, migrate, stop
    sa.Column('action', _word(), nullable=False),
    sa.Column('tries', sa.Integer(), nullable=False),
    sa.Column('retry_at', sa.Double()),
    sa.Column('submitted_at', sa.Double()),
    # what Nova had of the server before the request, so that what comes
    # of it is found without comparing clocks
    sa.Column('before', sa.JSON()),
    sa.Column('started_at', sa.Double()),
    sa.Column('finished_at', sa.Double()),
    sa.Column('migration_uuid', _uuid()),
    sa.Column('destination', _host(), nullable=False),
    sa.Column('prediction', sa.JSON()),
    sa.Column('updated_at', sa.Double(), nullable=False),
    sa.UniqueConstraint('drain_id', 'server_id'),
    sa.Index(None, 'drain_id', 'position'),
    sa.Index(None, 'migration_uuid'),
    sa.Index(None, 'state'), **_OPTIONS)

events = sa.Table(
    'events', METADATA,
    sa.Column('id', _key(), primary_key=True),
    sa.Column('drain_id', _uuid(), nullable=False),
    sa.Column('server_id', _uuid()),
    sa.Column('at', sa.Double(), nullable=False),
    sa.Column('message', sa.Text(), nullable=False),
    sa.Index(None, 'drain_id', 'id'), **_OPTIONS)

hosts = sa.Table(
    'hosts', METADATA,
    sa.Column('name', _host(), primary_key=True),
    sa.Column('seen_at', sa.Double()),
    # what the agent sends, see rpc.objects.DedupHostReport
    sa.Column('facts', sa.JSON(), nullable=False),
    # limits of operators; NULL: the configuration's
    sa.Column('max_outbound', sa.Integer()),
    sa.Column('link_rate', sa.Double()),
    sa.Column('revision', sa.Integer(), nullable=False),
    sa.Index(None, 'seen_at'), **_OPTIONS)

services = sa.Table(
    'services', METADATA,
    sa.Column('id', _uuid(), primary_key=True),
    sa.Column('binary', sa.String(64), nullable=False),
    sa.Column('host', _host(), nullable=False),
    sa.Column('release', sa.String(64), nullable=False),
    sa.Column('started_at', sa.Double(), nullable=False),
    sa.Column('seen_at', sa.Double(), nullable=False),
    sa.Index(None, 'seen_at'), **_OPTIONS)

leases = sa.Table(
    'leases', METADATA,
    sa.Column('name', sa.String(64), primary_key=True),
    sa.Column('owner', _uuid(), nullable=False),
    sa.Column('generation', sa.BigInteger(), nullable=False),
    sa.Column('expires_at', sa.Double(), nullable=False),
    # counts the writes of the owner, so that each of them changes the row
    sa.Column('writes', sa.BigInteger(), nullable=False), **_OPTIONS)

claims = sa.Table(
    'claims', METADATA,
    sa.Column('host', _host(), primary_key=True),
    # 0 up to the limit of the host
    sa.Column('slot', sa.Integer(), primary_key=True,
              autoincrement=False),
    sa.Column('drain_id', _uuid(), nullable=False),
    sa.Column('server_id', _uuid(), nullable=False, unique=True),
    sa.Column('claimed_at', sa.Double(), nullable=False),
    sa.Index(None, 'drain_id'), **_OPTIONS)
