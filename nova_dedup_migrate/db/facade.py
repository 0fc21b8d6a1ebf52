# SPDX-License-Identifier: Apache-2.0
"""Transactions.

With MariaDB and PostgreSQL each engine and API process has its own
connections.  With SQLite there is one file, one writer at a time, and all
processes are on one host.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
from typing import Any
from typing import TypeVar

from oslo_config import cfg
from oslo_context import context
from oslo_db import api as oslo_db_api
from oslo_db import options as db_options
from oslo_db.sqlalchemy import enginefacade
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy import orm

from nova_dedup_migrate.db import clock

_Result = TypeVar('_Result')
#: Milliseconds for which SQLite waits for another writer.
_BUSY_MS = 30000


@enginefacade.transaction_context_provider
class _Context(context.RequestContext):
    """What oslo.db keeps its session in; one for each transaction."""


def _with_charset(connection: str) -> str:
    """Return a URL with the character set of the tables.

    oslo.db connects with utf8, of which MariaDB and MySQL know three bytes
    a character: they refuse the name of a server that needs four.
    """
    url = sa.make_url(connection)
    if url.get_backend_name() in ('mysql', 'mariadb') and (
            'charset' not in url.query):
        url = url.update_query_dict({'charset': 'utf8mb4'})
    return url.render_as_string(hide_password=False)


class Database:
    """The database of one process.

    :param conf: oslo.config's ConfigOpts with register_opts() done
    """

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        self._manager = enginefacade.transaction_context()
        options = dict(conf.database)
        self._manager.configure(
            connection=_with_charset(options['connection']),
            **{name: options[name] for name in (
                'max_retries', 'retry_interval', 'connection_debug',
                'mysql_sql_mode', 'connection_recycle_time')})
        self._sqlite = options['connection'].startswith('sqlite')
        if not self._sqlite:
            self._manager.configure(**{name: options[name] for name in (
                'max_pool_size', 'max_overflow', 'pool_timeout')})
        self._manager.append_on_engine_create(_prepare)

    @property
    def engine(self) -> sa.engine.Engine:
        return self._manager.writer.get_engine()

    @contextlib.contextmanager
    def read(self) -> Iterator[orm.Session]:
        """A transaction that only reads."""
        with self._manager.reader.using(
                _Context(overwrite=False)) as session:
            yield session

    @contextlib.contextmanager
    def write(self) -> Iterator[orm.Session]:
        """A transaction that is committed at the end of the block."""
        with self._manager.writer.using(
                _Context(overwrite=False)) as session:
            if self._sqlite:
                # It waits for another writer now.  After a read it would
                # fail instead, as what was read may have changed.
                session.execute(sa.text(
                    "UPDATE leases SET writes = writes WHERE name = ''"))
            yield session

    def retrying(self, function: Callable[[orm.Session], _Result]
                 ) -> _Result:
        """Return function(session), in a transaction that writes.

        It is repeated if the database gave it up for another one, as
        Galera does at the commit.
        """
        @oslo_db_api.wrap_db_retry(max_retries=5, retry_on_deadlock=True)
        def run() -> _Result:
            with self.write() as session:
                return function(session)

        return run()

    def now(self) -> float:
        """Return the time of the database, seconds since the epoch."""
        with self.read() as session:
            return float(session.scalar(sa.select(clock.now())) or 0.0)

    def close(self) -> None:
        self._manager.writer.get_engine().dispose()


def _prepare(engine: sa.engine.Engine) -> None:
    if engine.dialect.name != 'sqlite':
        return

    @event.listens_for(engine, 'connect')
    def connected(connection: Any, record: Any) -> None:
        # Readers and the one writer do not wait for each other.
        for pragma in ('journal_mode = WAL', 'synchronous = NORMAL',
                       'busy_timeout = %d' % _BUSY_MS):
            connection.execute('PRAGMA ' + pragma)


def register_opts(conf: cfg.ConfigOpts, default: str) -> None:
    """Make conf.database known.

    :param default: URL of the database if none is configured
    """
    conf.register_opts(db_options.database_opts, 'database')
    conf.set_default('connection', default, group='database')
