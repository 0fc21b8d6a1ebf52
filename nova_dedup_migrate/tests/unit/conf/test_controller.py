# SPDX-License-Identifier: Apache-2.0
"""Options, samples and the commands that read them."""

import contextlib
import io
import json
import pathlib

from nova_dedup_migrate.cmd import manage
from nova_dedup_migrate.cmd import status
from nova_dedup_migrate.conf import controller as options
from nova_dedup_migrate.policies import rules
from nova_dedup_migrate.tests import base

_ETC = pathlib.Path(__file__).parents[4] / 'etc/nova-dedup-migrate'


class SamplesTest(base.TestCase):

    def test_options(self):
        """tox -e genconfig writes it."""
        text = (_ETC / 'nova-dedup-migrate.conf.sample').read_text()
        flat = ' '.join(line.lstrip('# ') for line in text.splitlines())
        for group, found in options.list_opts()[:2]:
            self.assertIn('[%s]' % group.name, text)
            for option in found:
                self.assertIn('\n#%s =' % option.name, text)
                self.assertIn(option.help[:40], flat, option.name)

    def test_policies(self):
        """tox -e genpolicy writes it."""
        text = (_ETC / 'policy.yaml.sample').read_text()
        for rule in rules.list_rules():
            self.assertIn('#"%s": "%s"' % (rule.name, rule.check_str), text)


class CommandsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        directory = self.temporary_dir()
        self.conf = directory / 'one.conf'
        self.conf.write_text('[database]\nconnection = sqlite:///%s\n'
                             % (directory / 'one.sqlite'))

    def manage(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = manage.main(['--config-file', str(self.conf),
                                *arguments])
        return code, out.getvalue()

    def check(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = status.main(['--config-file', str(self.conf), 'upgrade',
                                'check'])
        return code, out.getvalue()

    def test_manage(self):
        self.assertEqual(1, self.manage('db', 'purge')[0])
        self.assertEqual(2, self.check()[0])
        code, text = self.manage('db', 'sync')
        self.assertEqual((0, True), (code, '0001' in text))
        code, text = self.manage('db', 'purge', '--report-days', '1')
        self.assertEqual((0, True), (code, 'reports: 0' in text))
        self.assertEqual(0, self.check()[0])

    def test_openapi(self):
        self.assertEqual('3.1.0', json.loads(
            self.manage('openapi')[1])['openapi'])
