# SPDX-License-Identifier: Apache-2.0
"""The first schema; db/models.py says what the columns mean."""

from alembic import op
import sqlalchemy as sa
from sqlalchemy.dialects import mysql

revision = '0001'
down_revision = None

_OPTIONS = {'mysql_engine': 'InnoDB', 'mysql_charset': 'utf8mb4'}


def _key():
    return sa.BigInteger().with_variant(sa.Integer(), 'sqlite')


def _host():
    return sa.String(255).with_variant(
        mysql.VARCHAR(255, charset='utf8mb4', collation='utf8mb4_bin'),
        'mysql', 'mariadb')


def _data():
    return sa.LargeBinary().with_variant(mysql.MEDIUMBLOB(), 'mysql',
                                         'mariadb')


def _long_text():
    return sa.Text().with_variant(mysql.MEDIUMTEXT(), 'mysql', 'mariadb')


def upgrade():
    op.create_table(
        'claims',
        sa.Column('host', _host(), nullable=False),
        sa.Column('slot', sa.Integer(), autoincrement=False, nullable=False),
        sa.Column('drain_id', sa.String(36), nullable=False),
        sa.Column('server_id', sa.String(36), nullable=False),
        sa.Column('claimed_at', sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint('host', 'slot', name='pk_claims'),
        sa.UniqueConstraint('server_id', name='uq_claims_server_id'),
        **_OPTIONS)
    op.create_index('ix_claims_drain_id', 'claims', ['drain_id'])
    op.create_table(
        'drain_servers',
        sa.Column('key', _key(), nullable=False),
        sa.Column('drain_id', sa.String(36), nullable=False),
        sa.Column('server_id', sa.String(36), nullable=False),
        sa.Column('name', sa.String(255), nullable=False),
        sa.Column('project_id', sa.String(255), nullable=True),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('reason', sa.Text(), nullable=False),
        sa.Column('blockers', sa.JSON(), nullable=False),
        sa.Column('on_blocked', sa.String(32), nullable=False),
        sa.Column('position', sa.Integer(), nullable=False),
        sa.Column('fixed_position', sa.Integer(), nullable=True),
        sa.Column('action', sa.String(32), nullable=False),
        sa.Column('tries', sa.Integer(), nullable=False),
        sa.Column('retry_at', sa.Double(), nullable=True),
        sa.Column('submitted_at', sa.Double(), nullable=True),
        sa.Column('before', sa.JSON(), nullable=True),
        sa.Column('started_at', sa.Double(), nullable=True),
        sa.Column('finished_at', sa.Double(), nullable=True),
        sa.Column('migration_uuid', sa.String(36), nullable=True),
        sa.Column('destination', _host(), nullable=False),
        sa.Column('prediction', sa.JSON(), nullable=True),
        sa.Column('updated_at', sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint('key', name='pk_drain_servers'),
        sa.UniqueConstraint('drain_id', 'server_id',
            name='uq_drain_servers_drain_id_server_id'), **_OPTIONS)
    op.create_index('ix_drain_servers_drain_id_position',
                    'drain_servers', ['drain_id', 'position'])
    op.create_index('ix_drain_servers_migration_uuid',
                    'drain_servers', ['migration_uuid'])
    op.create_index('ix_drain_servers_state', 'drain_servers', ['state'])
    op.create_table(
        'drains',
        sa.Column('key', _key(), nullable=False),
        sa.Column('id', sa.String(36), nullable=False),
        sa.Column('host', _host(), nullable=False),
        sa.Column('active_host', _host(), nullable=True),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('reason', sa.Text(), nullable=False),
        sa.Column('revision', sa.Integer(), nullable=False),
        sa.Column('dry_run', sa.Boolean(), nullable=False),
        sa.Column('order', sa.String(32), nullable=False),
        sa.Column('max_parallel', sa.Integer(), nullable=True),
        sa.Column('link_rate', sa.Double(), nullable=True),
        sa.Column('deadline', sa.Double(), nullable=True),
        sa.Column('on_blocked', sa.String(32), nullable=False),
        sa.Column('wish', sa.String(32), nullable=False),
        sa.Column('cancel', sa.String(32), nullable=True),
        sa.Column('user_id', sa.String(255), nullable=False),
        sa.Column('created_at', sa.Double(), nullable=False),
        sa.Column('updated_at', sa.Double(), nullable=False),
        sa.Column('finished_at', sa.Double(), nullable=True),
        sa.Column('eta', sa.JSON(), nullable=True),
        sa.Column('safe_to_power_off', sa.Boolean(), nullable=False),
        sa.Column('conditions', sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint('key', name='pk_drains'),
        sa.UniqueConstraint('active_host', name='uq_drains_active_host'),
        sa.UniqueConstraint('id', name='uq_drains_id'), **_OPTIONS)
    op.create_index('ix_drains_host_key', 'drains', ['host', 'key'])
    op.create_index('ix_drains_state_key', 'drains', ['state', 'key'])
    op.create_table(
        'estimates',
        sa.Column('key', _key(), nullable=False),
        sa.Column('id', sa.String(36), nullable=False),
        sa.Column('server_id', sa.String(36), nullable=True),
        sa.Column('host', _host(), nullable=True),
        sa.Column('project_id', sa.String(255), nullable=True),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('error', sa.Text(), nullable=False),
        sa.Column('created_at', sa.Double(), nullable=False),
        sa.Column('expires_at', sa.Double(), nullable=False),
        sa.Column('claimed_until', sa.Double(), nullable=True),
        sa.Column('result', _long_text(), nullable=True),
        sa.PrimaryKeyConstraint('key', name='pk_estimates'),
        sa.UniqueConstraint('id', name='uq_estimates_id'), **_OPTIONS)
    op.create_index('ix_estimates_expires_at', 'estimates', ['expires_at'])
    op.create_index('ix_estimates_state_created_at',
                    'estimates', ['state', 'created_at'])
    op.create_table(
        'events',
        sa.Column('id', _key(), nullable=False),
        sa.Column('drain_id', sa.String(36), nullable=False),
        sa.Column('server_id', sa.String(36), nullable=True),
        sa.Column('at', sa.Double(), nullable=False),
        sa.Column('message', sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_events'), **_OPTIONS)
    op.create_index('ix_events_drain_id_id', 'events', ['drain_id', 'id'])
    op.create_table(
        'hosts',
        sa.Column('name', _host(), nullable=False),
        sa.Column('seen_at', sa.Double(), nullable=True),
        sa.Column('facts', sa.JSON(), nullable=False),
        sa.Column('max_outbound', sa.Integer(), nullable=True),
        sa.Column('link_rate', sa.Double(), nullable=True),
        sa.Column('revision', sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint('name', name='pk_hosts'), **_OPTIONS)
    op.create_index('ix_hosts_seen_at', 'hosts', ['seen_at'])
    op.create_table(
        'leases',
        sa.Column('name', sa.String(64), nullable=False),
        sa.Column('owner', sa.String(36), nullable=False),
        sa.Column('generation', sa.BigInteger(), nullable=False),
        sa.Column('expires_at', sa.Double(), nullable=False),
        sa.Column('writes', sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint('name', name='pk_leases'), **_OPTIONS)
    op.create_table(
        'migrations',
        sa.Column('id', _key(), nullable=False),
        sa.Column('uuid', sa.String(36), nullable=False),
        sa.Column('server_id', sa.String(36), nullable=False),
        sa.Column('server_name', sa.String(255), nullable=True),
        sa.Column('project_id', sa.String(255), nullable=True),
        sa.Column('source', _host(), nullable=False),
        sa.Column('destination', _host(), nullable=False),
        sa.Column('state', sa.String(32), nullable=False),
        sa.Column('phase', sa.String(32), nullable=False),
        sa.Column('strategy', sa.String(32), nullable=False),
        sa.Column('started_at', sa.Double(), nullable=False),
        sa.Column('finished_at', sa.Double(), nullable=True),
        sa.Column('updated_at', sa.Double(), nullable=False),
        sa.Column('revision', sa.BigInteger(), nullable=False),
        sa.Column('drain_id', sa.String(36), nullable=True),
        sa.Column('summary', sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_migrations'),
        sa.UniqueConstraint('uuid', name='uq_migrations_uuid'), **_OPTIONS)
    op.create_index('ix_migrations_destination_id',
                    'migrations', ['destination', 'id'])
    op.create_index('ix_migrations_drain_id_id',
                    'migrations', ['drain_id', 'id'])
    op.create_index('ix_migrations_project_id_id',
                    'migrations', ['project_id', 'id'])
    op.create_index('ix_migrations_server_id_id',
                    'migrations', ['server_id', 'id'])
    op.create_index('ix_migrations_source_id', 'migrations', ['source', 'id'])
    op.create_index('ix_migrations_state_id', 'migrations', ['state', 'id'])
    op.create_index('ix_migrations_updated_at_id',
                    'migrations', ['updated_at', 'id'])
    op.create_table(
        'reports',
        sa.Column('migration_uuid', sa.String(36), nullable=False),
        sa.Column('revision', sa.BigInteger(), nullable=False),
        sa.Column('updated_at', sa.Double(), nullable=False),
        sa.Column('data', _data(), nullable=False),
        sa.PrimaryKeyConstraint('migration_uuid', name='pk_reports'),
        **_OPTIONS)
    op.create_index('ix_reports_updated_at', 'reports', ['updated_at'])
    op.create_table(
        'services',
        sa.Column('id', sa.String(36), nullable=False),
        sa.Column('binary', sa.String(64), nullable=False),
        sa.Column('host', _host(), nullable=False),
        sa.Column('release', sa.String(64), nullable=False),
        sa.Column('started_at', sa.Double(), nullable=False),
        sa.Column('seen_at', sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint('id', name='pk_services'), **_OPTIONS)
    op.create_index('ix_services_seen_at', 'services', ['seen_at'])
