# SPDX-License-Identifier: Apache-2.0
import pathlib

from oslo_config import cfg

from nova_dedup_migrate.conf import agent
from nova_dedup_migrate.conf import dedup_migrate
from nova_dedup_migrate.conf import opts
from nova_dedup_migrate.conf import paths
from nova_dedup_migrate.tests import base

_SAMPLE = (pathlib.Path(__file__).parents[4]
           / 'etc/nova-dedup-migrate/nova.conf.sample')


class OptionsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        dedup_migrate.register_opts(self.conf)
        paths.register_opts(self.conf)

    def _read(self, text):
        path = self.temporary_dir() / 'nova.conf'
        path.write_text(text)
        self.conf(['--config-file', str(path)])
        return self.conf.dedup_migrate

    def test_defaults(self):
        group = self._read('')
        self.assertTrue(group.enabled)
        self.assertEqual('auto', group.strategy)
        self.assertEqual('/var/lib/nova/dedup_migrate/operations',
                         group.operations_path)

    def test_reports_follow_the_state_path(self):
        group = self._read('[DEFAULT]\nstate_path = /srv/nova\n')
        self.assertEqual('/srv/nova/dedup_migrate/operations',
                         group.operations_path)

    def test_refused(self):
        for line in ('strategy = fast', 'min_gain = 2',
                     'operations_kept = 0', 'watch_interval = 0',
                     'max_extra_downtime = -1', 'rpc_timeout = -1',
                     'recovery_timeout = 59'):
            name = line.split()[0]
            group = self._read('[dedup_migrate]\n%s\n' % line)
            self.assertRaises(ValueError, getattr, group, name)

    def test_paths_beside_nova(self):
        """Nova has registered an option of that name with its own help."""
        conf = cfg.ConfigOpts()
        conf.register_opt(cfg.StrOpt('state_path', default='/of/nova'))
        paths.register_opts(conf)
        conf([])
        self.assertEqual('/of/nova', conf.state_path)

    def test_agent_beside_the_others(self):
        agent.register_opts(self.conf)
        self.assertEqual([], self._read('').image_directories)


class SampleTest(base.TestCase):

    def test_all_have_help(self):
        for _, options in opts.list_opts():
            for option in options:
                self.assertTrue(option.help, option.name)

    def test_no_name_twice(self):
        names = [option.name for _, options in opts.list_opts()
                 for option in options]
        self.assertEqual(len(set(names)), len(names))

    def test_sample_is_up_to_date(self):
        """tox -e genconfig writes it."""
        sample = _SAMPLE.read_text()
        shown = {line[1:].split(' = ')[0].split(' =')[0]
                 for line in sample.splitlines()
                 if line.startswith('#') and ' =' in line
                 and line[1:2].isalpha()}
        self.assertEqual({option.name for _, options in opts.list_opts()
                          for option in options}, shown)
        flat = self.flat(sample)
        for _, options in opts.list_opts():
            for option in options:
                self.assertIn(self.flat(option.help), flat, option.name)

    @staticmethod
    def flat(text):
        """Lines end anywhere, also after a hyphen."""
        return ''.join(text.replace('#', '').split())
