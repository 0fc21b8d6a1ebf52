# SPDX-License-Identifier: Apache-2.0
"""Operations and reports that older versions have stored.

``stored/<version>`` has files as that version wrote them.  A release adds a
directory; none is changed afterwards.
"""

import json
import pathlib
import shutil

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples

STORED = pathlib.Path(__file__).parent / 'stored'


def differences(old, new, path=''):
    """Yield paths of what a newer value lacks or has otherwise.

    What an older version did not have may have been added.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for name, value in old.items():
            if name not in new:
                yield '%s.%s' % (path, name)
            else:
                yield from differences(value, new[name],
                                       '%s.%s' % (path, name))
    elif isinstance(old, list) and isinstance(new, list | tuple) and (
            len(old) == len(new)):
        for number, pair in enumerate(zip(old, new, strict=True)):
            yield from differences(*pair, '%s[%d]' % (path, number))
    elif old != new:
        yield '%s: %r, not %r' % (path, new, old)


class StoredTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.versions = sorted(STORED.iterdir())
        self.assertNotEqual([], self.versions)

    def copy(self, version):
        """Return a store with a version's files, which may be written to."""
        path = self.temporary_dir() / version.name
        shutil.copytree(version, path)
        return store.OperationStore(path, 100)

    def test_reports_are_read_as_they_were(self):
        for version in self.versions:
            of_version = self.copy(version)
            names = of_version.names()
            self.assertEqual({path.stem for path in version.iterdir()},
                             set(names))
            for name in names:
                old = json.loads((version / (name + '.json')).read_text())
                new = json.loads(json.dumps(
                    codec.plain(of_version.read(name))))
                self.assertEqual(
                    [], list(differences(old['report'], new)),
                    '%s of %s' % (name, version.name))

    def test_what_has_not_ended_is_recovered(self):
        for version in self.versions:
            of_version = self.copy(version)
            found, missing = of_version.unfinished()
            self.assertEqual([], missing)
            stored = {}
            for path in version.iterdir():
                values = json.loads(path.read_text())['operation']
                if values['phase'] != operations.ENDED:
                    stored[path.stem] = values
            self.assertEqual(
                set(stored), {durable.id for durable, _ in found})
            for durable, _ in found:
                self.assertEqual([], list(differences(
                    stored[durable.id],
                    json.loads(json.dumps(codec.plain(durable))))))

    def test_all_phases_but_short_ones_are_there(self):
        for version in self.versions:
            self.assertLessEqual(
                {operations.REQUESTED, operations.RUNNING,
                 operations.ROLLING_BACK, operations.STUCK,
                 operations.ENDED},
                {json.loads(path.read_text())['operation']['phase']
                 for path in version.iterdir()})

    def test_a_new_version_writes_over_what_an_old_one_wrote(self):
        for version in self.versions:
            of_version = self.copy(version)
            for durable, report in of_version.unfinished()[0]:
                of_version.write(samples.make(
                    id=durable.id, earlier=report,
                    phase=operations.ENDED))
            self.assertEqual(([], []), of_version.unfinished())

    def test_differences_are_found(self):
        self.assertEqual([], list(differences({'a': [1]},
                                              {'a': (1,), 'b': 2})))
        self.assertEqual(
            ['.a[0]: 2, not 1', '.b'],
            list(differences({'a': [1], 'b': None}, {'a': [2]})))
