# SPDX-License-Identifier: Apache-2.0
"""The migrations of the schema lead to the models, on each database."""

from alembic import autogenerate
from alembic import migration

from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import models
from nova_dedup_migrate.db import schema
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate.tests.functional.db import servers


class SqliteSchemaTest(base.TestCase):

    def connection(self):
        return 'sqlite:///%s' % (self.temporary_dir() / 'one.sqlite')

    def setUp(self):
        super().setUp()
        self.database = facade.Database(
            controller.configuration(self.connection()))
        self.addCleanup(self.database.close)

    def test_sync(self):
        for version in (None, '0001'):
            if version:
                schema.sync(self.database, version)
            error = self.assertRaises(errors.SchemaOutdated, schema.require,
                                      self.database)
            self.assertIn('db sync', str(error))
        for _ in range(2):
            schema.sync(self.database)
        schema.require(self.database)
        with self.database.engine.connect() as connection:
            found = autogenerate.compare_metadata(
                migration.MigrationContext.configure(
                    connection, opts={'compare_type': True}),
                models.METADATA)
        self.assertEqual([], found)

    def test_clock(self):
        before = self.database.now()
        self.assertGreater(before, 1.7e9)
        self.assertGreaterEqual(self.database.now(), before)


class MariaDbSchemaTest(servers.OnMariaDB, SqliteSchemaTest):
    pass


class PostgresqlSchemaTest(servers.OnPostgreSQL, SqliteSchemaTest):
    pass
