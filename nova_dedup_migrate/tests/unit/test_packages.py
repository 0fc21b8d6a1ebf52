# SPDX-License-Identifier: Apache-2.0
"""Which packages know which: no arrow back."""

import ast
import pathlib

import nova_dedup_migrate
from nova_dedup_migrate.tests import base

ROOT = pathlib.Path(nova_dedup_migrate.__file__).parent
#: Packages that must not be imported, by importer.
FORBIDDEN = {
    'agent': ('compute', 'flows', 'operations', 'recovery', 'tasks'),
    'api': ('agent', 'compute', 'operations', 'rpc'),
    'compute': ('agent',),
    'db': ('agent', 'api', 'compute', 'engine', 'rpc'),
    'engine': ('agent', 'api', 'compute', 'operations'),
    'osc': ('agent', 'api', 'compute', 'db', 'engine', 'operations', 'rpc'),
    'flows': ('agent', 'compute'),
    'identity': ('agent', 'compute'),
    'images': ('agent', 'compute', 'identity', 'rpc'),
    'rpc': ('agent', 'compute', 'identity', 'images'),
    'tasks': ('agent', 'compute'),
}


def imported(path):
    """Return the packages of ours that a module imports."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            names = ['%s.%s' % (node.module, alias.name)
                     for alias in node.names]
        for name in names:
            parts = name.split('.')
            if parts[0] == 'nova_dedup_migrate' and len(parts) > 1:
                yield parts[1]


class PackagesTest(base.TestCase):
    def test_no_arrow_back(self):
        seen = 0
        for importer, forbidden in FORBIDDEN.items():
            for path in (ROOT / importer).rglob('*.py'):
                found = set(imported(path))
                seen += len(found)
                self.assertEqual(set(), found & set(forbidden), path)
        self.assertGreater(seen, 50)
