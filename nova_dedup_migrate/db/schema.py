# SPDX-License-Identifier: Apache-2.0
"""The versions of the schema, with alembic."""

from __future__ import annotations

import pathlib

from alembic import command
from alembic import config
from alembic import migration
from alembic import script

from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import facade

_DIRECTORY = pathlib.Path(__file__).parent


def _config(database: facade.Database) -> config.Config:
    made = config.Config()
    made.set_main_option('script_location', str(_DIRECTORY))
    made.set_main_option('version_locations', str(_DIRECTORY / 'versions'))
    made.set_main_option('path_separator', 'newline')
    made.attributes['engine'] = database.engine
    return made


def sync(database: facade.Database, revision: str = 'head') -> None:
    """Bring the schema up to this release; does nothing if it is.

    :raises SQLAlchemyError, DBError: the database does not let us
    """
    command.upgrade(_config(database), revision)


def current(database: facade.Database) -> str | None:
    """Return the revision that the database has, None if it is empty."""
    with database.engine.connect() as connection:
        return migration.MigrationContext.configure(
            connection).get_current_revision()


def head() -> str:
    """Return the revision that this release needs."""
    made = config.Config()
    made.set_main_option('script_location', str(_DIRECTORY))
    made.set_main_option('path_separator', 'newline')
    made.set_main_option('version_locations', str(_DIRECTORY / 'versions'))
    return str(script.ScriptDirectory.from_config(made).get_current_head())


def require(database: facade.Database) -> None:
    """Raise SchemaOutdated unless the schema is that of this release."""
    found = current(database)
    if found != head():
        raise errors.SchemaOutdated(found=found or 'none', needed=head())
