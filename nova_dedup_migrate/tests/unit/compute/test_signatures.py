# SPDX-License-Identifier: Apache-2.0
"""The driver fits each Nova it is said to fit, and the one installed."""

import inspect
import pathlib

import nova
from nova import version

from nova_dedup_migrate.compute import driver
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import nova_api

#: Major releases: 2025.2, 2026.1, 2026.2.
SUPPORTED = {'32', '33', '34'}


def major(release):
    return release.split('.')[0]


class SignatureTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.recorded = nova_api.load()

    def test_releases(self):
        self.assertEqual(SUPPORTED, set(map(major, self.recorded)))

    def test_everything_used_is_recorded(self):
        for release, found in self.recorded.items():
            self.assertEqual(set(), nova_api.used(release) - set(found),
                             release)

    def test_everything_called_is_listed(self):
        called = nova_api.called()
        # or nothing was looked at
        self.assertIn('_rollback_live_migration', called)
        self.assertEqual({}, {name: file for name, file in called.items()
                              if name not in nova_api.listed()})

    def test_installed(self):
        installed = version.version_info.version_string()
        known = [release for release in self.recorded
                 if major(release) == major(installed)]
        self.assertTrue(known, 'Nova %s is not supported' % installed)
        found = nova_api.signatures(
            pathlib.Path(nova.__file__).resolve().parents[1])
        self.assertIn(found, [self.recorded[release] for release in known])

    def test_overrides(self):
        ours = driver.DedupMigrateLibvirtDriver
        self.assertEqual(set(nova_api.OVERRIDDEN), {
            name for name, value in vars(ours).items()
            if inspect.isfunction(value)})
        for release, found in self.recorded.items():
            for name, arguments in nova_api.overridden(
                    release, found).items():
                self.check(getattr(ours, name), arguments,
                           '%s of nova %s' % (name, release))

    def check(self, method, arguments, what):
        """Whoever can call Nova's method can call ours."""
        scope = {}
        exec('def theirs(%s): pass' % arguments, scope)  # noqa: S102
        ours = inspect.signature(method)
        theirs = inspect.signature(scope['theirs']).parameters
        names = [name for name, parameter in theirs.items()
                 if parameter.kind is parameter.POSITIONAL_OR_KEYWORD]
        required = [name for name in names
                    if theirs[name].default is inspect.Parameter.empty]
        for given in (required, names):
            by_position = ours.bind(*given)
            self.assertEqual(
                ours.bind(given[0], **{name: name for name in given[1:]}
                          ).args[:2], by_position.args[:2], what)
            for name, value in by_position.arguments.items():
                if isinstance(value, str):
                    self.assertEqual(name, value, what)
