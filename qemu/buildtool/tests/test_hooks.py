# SPDX-License-Identifier: Apache-2.0
"""The hooks of all series, as far as can be said without QEMU's source."""

import re

import testtools

from buildtool import cli
from buildtool import debian
from buildtool import tree

#: Mended faults, and disks.
_NO_HOOKS = ('0005', '0006', '0008', '0011', '0012',
             '0013')


def _added(series):
    """Return what the hooks of a series add, comments too."""
    return '\n'.join(
        line[1:] for patch in tree.series(cli.patches(series))
        for line in patch.read_text().splitlines()
        if line.startswith('+') and not line.startswith('+++'))


class TestHooks(testtools.TestCase):

    def test_series_have_the_same_hooks(self):
        """A hook that one series has and another lacks is a fault."""
        calls = {name: set(re.findall(r'\b\w*dedup_\w+', _added(one)))
                 for name, one in debian.SERIES.items()}
        wanted = calls.pop(debian.DEFAULT.name)
        self.assertIn('dedup_source_save_page', wanted)
        for name, found in calls.items():
            self.assertEqual(wanted, found, f'the hooks of QEMU {name}')

    def test_hooks_are_few(self):
        """What leaves memory out changes fewer than 250 lines of QEMU.

        Disks (6) and faults of QEMU that are mended do not count.
        """
        for name, one in debian.SERIES.items():
            changed = [
                line for patch in tree.series(cli.patches(one))
                if patch.name[:4] not in _NO_HOOKS
                for line in patch.read_text().splitlines()
                if line.startswith(('+', '-'))
                and not line.startswith(('+++ ', '--- '))]
            self.assertLess(len(changed), 250, f'the hooks of QEMU {name}')

    def test_schema_is_one_that_newer_releases_read(self):
        """From 10.1 on QEMU refuses longer lines of documentation."""
        schema = cli.SRC / 'qapi' / 'dedup.json'
        literal = False
        for number, line in enumerate(schema.read_text().splitlines(), 1):
            if re.match(r'# *(\.\. +qmp-example)? *::$', line):
                literal = True
            elif not line.startswith('#  '):
                literal = literal and line == '#'
            if line.startswith('#') and not literal:
                self.assertLessEqual(len(line), 70, f'line {number}')
