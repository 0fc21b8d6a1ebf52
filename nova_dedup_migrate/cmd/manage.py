# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate-manage: the database of the controller."""

from __future__ import annotations

from collections.abc import Sequence
import json
import sys
from typing import Any

from oslo_config import cfg

from nova_dedup_migrate.api import openapi
from nova_dedup_migrate.cmd import controller
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import purge
from nova_dedup_migrate.db import schema

PROGRAM = 'nova-dedup-migrate-manage'


def _sync(database: facade.Database, conf: cfg.ConfigOpts) -> int:
    schema.sync(database)
    print('The database has schema %s.' % schema.current(database))
    return 0


def _purge(database: facade.Database, conf: cfg.ConfigOpts) -> int:
    schema.require(database)
    removed = purge.purge(
        database, conf.command.report_days or conf.engine.report_days,
        conf.command.summary_days or conf.engine.summary_days)
    for table, number in removed.items():
        print('%s: %d removed' % (table, number))
    return 0


def _openapi(database: facade.Database, conf: cfg.ConfigOpts) -> int:
    print(json.dumps(openapi.document(), indent=1))
    return 0


def _parsers(parsers: Any) -> None:
    db = parsers.add_parser('db', help='the database').add_subparsers(
        required=True)
    one = db.add_parser('sync', help='bring the schema up to this release')
    one.set_defaults(function=_sync)
    one = db.add_parser('purge', help='remove what is old; engines do it '
                                      'themselves each day')
    one.add_argument('--report-days', type=float, metavar='DAYS',
                     help='age of reports (default: [engine] report_days)')
    one.add_argument('--summary-days', type=float, metavar='DAYS',
                     help='age of migrations and drains (default: [engine] '
                          'summary_days)')
    one.set_defaults(function=_purge)
    one = parsers.add_parser('openapi', help='print the OpenAPI document')
    one.set_defaults(function=_openapi)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    conf = cfg.ConfigOpts()
    conf.register_cli_opt(cfg.SubCommandOpt('command', handler=_parsers))
    controller.configure(conf, sys.argv[1:] if argv is None else argv,
                         PROGRAM)
    try:
        database = facade.Database(conf)
        return int(conf.command.function(database, conf))
    except Exception as error:
        print('%s: %s' % (PROGRAM, error), file=sys.stderr)
        return 1


if __name__ == '__main__':
    sys.exit(main())
