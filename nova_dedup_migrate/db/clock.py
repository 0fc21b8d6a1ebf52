# SPDX-License-Identifier: Apache-2.0
"""The clock of the database.

Controllers compare times with those that other controllers have written.
They use the one clock that all of them share, and never their own.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext import compiler
from sqlalchemy.sql import expression


class now(expression.FunctionElement):  # type: ignore[type-arg]
    """Seconds since the epoch, at the start of the statement or later."""

    type = sa.Double()
    inherit_cache = True


@compiler.compiles(now, 'sqlite')
def _sqlite(element: Any, compiled: Any, **kwargs: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiler.compiles(now, 'mysql')
@compiler.compiles(now, 'mariadb')
def _mysql(element: Any, compiled: Any, **kwargs: Any) -> str:
    # SYSDATE() is not replicated alike by statement; NOW(6) is.
    return '(UNIX_TIMESTAMP(NOW(6)) + 0.0)'


@compiler.compiles(now, 'postgresql')
def _postgresql(element: Any, compiled: Any, **kwargs: Any) -> str:
    # now() is the start of the transaction, which may be long ago.
    return 'CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS DOUBLE PRECISION)'
