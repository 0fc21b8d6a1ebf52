# SPDX-License-Identifier: Apache-2.0
import contextlib
import pathlib
import tempfile
import unittest
from unittest import mock

from debtool import build


class BuildTest(unittest.TestCase):

    def setUp(self):
        super().setUp()
        top = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.tree = top / 'work/tree'
        self.tree.mkdir(parents=True)
        self.system = mock.Mock()
        self.system.path.side_effect = lambda path: top / path.lstrip('/')
        self.enterContext(mock.patch.object(build, 'RESULTS',
                                            top / 'results'))
        source = self.enterContext(mock.patch.object(build, 'source'))
        source.ours.return_value = source.qemu.return_value = self.tree
        self.enterContext(mock.patch.object(
            build.chroot, 'system',
            return_value=contextlib.nullcontext(self.system)))

    def _scripts(self, name):
        build.build(name, 'suite', self.tree.parent)
        return '\n'.join(call.args[1] for call in
                         self.system.run.mock_calls)

    def test_ours_have_to_pass_lintian(self):
        self.assertIn(build.LINTIAN + ' *.dsc *.deb',
                      self._scripts('nova-dedup-migrate'))

    def test_faults_of_debians_qemu_are_not_searched(self):
        scripts = self._scripts('qemu-source')
        self.assertIn('dpkg-source --build', scripts)
        self.assertNotIn('lintian', scripts)
