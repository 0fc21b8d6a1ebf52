# SPDX-License-Identifier: Apache-2.0
"""Test cases of the controller on the databases that operators run."""

import atexit
import functools
import pathlib
import shutil
import tempfile
import uuid

import sqlalchemy as sa

from testkit import database_servers


@functools.cache
def _server(kind):
    """Return a Server that serves all tests of this process."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix='database-'))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    server = kind(directory)
    server.start()
    atexit.register(server.close)
    return server


class _OnServer:
    """In front of a test case that has connection()."""

    def connection(self):
        url = sa.make_url(_server(self.kind).url)
        name = 'test_' + uuid.uuid4().hex
        engine = sa.create_engine(url, isolation_level='AUTOCOMMIT')
        with engine.connect() as connection:
            connection.exec_driver_sql('CREATE DATABASE ' + name)
        engine.dispose()
        return url.set(database=name).render_as_string(hide_password=False)


class OnMariaDB(_OnServer):
    kind = database_servers.MariaDB


class OnPostgreSQL(_OnServer):
    kind = database_servers.PostgreSQL
