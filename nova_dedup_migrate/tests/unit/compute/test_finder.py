# SPDX-License-Identifier: Apache-2.0
import subprocess
import sys
import unittest

import tests

#: What a .pth file does in a Python that has no Nova.
_START = ('import os, sys; sys.path.insert(0, sys.argv[1]); '
          'before = set(sys.modules); ')


class FinderTest(unittest.TestCase):

    def run_python(self, program):
        done = subprocess.run(
            [sys.executable, '-I', '-S', '-c', _START + program,
             str(tests.TOP)], capture_output=True, text=True, check=False)
        self.assertEqual('', done.stderr)
        return done.stdout.split()

    def test_it_finds_one_module(self):
        self.assertEqual(['shim.py', 'None', 'None', 'None'], self.run_python(
            (tests.TOP / 'nova-dedup-migrate.pth').read_text()
            + 'finder = sys.meta_path[-1]\n'
            'print(os.path.basename(\n'
            '    finder.find_spec("nova.virt.dedup_migrate").origin))\n'
            'for name in ("nova", "nova.virt", "nova.virt.libvirt"):\n'
            '    print(finder.find_spec(name))\n'))

    def test_start_of_python_imports_our_packages_only(self):
        self.assertEqual(
            ['nova_dedup_migrate', 'nova_dedup_migrate.compute',
             'nova_dedup_migrate.compute.finder'],
            self.run_python(
                (tests.TOP / 'nova-dedup-migrate.pth').read_text()
                + 'print(*sorted(set(sys.modules) - before))'))
