# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate-status: checks before and after an upgrade."""

from __future__ import annotations

from collections.abc import Sequence
import sys

from oslo_config import cfg
from oslo_upgradecheck import common_checks
from oslo_upgradecheck import upgradecheck
import sqlalchemy as sa

from nova_dedup_migrate.cmd import controller
from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import errors
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import models
from nova_dedup_migrate.db import schema

_Result = upgradecheck.Result
_OK, _WARNING, _FAILURE = (upgradecheck.Code.SUCCESS,
                           upgradecheck.Code.WARNING,
                           upgradecheck.Code.FAILURE)


class Checks(upgradecheck.UpgradeCommands):
    """upgrade check"""

    def __init__(self, conf: cfg.ConfigOpts) -> None:
        super().__init__()
        self._conf = conf

    def _schema(self) -> _Result:
        try:
            schema.require(facade.Database(self._conf))
        except errors.SchemaOutdated as error:
            return _Result(_FAILURE, str(error))
        except Exception as error:
            return _Result(_FAILURE, 'the database does not answer: %s'
                           % str(error)[:200])
        return _Result(_OK)

    def _engines(self) -> _Result:
        """An engine of another release may not know new states."""
        table = models.services
        try:
            with facade.Database(self._conf).read() as session:
                releases = set(session.scalars(
                    sa.select(table.c.release).where(
                        table.c.seen_at > clock.now()
                        - self._conf.engine.lease_time)))
        except Exception as error:
            return _Result(_FAILURE, 'the engines are not known: %s'
                           % str(error)[:200])
        others = releases - {controller.release()}
        if others:
            return _Result(_WARNING, 'engines of release %s run; restart '
                           'them' % ', '.join(sorted(others)))
        return _Result(_OK)

    def _policy(self) -> _Result:
        result: _Result = common_checks.check_policy_json(self, self._conf)
        return result

    _upgrade_checks = (('Database schema', _schema),
                       ('Releases of engines', _engines),
                       ('Policy file', _policy))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    conf = cfg.ConfigOpts()
    controller.register(conf)
    return int(upgradecheck.main(
        conf, 'nova-dedup-migrate', Checks(conf),
        list(sys.argv[1:] if argv is None else argv)))


if __name__ == '__main__':
    sys.exit(main())
