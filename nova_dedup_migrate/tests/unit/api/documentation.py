# SPDX-License-Identifier: Apache-2.0
"""The list of routes in the documentation, made of the OpenAPI document.

After a change write it again with

    python -m nova_dedup_migrate.tests.unit.api.documentation
"""

import json

from nova_dedup_migrate.api import openapi
import tests

PATH = tests.TOP / 'doc/source/reference/api/routes.txt'
_LONGEST = 70


def text():
    """Return reStructuredText."""
    lines = ['.. Made by nova_dedup_migrate/tests/unit/api/documentation.py.',
             '']
    found = openapi.document()
    for path, methods in found['paths'].items():
        for method, operation in methods.items():
            title = '%s %s' % (method.upper(), path)
            lines += [title, '-' * len(title), '',
                      operation['summary'] + '.', '',
                      'Policy: ``%s``' % operation['x-policy'], '']
            for one in operation['parameters']:
                if one['in'] != 'path':
                    lines.append('* %s ``%s``: %s' % (
                        one['in'], one['name'], _short(one['schema'])))
            if lines[-1]:
                lines.append('')
            if 'requestBody' in operation:
                lines += _body('Request', operation['requestBody'])
            for status, answer in operation['responses'].items():
                if 'content' in answer and status in ('200', '202'):
                    lines += _body('Status %s' % status, answer)
                elif status == '204':
                    lines += ['Status 204, without a body.', '']
            lines += ['Errors: ' + ', '.join(
                status for status, answer in operation['responses'].items()
                if '$ref' in answer) + '.', '']
    return '\n'.join(lines).rstrip() + '\n'


def _body(title, content):
    schema = content['content']['application/json']['schema']
    return [title + '::', '', *('   ' + line for line in _tree(schema)), '']


def _tree(schema, name='', depth=0):
    """Yield the fields of a schema, a line for each."""
    pad = '  ' * depth
    options = [one for one in schema.get('anyOf', schema.get('oneOf', ()))
               if one.get('type') != 'null']
    if schema.get('type') == 'array':
        yield '%s%s: list of' % (pad, name)
        yield from _tree(schema['items'], '', depth + 1)
    elif schema.get('properties'):
        if name:
            yield '%s%s:' % (pad, name)
        for key, value in schema['properties'].items():
            yield from _tree(value, key, depth + bool(name))
    elif options and any(one.get('properties') or one.get('items')
                         for one in options):
        for one in options:
            yield from _tree(one, name, depth)
    else:
        yield ('%s%s%s' % (pad, name + ': ' if name else '',
                           _short(schema)))[:_LONGEST + 40]


def _short(schema):
    """Return what a simple value may be."""
    if 'anyOf' in schema:
        return ' or '.join(_short(one) for one in schema['anyOf'])
    if 'enum' in schema:
        return ', '.join(map(str, schema['enum']))
    if 'const' in schema:
        return json.dumps(schema['const'])
    if schema.get('format') == 'date-time':
        return 'time'
    pattern = schema.get('pattern', '')
    if pattern.startswith('^[0-9a-f]{8}'):
        return 'UUID'
    return schema.get('type', 'anything')


if __name__ == '__main__':
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(text())
