# SPDX-License-Identifier: Apache-2.0
"""The catalogues of the panels: what is to be translated, and German.

After a change of a text write them again, translate what is empty in
locale/*/LC_MESSAGES/django.po, and run it once more for the compiled form:

    python -m nova_dedup_migrate_dashboard.tests.unit.messages
"""

import io
import pathlib
import re

from babel.messages import catalog as catalogs
from babel.messages import extract
from babel.messages import mofile
from babel.messages import pofile

import nova_dedup_migrate_dashboard

TOP = pathlib.Path(nova_dedup_migrate_dashboard.__file__).parent
LOCALE = TOP / 'locale'
TEMPLATE = LOCALE / 'django.pot'
_KEYWORDS = {'_': None, 'gettext': None, 'gettext_lazy': None,
             'ngettext': (1, 2)}
_TRANS = re.compile(r'''{%\s*trans\s+(?:"([^"]*)"|'([^']*)')''')
_BLOCK = re.compile(r'{%\s*blocktrans\b.*?%}(.*?)'
                    r'(?:{%\s*plural\s*%}(.*?))?{%\s*endblocktrans\s*%}',
                    re.DOTALL)
_HEADER = '''\
# Texts of the panels of nova-dedup-migrate.
# SPDX-License-Identifier: Apache-2.0
#'''


def texts(source):
    """Yield the messages of a template of Django as gettext has them."""
    for found in re.finditer('%s|%s' % (_TRANS.pattern, _BLOCK.pattern),
                             source, re.DOTALL):
        double, single, one, many = found.groups()
        if one is None:
            yield double or single
        else:
            yield ((_message(one), _message(many)) if many
                   else _message(one))


def _message(text):
    return re.sub(r'{{\s*(\w+)\s*}}', r'%(\1)s', text.replace('%', '%%'))


def template():
    """Return a Catalog of all texts."""
    made = catalogs.Catalog(
        project='nova-dedup-migrate', header_comment=_HEADER, fuzzy=False)
    for path in sorted(TOP.rglob('*')):
        name = str(path.relative_to(TOP.parent))
        if path.suffix == '.html':
            found = texts(path.read_text())
        elif path.suffix == '.py' and 'tests' not in path.parts:
            with path.open('rb') as file:
                found = [one[1] for one in extract.extract(
                    'python', file, _KEYWORDS)]
        else:
            continue
        for text in found:
            made.add(text, locations=[(name, 0)])
    return made


def languages():
    """Return {language: path of its catalogue}."""
    return {path.parts[-3]: path
            for path in LOCALE.glob('*/LC_MESSAGES/django.po')}


def read(language, path):
    with path.open('rb') as file:
        return pofile.read_po(file, locale=language)


def text(catalog):
    """Return a catalogue as a file has it."""
    made = io.BytesIO()
    pofile.write_po(made, catalog, width=76, include_lineno=False,
                    sort_output=True, ignore_obsolete=True)
    # What is left changes with the texts alone.
    return re.sub(r'"(Report-Msgid|Last-Transl|Generated|[A-Z-]*Creation-Date'
                  r'|PO-Revision)[^\n]*\n', '', made.getvalue().decode())


def compiled(catalog):
    made = io.BytesIO()
    mofile.write_mo(made, catalog)
    return made.getvalue()


def main():
    new = template()
    LOCALE.mkdir(exist_ok=True)
    TEMPLATE.write_text(text(new))
    for language, path in languages().items():
        known = read(language, path)
        known.update(new, no_fuzzy_matching=True)
        known.header_comment = _HEADER
        path.write_text(text(known))
        path.with_suffix('.mo').write_bytes(compiled(known))
        empty = sum(not all(one.string if one.pluralizable
                            else [one.string]) for one in known if one.id)
        print('%s: %d texts, %d to be translated' % (
            language, len(known), empty))


if __name__ == '__main__':
    main()
