# SPDX-License-Identifier: Apache-2.0
"""Leases, lists, drains and killed engines on MariaDB and PostgreSQL.

The unit tests run the same on SQLite, which has one writer at a time and
knows neither row locks nor conflicts of transactions.
"""

from nova_dedup_migrate.tests.functional.db import servers
from nova_dedup_migrate.tests.unit.api import test_drains
from nova_dedup_migrate.tests.unit.api import test_migrations
from nova_dedup_migrate.tests.unit.db import test_leases
from nova_dedup_migrate.tests.unit.engine import test_kill

_SUITES = (test_leases.LeasesTest, test_drains.DrainsTest,
           test_migrations.ListTest, test_migrations.ReportTest)

for _server in (servers.OnMariaDB, servers.OnPostgreSQL):
    for _suite in _SUITES:
        _name = _server.__name__ + _suite.__name__
        globals()[_name] = type(_name, (_server, _suite),
                                {'__module__': __name__})
del _server, _suite, _name


class OnMariaDBKillTest(servers.OnMariaDB, test_kill.KillTest):
    pass
