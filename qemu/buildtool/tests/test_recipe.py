# SPDX-License-Identifier: Apache-2.0
import dataclasses
from pathlib import Path
from unittest import mock

import testtools

from buildtool import common
from buildtool import debian
from buildtool import recipe

SOURCE = debian.Source('10.0.13', 'dsc:1', Path('/nowhere'))
OTHER = debian.Source('10.0.13', 'dsc:2', Path('/nowhere'))


class TestKeys(testtools.TestCase):

    def setUp(self):
        super().setUp()
        for name, value in (('compiler', ('cc', 'cc 12')),
                            ('firmware_versions', 'seabios=1')):
            patch = mock.patch.object(
                recipe, name, autospec=True, return_value=value)
            setattr(self, name, patch.start())
            self.addCleanup(patch.stop)

    def test_every_input_counts(self):
        keys = {recipe.prefix_key(SOURCE),
                recipe.prefix_key(OTHER),
                recipe.prefix_key(SOURCE, ['address']),
                recipe.prefix_key(SOURCE, ours='1'),
                recipe.prefix_key(SOURCE, ours='2')}
        self.firmware_versions.return_value = 'seabios=2'
        keys.add(recipe.prefix_key(SOURCE))
        self.compiler.return_value = ('cc', 'cc 13')
        keys.add(recipe.prefix_key(SOURCE))
        self.assertEqual(7, len(keys))

    def test_same_inputs(self):
        self.assertEqual(
            recipe.prefix_key(SOURCE, ['address', 'undefined']),
            recipe.prefix_key(SOURCE, ['undefined', 'address']))

    def test_small_is_apart(self):
        self.assertEqual(4, len({
            key(SOURCE, profile=profile)
            for key in (recipe.tree_key, recipe.prefix_key)
            for profile in (recipe.FULL, recipe.SMALL)}))

    def test_devices_count(self):
        more = dataclasses.replace(
            recipe.SMALL, devices=(*recipe.SMALL.devices, 'CONFIG_Q35=y'))
        self.assertNotEqual(recipe.tree_key(SOURCE, profile=recipe.SMALL),
                            recipe.tree_key(SOURCE, profile=more))

    def test_tree_outlives_our_changes(self):
        before = recipe.tree_key(SOURCE)
        self.firmware_versions.return_value = 'seabios=2'
        self.assertEqual(before, recipe.tree_key(SOURCE))


class TestOptions(testtools.TestCase):

    def test_sanitizers(self):
        self.assertIn('--enable-asan', recipe.options(['address']))
        self.assertNotIn('--enable-asan', recipe.options())

    def test_sanitizers_of_small(self):
        self.assertEqual(
            [*recipe.SMALL.options, '--enable-asan'],
            recipe.options(['address'], recipe.SMALL))

    def test_devices(self):
        self.assertEqual((), recipe.device_configuration(recipe.FULL))
        (path, text), = recipe.device_configuration(recipe.SMALL)
        # configure looks it up by this name
        name = Path(path).stem
        self.assertIn(f'--with-devices-x86_64={name}', recipe.SMALL.options)
        self.assertIn('CONFIG_VIRTIO_BLK=y\n', text)

    def test_unknown(self):
        error = self.assertRaises(
            common.BuildError, recipe.options, ['speed'])
        self.assertIn('speed', str(error))

    def test_exclusive(self):
        self.assertRaises(
            common.BuildError, recipe.options, ['thread', 'address'])
