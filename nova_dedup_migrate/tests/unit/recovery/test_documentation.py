# SPDX-License-Identifier: Apache-2.0
import pathlib
import re

from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.tests import base

_DRIVER = (pathlib.Path(__file__).parents[4]
           / 'doc/source/contributor/driver.rst')
_ROW = re.compile(r'   \* - (.+(?:\n {7}.+)*)'
                  r'\n     - (.+(?:\n {7}.+)*)'
                  r'\n     - (.+(?:\n {7}.+)*)')


def documented():
    """Return (name, why, action) of each row of the table of rules."""
    text = _DRIVER.read_text()
    title = re.search(r'^Rules.*\n=+\n', text, re.MULTILINE)
    section = re.split(r'^.+\n=+$', text[title.end():],
                       flags=re.MULTILINE)[0]
    rows = [tuple(' '.join(cell.split()) for cell in row)
            for row in _ROW.findall(section)]
    # the first one is the header
    return rows[1:]


class DocumentationTest(base.TestCase):

    def test_table_of_rules(self):
        """It is for people who ask why an instance was rolled back."""
        self.assertEqual([(rule.name, rule.why, rule.action)
                          for rule in rules.RULES], documented())

    def test_actions_are_explained(self):
        text = _DRIVER.read_text()
        for action in {rule.action for rule in rules.RULES}:
            self.assertIn('\n``%s``\n' % action, text)
