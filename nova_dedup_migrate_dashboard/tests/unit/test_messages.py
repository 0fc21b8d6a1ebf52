# SPDX-License-Identifier: Apache-2.0
"""The catalogues have all texts; messages.py writes them again."""

import gettext
import re

from nova_dedup_migrate.tests import base
from nova_dedup_migrate_dashboard.tests.unit import messages

_PLACE = re.compile(r'%(?:\(\w+\))?[sd]')


class MessagesTest(base.TestCase):
    def test_texts_of_a_template(self):
        self.assertEqual(
            ['one', "it's", ('%(n)s %% host', '%(n)s %% hosts'), 'on %(h)s'],
            list(messages.texts(
                '{% trans "one" %} two {% trans "it\'s" as x %}'
                '{% blocktrans count n=a|b %}{{ n }} % host{% plural %}'
                '{{ n }} % hosts{% endblocktrans %}'
                '{% blocktrans with h=one.host %}on {{ h }}'
                '{% endblocktrans %}')))

    def test_the_template_is_that_of_the_sources(self):
        expected = self.ids(messages.template())
        self.assertGreater(len(expected), 200)
        with messages.TEMPLATE.open('rb') as file:
            found = self.ids(messages.pofile.read_po(file))
        self.assertEqual(expected, found)

    def test_each_language_is_complete(self):
        expected = self.ids(messages.template())
        self.assertIn('de', messages.languages())
        for language, path in messages.languages().items():
            catalog = messages.read(language, path)
            self.assertEqual(expected, self.ids(catalog))
            for one in catalog:
                texts = (one.string if one.pluralizable else [one.string])
                self.assertTrue(all(texts), one.id)
                self.assertFalse(one.fuzzy and one.id, one.id)
                wanted = (one.id[-1] if one.pluralizable else one.id)
                for text in texts if one.id else ():
                    self.assertEqual(sorted(_PLACE.findall(wanted)),
                                     sorted(_PLACE.findall(text)), one.id)

    def test_the_compiled_form_is_that_of_the_texts(self):
        for language, path in messages.languages().items():
            with path.with_suffix('.mo').open('rb') as file:
                compiled = gettext.GNUTranslations(file)
            for one in messages.read(language, path):
                if one.pluralizable:
                    self.assertEqual(list(one.string), [
                        compiled.ngettext(*one.id, number)
                        for number in (1, 2)])
                elif one.id:
                    self.assertEqual(one.string, compiled.gettext(one.id))

    @staticmethod
    def ids(catalog):
        return sorted(str(one.id) for one in catalog if one.id)
