# SPDX-License-Identifier: Apache-2.0
"""Rules for templates, scripts and the files that Horizon loads."""

import ast
import pathlib
import re

from nova_dedup_migrate.tests import base
import nova_dedup_migrate_dashboard

_TOP = pathlib.Path(nova_dedup_migrate_dashboard.__file__).parent
_TEMPLATES = sorted((_TOP / 'templates').rglob('*.html'))


class TemplatesTest(base.TestCase):
    def test_nothing_is_marked_as_safe(self):
        """Names of instances are whatever a tenant has typed."""
        self.assertGreater(len(_TEMPLATES), 15)
        for path in _TEMPLATES:
            self.assertIsNone(re.search(
                r'\|\s*safe\b|autoescape\s+off|escapejs|json_script',
                path.read_text()), path)
        for path in _TOP.rglob('*.py'):
            if 'tests' not in path.parts:
                self.assertNotIn('mark_safe', path.read_text(), path)

    def test_no_script_style_or_handler_within(self):
        """A Content-Security-Policy may forbid them."""
        for path in _TEMPLATES:
            self.assertIsNone(re.search(
                r'<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|'
                r'javascript:', path.read_text()), path)

    def test_texts_are_translated(self):
        """What is left between tags is no word."""
        for path in _TEMPLATES:
            text = re.sub(r'{%\s*blocktrans.*?endblocktrans\s*%}|'
                          r'{%.*?%}|{{.*?}}|<[^>]*>', ' ',
                          path.read_text(), flags=re.DOTALL)
            found = set(re.findall(r'[A-Za-z]{2,}', text)) - {'QEMU'}
            self.assertEqual(set(), found, path)

    def test_texts_of_attributes_are_translated(self):
        seen = 0
        for path in _TEMPLATES:
            for value in re.findall(
                    r'\s(?:aria-label|alt|placeholder|title)="([^"]*)"',
                    path.read_text()):
                bare = re.sub('{%.*?%}|{{.*?}}', '', value)
                self.assertIsNone(re.search('[A-Za-z]', bare), path)
                seen += 1
        self.assertGreater(seen, 5)

    def test_forms_that_post_have_a_token(self):
        for path in _TEMPLATES:
            text = path.read_text()
            self.assertEqual(
                len(re.findall(r'<form[^>]*method="post"', text)),
                text.count('{% csrf_token %}'), path)

    def test_forms_have_an_action(self):
        """AngularJS, which Horizon has on each page, holds others back."""
        for path in _TEMPLATES:
            for tag in re.findall(r'<form[^>]*>', path.read_text()):
                self.assertIn(' action="', tag, path)

    def test_no_button_gets_a_second_confirmation(self):
        """Horizon puts a dialog about table rows before .btn-danger."""
        for path in _TEMPLATES:
            self.assertNotIn('btn-danger', path.read_text(), path)

    def test_templates_that_are_named_are_there(self):
        names = {str(path.relative_to(_TOP / 'templates'))
                 for path in _TEMPLATES}
        used = set()
        for path in (*_TEMPLATES, *_TOP.rglob('*.py')):
            used |= set(re.findall(r'''['"](dedup_migrate/\w+\.html)['"]''',
                                   path.read_text()))
        self.assertEqual(set(), used - names)
        self.assertEqual(set(), names - used)

    def test_what_can_have_the_focus_keeps_it(self):
        """In a part that is fetched again it needs an ID."""
        for name in ('_migrations', '_drains', '_drain', '_drain_choices',
                     '_hosts', '_instance'):
            text = (_TOP / 'templates/dedup_migrate' / (name + '.html')
                    ).read_text()
            for tag in re.findall(r'<(?:a|button)\s[^>]*>', text):
                self.assertIn(' id="', tag)


class EnabledTest(base.TestCase):
    def test_classes_are_there(self):
        seen = 0
        for path in (_TOP / 'enabled').glob('_*.py'):
            for node in ast.walk(ast.parse(path.read_text())):
                value = getattr(node, 'value', None)
                if isinstance(node, ast.Constant) and str(
                        value).startswith('nova_dedup_migrate_dashboard.'):
                    module, _, name = value.rpartition('.')
                    source = (_TOP.parent / (
                        module.replace('.', '/') + '.py')).read_text()
                    self.assertIn('class %s(' % name, source)
                    seen += 1
        self.assertEqual(4, seen)
