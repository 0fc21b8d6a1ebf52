# SPDX-License-Identifier: Apache-2.0
"""The rules of AppArmor cover the defaults of the agent's options."""

import pathlib
import re

from oslo_config import cfg

from nova_dedup_migrate.conf import agent
from nova_dedup_migrate.conf import dedup_migrate
from nova_dedup_migrate.conf import nova
from nova_dedup_migrate.identity import beside
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.tests import base

_PROFILE = (pathlib.Path(__file__).parents[4]
            / 'etc/apparmor.d/usr.bin.nova-dedup-migrate-agent')
_RULE = re.compile(r'\s*(?:owner )?([/@]\S+) ([a-z]+),')
_GLOBS = {'**': '.*', '*': '[^/]*', '{': '(?:', '}': ')', ',': '|',
          '@{run}': '/run', '@{PROC}': '/proc', '@{sys}': '/sys',
          '@{pid}': '[0-9]+', '@{tid}': '[0-9]+'}
_TOKEN = re.compile(r'@\{\w+\}|\*\*|.')
#: Of nova-compute, and of guests.
_NOT_OPENED = {'volumes_path', 'page_cache_lister'}
_WRITTEN = {'index_path': 'rwk', 'journals_path': 'rw',
            'replicas_path': 'rwk'}


def _expression(glob):
    return ''.join(_GLOBS.get(token, re.escape(token))
                   for token in _TOKEN.findall(glob))


class ProfileTest(base.TestCase):

    def setUp(self):
        super().setUp()
        matches = map(_RULE.fullmatch, _PROFILE.read_text().splitlines())
        self.rules = [(re.compile(_expression(match[1])), match[2])
                      for match in matches if match]

    def check(self, path, wanted):
        allowed = ''.join(rights for expression, rights in self.rules
                          if expression.fullmatch(path))
        self.assertLessEqual(set(wanted), set(allowed), path)

    def test_defaults(self):
        conf = cfg.ConfigOpts()
        for options in dedup_migrate, agent, nova:
            options.register_opts(conf)
        conf([], default_config_files=[], default_config_dirs=[])
        # the groups in which the agent has options
        found = {'instances_path': conf.instances_path,
                 **conf.dedup_migrate, **conf.libvirt, **conf.glance}
        paths = {name: value for name, value in found.items()
                 if isinstance(value, str) and value.startswith('/')
                 and name not in _NOT_OPENED}
        self.assertLess({'channel_key_file', 'index_path',
                         'nfs_mount_point_base'}, set(paths))
        for name, path in paths.items():
            wanted = _WRITTEN.get(name, 'r')
            if name.endswith('_file'):
                self.check(path, wanted)
            else:
                self.check(path + '/', wanted)
                self.check(path + '/a', wanted)

    def test_images(self):
        top = '/var/lib/nova/instances/'
        self.check(top + '_base/0a1b', 'rk')
        for name in 'disk', 'disk.eph0':
            self.check(top + '0a1b-2c/' + name, 'rwk')
        for directory in top + '_base/', '/var/lib/nova/mnt/0a1b/':
            self.check(directory + beside.PREFIX + '0a1b', 'rw')

    def test_what_is_only_read(self):
        for path in ('/var/lib/nova/instances/_base/0a1b', '/dev/sda',
                     '/etc/nova/nova.conf'):
            self.assertRaises(AssertionError, self.check, path, 'w')

    def test_programs(self):
        conf = cfg.ConfigOpts()
        agent.register_opts(conf)
        for name in (writer._CONFINED[0], conf.dedup_migrate.storage_daemon,
                     'ionice', 'qemu-system-x86_64'):
            self.check('/usr/bin/' + name, 'rix')
