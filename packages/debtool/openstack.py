# SPDX-License-Identifier: Apache-2.0
"""Checks that the distribution's OpenStack finds what packages add to it."""

from debtool import host

_DRIVER = '''
python3 - <<'END'
from nova import conf
from nova import version
from nova.virt import driver
from nova_dedup_migrate.conf import dedup_migrate
from oslo_utils import importutils

conf.CONF([], project='nova', default_config_files=[])
found = importutils.import_class(
    'nova.virt.dedup_migrate.DedupMigrateLibvirtDriver')
assert issubclass(found, driver.ComputeDriver), found.__mro__
dedup_migrate.register_opts(conf.CONF)
assert conf.CONF.dedup_migrate.strategy
print('Nova', version.version_string_with_package())
END
'''

_HORIZON = '''
local=/usr/lib/python3/dist-packages/openstack_dashboard/local
printf 'SECRET_KEY = "check"\\nALLOWED_HOSTS = ["*"]\\n' \\
    >$local/local_settings.py
DJANGO_SETTINGS_MODULE=openstack_dashboard.settings python3 - <<'END'
import django
django.setup()
from django.conf import settings
import horizon
from horizon import base

assert 'nova_dedup_migrate_dashboard' in settings.INSTALLED_APPS
base.Horizon._autodiscover()
import openstack_dashboard.urls  # panels are added when URLs are made
found = {panel.slug for panel in horizon.get_dashboard('admin').get_panels()}
ours = sorted(slug for slug in found if slug.startswith('dedup_'))
assert len(ours) == 3, sorted(found)
print(', '.join(ours))
END
rm $local/local_settings.py
'''


def driver(system):
    """Check that nova-compute finds the driver and its options."""
    return _last(system, 'importing the driver', _DRIVER)


def command_line(system):
    """Check the commands, each of which imports what it needs."""
    for command in ('nova-dedup-migrate --version',
                    'nova-dedup-migrate help report list',
                    'nova-dedup-migrate-manage openapi',
                    'nova-dedup-migrate-status --help',
                    'oslopolicy-policy-generator '
                    '--namespace nova_dedup_migrate'):
        system.run(command, command)
    return '5 commands'


def tempest(system):
    """Check that Tempest finds the plugin, and its tests are imported."""
    found = system.read('listing plugins',
                        'cd /root; tempest list-plugins')
    host.check('nova_dedup_migrate' in found, 'Tempest finds: ' + found)
    return '%s tests' % _last(system, 'loading tests', '''
cd /root
python3 - <<'END'
import unittest
from nova_dedup_migrate_tempest_plugin import plugin
top, base = plugin.Plugin().load_tests()
suite = unittest.TestLoader().discover(top, top_level_dir=base)
assert suite.countTestCases(), (top, base)
assert 'FailedTest' not in str(suite), suite
print(suite.countTestCases())
END
''')


def horizon(system):
    """Check that Horizon finds the panels in the files that enable them."""
    return _last(system, 'loading Horizon', _HORIZON)


def _last(system, what, script):
    lines = system.read(what, script).splitlines()
    host.check(lines, '%s: nothing was written' % what)
    return lines[-1]
