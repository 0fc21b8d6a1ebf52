# SPDX-License-Identifier: Apache-2.0
"""Which of Tempest's tests run in the lab."""

from pathlib import Path
import re

#: Tests that are left out: an --exclude-list, with reasons.
SKIP_LIST = Path(__file__).with_name('tempest-skip-list')
_PLUGIN = r'nova_dedup_migrate_tempest_plugin\.scenario\.'
_ADMIN = r'tempest\.api\.compute\.admin\.'
_SCENARIO = r'tempest\.scenario\.test_'
#: Name: regular expressions of its tests.
GROUPS = {
    'plugin': (_PLUGIN + '(?!test_agents)',),
    # the destination's agent is gone
    'without-agent': (_PLUGIN + 'test_agents',),
    'live-migration': (_ADMIN + 'test_live_migration',
                       _ADMIN + 'test_migrations',
                       _ADMIN + 'test_servers_on_multinodes'),
    'scenario': (_SCENARIO + 'minimum_basic',
                 _SCENARIO + 'server_basic_ops',
                 _SCENARIO + 'server_advanced_ops',
                 _SCENARIO + 'network_advanced_server_ops',
                 _SCENARIO + 'volume_backup_restore'),
    'servers': (r'tempest\.api\.compute\.servers',
                r'tempest\.api\.compute\.images',
                r'tempest\.api\.compute\.volumes'),
    'volume': (r'tempest\.api\.volume\.(?!admin)',),
}
#: A part that ends within a quarter of an hour, with the lab.
QUICK = {
    'plugin': (_PLUGIN + r'test_reports\.ReportTest\.test_report',
               _PLUGIN + r'test_reports\.ReportTest\.test_pages',
               _PLUGIN + r'test_policies\.PolicyTest\.test_what_names'),
    'scenario': (_SCENARIO + 'server_basic_ops',),
}
#: Those of our plugin; they need our driver.
OURS = ('plugin', 'without-agent')
#: Those of which tests log in to guests.  The guest that lets them has a
#: config drive, a local disk with which Tempest's tests do not migrate
#: instances that boot from volumes.
LOGGING_IN = (*OURS, 'scenario', 'servers')


def group_of(name):
    """Return the group of a test or of a class's setUp, None if unknown."""
    for group, tests in GROUPS.items():
        if any(re.search(test, name) for test in tests):
            return group
    return None


def skip_list():
    """Return (regular expression, reason) of the tests that are left out."""
    lines = SKIP_LIST.read_text().splitlines()
    return [tuple(part.strip() for part in line.split('#', 1))
            for line in lines if line and not line.startswith('#')]
