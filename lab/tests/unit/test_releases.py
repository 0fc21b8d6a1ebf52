# SPDX-License-Identifier: Apache-2.0
import pathlib
import tempfile
import types

from lab import cloud
from lab import upgrade
from lab.settings import Settings
from nova_dedup_migrate.tests import base


class TestReleases(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = pathlib.Path(self.enterContext(
            tempfile.TemporaryDirectory()))
        (self.directory / 'one').mkdir()
        self.cloud = cloud.Cloud('any', self.directory, Settings())
        self.host = types.SimpleNamespace(name='one')

    def _mark(self, name, text):
        (self.directory / 'one' / name).write_text(text)

    def _trees(self):
        return [self.cloud.release(self.host, program).tree
                for program in (None, 'agent')]

    def test_a_host_runs_the_labs_own(self):
        self.assertEqual([cloud.TOP, cloud.TOP], self._trees())

    def test_all_of_a_host_is_old(self):
        self._mark('release', 'old')
        old = self.cloud.known_release('old').tree
        self.assertEqual([old, old], self._trees())

    def test_one_program_of_an_old_host_is_new(self):
        self._mark('release', 'old')
        self._mark('release.agent', '')
        old = self.cloud.known_release('old').tree
        self.assertEqual([old, cloud.TOP], self._trees())


class TestSteps(base.TestCase):

    def test_one_component_changes_in_each(self):
        steps = list(upgrade.steps('a', 'b', False))
        self.assertEqual(
            [{'a': 'old', 'b': 'old'}, {'b': 'agent new'}, {'b': 'new'},
             {'a': 'new'}, {'b': 'old'}], [each for _, each in steps])
        self.assertEqual(steps[:3], list(upgrade.steps('a', 'b', True)))
