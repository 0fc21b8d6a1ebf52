# SPDX-License-Identifier: Apache-2.0
"""Who may import whom; doc/source/contributor/layout.rst draws it."""

import ast
import unittest

import tests

#: Package -> packages of this repository it may import.
_MAY = {
    'nova_dedup_migrate': (),
    'cinder_backup_assist': ('nova_dedup_migrate',),
    'nova_dedup_migrate_dashboard': ('nova_dedup_migrate',),
    'nova_dedup_migrate_tempest_plugin': (),
    'testkit': ('nova_dedup_migrate',),
    'guests': ('nova_dedup_migrate', 'testkit'),
    'lab': ('nova_dedup_migrate', 'testkit', 'guests'),
    'benchmarks': ('nova_dedup_migrate', 'cinder_backup_assist', 'testkit',
                   'guests', 'lab'),
}
#: What is run or loaded by name: pyproject.toml, the .pth file, finder.py.
_ROOTS = ('nova_dedup_migrate.api.wsgi',
          'nova_dedup_migrate.cmd.agent', 'nova_dedup_migrate.cmd.main',
          'nova_dedup_migrate.cmd.engine',
          'nova_dedup_migrate.cmd.manage',
          'nova_dedup_migrate.cmd.status',
          'nova_dedup_migrate.compute.extra_specs',
          'nova_dedup_migrate.compute.finder',
          'nova_dedup_migrate.compute.shim',
          'nova_dedup_migrate.conf.opts', 'nova_dedup_migrate.db.env',
          'nova_dedup_migrate.db.versions.0001_initial',
          'nova_dedup_migrate.db.versions.0002_drain_choices',
          'nova_dedup_migrate.osc.drains',
          'nova_dedup_migrate.osc.migrations',
          'nova_dedup_migrate.osc.plugin')
#: Loaded by Cinder, in the lab.
_VOLUME_DRIVER = 'lab/services/cinder_driver.py'
#: The product's tests may use more than the product.
_PRODUCT_TESTS = ('testkit', 'guests')
#: Packages of the product that do without Nova.
_WITHOUT_NOVA = ('agent', 'api', 'backups', 'cmd', 'conf', 'db', 'engine',
                 'hypervisor', 'identity', 'images', 'operations', 'osc',
                 'pagecache', 'planner', 'policies', 'recovery', 'reports',
                 'rpc', 'server_move', 'storage', 'swaps')


def imported(source):
    """Yield the modules that a program imports, by full name."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError('line %d: a relative import' % node.lineno)
            yield from (f'{node.module}.{alias.name}'
                        for alias in node.names)


def forbidden(package, path, source):
    """Yield sentences about imports that are not allowed.

    :param path: of the file, relative to the repository
    """
    allowed = {package, *_MAY[package]}
    if path.startswith(('nova_dedup_migrate/tests/',
                        'cinder_backup_assist/tests/')):
        allowed |= set(_PRODUCT_TESTS)
    for name in imported(source):
        top = name.partition('.')[0]
        if top in _MAY and top not in allowed:
            yield '%s imports %s' % (path, name)
        if (top == 'cinder' and package != 'cinder_backup_assist'
                and path != _VOLUME_DRIVER):
            yield '%s imports %s' % (path, name)
        if (top == 'nova' and path.split('/')[:1] == ['nova_dedup_migrate']
                and path.split('/')[1] in _WITHOUT_NOVA):
            yield '%s imports %s' % (path, name)


def modules():
    """Return name -> source of the product's modules, without its tests."""
    found = {}
    for path in (tests.TOP / 'nova_dedup_migrate').rglob('*.py'):
        parts = path.relative_to(tests.TOP).with_suffix('').parts
        if parts[1:2] != ('tests',):
            name = '.'.join(parts).removesuffix('.__init__')
            found[name] = path.read_text()
    return found


def reached(sources, roots):
    """Return the modules that roots import, however indirectly.

    :param sources: as of modules()
    """
    found, left = set(), list(roots)
    while left:
        name = left.pop()
        # what is imported may be a name in a module; with a module come
        # the packages it is in
        if name in sources and name not in found:
            found.add(name)
            left += imported(sources[name])
        if '.' in name:
            left.append(name.rpartition('.')[0])
    return found


class ImportsTest(unittest.TestCase):

    def test_packages_import_only_those_below(self):
        found, files = [], 0
        for package in _MAY:
            for path in sorted((tests.TOP / package).rglob('*.py')):
                files += 1
                found += forbidden(package,
                                   str(path.relative_to(tests.TOP)),
                                   path.read_text())
        self.assertGreater(files, 300)
        self.assertEqual([], found)

    def test_each_kind_of_import_is_found(self):
        for line in ('import lab', 'import lab.cli', 'from lab import cli',
                     'from lab.hosts import lab as labs',
                     'def f():\n    import lab.cli as one'):
            for package, path in (
                    ('nova_dedup_migrate', 'nova_dedup_migrate/native.py'),
                    ('nova_dedup_migrate',
                     'nova_dedup_migrate/tests/base.py'),
                    ('guests', 'guests/tests/unit/test_cpio.py')):
                self.assertEqual(1, len(list(forbidden(package, path,
                                                       line))), line)
            self.assertEqual([], list(forbidden(
                'benchmarks', 'benchmarks/demo.py', line)))
        self.assertEqual([], list(forbidden(
            'nova_dedup_migrate', 'nova_dedup_migrate/tests/base.py',
            'from testkit import spec')))
        self.assertEqual(1, len(list(forbidden(
            'nova_dedup_migrate', 'nova_dedup_migrate/planner/plan.py',
            'from nova import exception'))))
        for package in ('nova_dedup_migrate', 'lab'):
            self.assertEqual(1, len(list(forbidden(
                package, package + '/x/y.py',
                'from cinder import objects'))))
        self.assertEqual([], list(forbidden(
            'cinder_backup_assist', 'cinder_backup_assist/cmd.py',
            'from cinder import objects')))

    def test_production_reaches_each_module(self):
        """What only tests and benchmarks use belongs to testkit."""
        sources = modules()
        self.assertEqual(set(), set(sources) - reached(sources, _ROOTS))

    def test_a_module_nobody_imports_is_found(self):
        sources = {'a': '', 'a.b': 'import a.c', 'a.c': '', 'a.d': ''}
        self.assertEqual({'a', 'a.b', 'a.c'}, reached(sources, ['a.b']))
