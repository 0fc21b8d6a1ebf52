# SPDX-License-Identifier: Apache-2.0
import ast
import pathlib

from nova_dedup_migrate import planner
from nova_dedup_migrate.tests import base

_ALLOWED = {'collections', 'collections.abc', 'dataclasses', 'math',
            'statistics', 'typing', 'nova_dedup_migrate.planner'}


class PureTest(base.TestCase):

    def test_imports(self):
        """The planner does no I/O: all it knows was handed to it."""
        modules = list(pathlib.Path(planner.__file__).parent.glob('*.py'))
        self.assertGreater(len(modules), 8)
        for path in modules:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ImportFrom):
                    self.assertIn(node.module, _ALLOWED, path)
                elif isinstance(node, ast.Import):
                    for name in node.names:
                        self.assertIn(name.name, _ALLOWED, path)
