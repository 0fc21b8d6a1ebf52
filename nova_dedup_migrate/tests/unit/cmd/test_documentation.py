# SPDX-License-Identifier: Apache-2.0
"""The documentation of the commands and reports against the code."""

import ast
import contextlib
import dataclasses
import io
import os
import re
from unittest import mock

from oslo_config import cfg

from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.cmd import documentation

try:
    from nova_dedup_migrate.cmd import agent
except ImportError:
    agent = None

PAGE = documentation.DIRECTORY.with_suffix('.rst')
#: A command's heading, with its arguments.
_HEADING = r'(?m)^%s( \[UUID\]| [A-Z]+(\.\.\.)?)?$'
_OPTION = re.compile(r'(?<![\w-])--[a-z][\w-]*')
#: Other spellings of an option that has its own line in the help.
_ALIASES = {'--logdir', '--logfile', '--log-config', '--log_config'}


def options(text):
    return set(_OPTION.findall(text)) - _ALIASES


def help_text(call, *arguments):
    out = io.StringIO()
    # Wide enough: no option is broken at a hyphen.
    with (mock.patch.dict(os.environ, COLUMNS='1000'),
          contextlib.redirect_stdout(out),
          contextlib.suppress(SystemExit)):
        call(*arguments)
    return out.getvalue()


class OptionsTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.command, self.agent = PAGE.read_text().split(
            '\nnova-dedup-migrate-agent\n====', 1)

    def helps(self):
        """Return the help of each command by name."""
        return {name: help_text(main.main, [*name.split(), '--help'])
                for name in (*main.COMMANDS, 'complete', 'help')}

    def test_commands(self):
        for name in main.COMMANDS:
            self.assertRegex(self.command,
                             _HEADING % re.escape(name))

    def test_options(self):
        expected = options(help_text(main.main, ['--help']))
        for name, text in self.helps().items():
            self.assertTrue(options(text), name)
            expected |= options(text)
        self.assertEqual(expected, options(self.command))

    def test_own_options_are_in_the_section(self):
        """Only options of the output have a common section."""
        common = options(self.command.split('\nOutput options\n')[1])
        common |= {'--help'}
        for name, text in self.helps().items():
            if name not in main.COMMANDS:
                continue
            section = re.split(_HEADING % re.escape(name),
                               self.command)[-1]
            section = re.split('\n---+\n', section)[1]
            self.assertEqual(set(), options(text) - common
                             - options(section), name)

    def test_agent(self):
        if agent is None:
            self.skipTest('libvirt-python is not installed')
        text = help_text(agent.configure, cfg.ConfigOpts(), ['--help'], '1')
        self.assertEqual(options(text), options(self.agent))


class ExamplesTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.made, self.readme = documentation.outputs()

    def remedy(self, name):
        return ('%s has not the output of the command; run python -m '
                'nova_dedup_migrate.tests.unit.cmd.documentation' % name)

    def test_files(self):
        for name, text in self.made.items():
            self.assertEqual(
                text, (documentation.DIRECTORY / name).read_text(),
                self.remedy(name))

    def test_readme(self):
        text = documentation.README.read_text()
        self.assertEqual(documentation.readme(text, self.readme), text,
                         self.remedy('README.rst'))

    def test_arguments(self):
        """The page has the arguments of each example."""
        page = ' '.join(PAGE.read_text().replace('\\\n', ' ').split())
        for arguments in documentation.EXAMPLES.values():
            self.assertIn('$ nova-dedup-migrate ' + ' '.join(arguments),
                          page)


class FieldsTest(base.TestCase):

    def page(self, name):
        return (documentation.ROOT / 'doc/source/admin' / name).read_text()

    def test_report(self):
        page = self.page('reports.rst')
        for kind in (report.Report, report.Progress, report.PredictionError):
            for field in dataclasses.fields(kind):
                if field.name != 'at':
                    self.assertIn('``%s``' % field.name, page)
        for value in (*report.OUTCOMES, *(
                field.name for field in dataclasses.fields(report.Paths))):
            self.assertIn('``%s``' % value, page)

    def test_page_cache(self):
        page = self.page('page-cache.rst')
        for outcome in (answer.TAKEN, answer.PARTIAL, answer.SKIPPED,
                        answer.UNAVAILABLE, answer.TIMEOUT, answer.REFUSED):
            self.assertIn('\n``%s``' % outcome, page)
        for name in ('transport', 'seconds', 'notes', 'requests'):
            self.assertIn('``%s``' % name, page)
            self.assertTrue(hasattr(answer.Answer('taken'), name))


class ReasonsTest(base.TestCase):
    """The reasons in the troubleshooting page are those of the code."""

    SOURCES = ('planner/choose.py', 'rpc/api.py', 'agent/emulator.py',
               'tasks/plan.py', 'tasks/arm.py')

    def test_fallback(self):
        texts = [node.value for source in self.SOURCES
                 for node in ast.walk(ast.parse(
                     (documentation.ROOT / 'nova_dedup_migrate' / source
                      ).read_text()))
                 if isinstance(node, ast.Constant)
                 and isinstance(node.value, str)]
        page = (documentation.ROOT / 'doc/source/admin/troubleshooting.rst'
                ).read_text()
        section = page.split('Nothing was left out\n')[1].split(
            'The saving is small\n')[0]
        terms = [term for line in re.findall(r'(?m)^ *(``.*``)$', section)
                 for term in re.findall(r'``(.+?)``', line)]
        self.assertGreater(len(terms), 10)
        for term in terms:
            for part in re.split(r'\.\.\.|\b[NX]\b', term):
                self.assertTrue(any(part.strip() in text for text in texts),
                                term)
