# SPDX-License-Identifier: Apache-2.0
"""A controller for tests: configuration, database, API without HTTP."""

import functools
import json

from oslo_config import cfg
import sqlalchemy as sa
import webob

from nova_dedup_migrate.api import deploy
from nova_dedup_migrate.cmd import controller
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import models
from nova_dedup_migrate.tests import base

ADMIN = 'root:ops:admin,manager,member,reader'
READER = 'alice:blue:reader'
MANAGER = 'bob:blue:manager,member,reader'
STRANGER = 'eve:red:manager,member,reader'


def configuration(connection, **options):
    """Return a ConfigOpts.

    :param options: of [api] and [engine], as api_rate_limit=0
    """
    conf = cfg.ConfigOpts()
    controller.register(conf)
    conf([], default_config_files=[], default_config_dirs=[])
    conf.set_override('connection', connection, 'database')
    conf.set_override('auth_strategy', 'noauth2', 'api')
    conf.set_override('response_validation', 'error', 'api')
    conf.set_override('rate_limit', 0, 'api')
    for name, value in options.items():
        group, _, option = name.partition('_')
        conf.set_override(option, value, group)
    return conf


@functools.cache
def _statements():
    """Return what makes the tables: to compile it takes a while."""
    made = []
    engine = sa.create_mock_engine(
        'sqlite://', lambda statement, *_, **__: made.append(
            str(statement.compile(dialect=engine.dialect))))
    models.METADATA.create_all(engine, checkfirst=False)
    return made


def _make_tables(engine):
    if engine.dialect.name != 'sqlite':
        models.METADATA.create_all(engine)
        return
    with engine.begin() as connection:
        for statement in _statements():
            connection.exec_driver_sql(statement)


class ControllerTestCase(base.TestCase):
    """Has conf and database, on SQLite in a file of its own."""

    options = {}

    def connection(self):
        """Return SQLAlchemy's URL of an empty database of this test."""
        return 'sqlite:///%s' % (self.temporary_dir() / 'controller.sqlite')

    def setUp(self):
        super().setUp()
        self.conf = configuration(self.connection(), **self.options)
        self.database = facade.Database(self.conf)
        _make_tables(self.database.engine)
        self.addCleanup(self.database.close)


class ApiTestCase(ControllerTestCase):
    """Has the API."""

    def setUp(self):
        super().setUp()
        self.application = deploy.deploy(self.conf, self.database)

    def call(self, method, path, body=None, token=ADMIN, status=None,
             headers=()):
        """Return the webob.Response of a request.

        :param body: JSON, or bytes as they are
        :param status: that it has to have
        """
        request = webob.Request.blank(path, method=method)
        if token is not None:
            request.headers['X-Auth-Token'] = token
        if body is not None:
            request.content_type = 'application/json'
            request.body = (body if isinstance(body, bytes)
                            else json.dumps(body).encode())
        request.headers.update(dict(headers))
        response = request.get_response(self.application)
        if status is not None:
            self.assertEqual(status, response.status_int, response.text)
        return response
