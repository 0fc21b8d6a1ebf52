# SPDX-License-Identifier: Apache-2.0
"""Django looks up the texts that are in the catalogue."""

import gettext
import pathlib
import unittest

from django.template import base
from django.template import engine
from django.templatetags import i18n

import nova_dedup_migrate_dashboard

_TOP = pathlib.Path(nova_dedup_migrate_dashboard.__file__).parent


class MessagesTest(unittest.TestCase):
    def test_texts_of_templates_are_translated(self):
        with (_TOP / 'locale/de/LC_MESSAGES/django.mo').open('rb') as file:
            known = gettext.GNUTranslations(file)._catalog
        engines = engine.Engine(libraries={
            'i18n': 'django.templatetags.i18n',
            'static': 'django.templatetags.static',
            'dedup_migrate':
            'nova_dedup_migrate_dashboard.templatetags.dedup_migrate'})
        seen = 0
        for path in (_TOP / 'templates').rglob('*.html'):
            lexer = base.Lexer(path.read_text())
            parser = base.Parser(lexer.tokenize(), engines.template_libraries,
                                 engines.template_builtins,
                                 base.Origin(str(path), path.name))
            nodes = parser.parse()
            for node in nodes.get_nodes_by_type(i18n.TranslateNode):
                self.assertIn(node.filter_expression.var.literal, known)
                seen += 1
            for node in nodes.get_nodes_by_type(i18n.BlockTranslateNode):
                text, _ = node.render_token_list(node.singular)
                self.assertIn((text, 0) if node.plural else text, known)
                seen += 1
        self.assertGreater(seen, 150)


if __name__ == '__main__':
    unittest.main()
