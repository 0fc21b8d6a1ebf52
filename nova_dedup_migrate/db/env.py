# SPDX-License-Identifier: Apache-2.0
"""What alembic runs; db/schema.py gives it the engine."""

from alembic import context

from nova_dedup_migrate.db import models


def _run() -> None:
    engine = context.config.attributes['engine']
    with engine.connect() as connection:
        context.configure(connection=connection,
                          target_metadata=models.METADATA,
                          render_as_batch=engine.dialect.name == 'sqlite')
        with context.begin_transaction():
            context.run_migrations()
        if connection.in_transaction():
            connection.commit()


_run()
