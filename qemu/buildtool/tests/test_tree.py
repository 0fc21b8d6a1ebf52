# SPDX-License-Identifier: Apache-2.0
import os
from pathlib import Path
import tempfile
from unittest import mock

import testtools

from buildtool import common
from buildtool import debian
from buildtool import tree

RAM = '\n'.join(f'line {n}' for n in range(1, 21)) + '\n'
HOOK = """\
--- a/migration/ram.c
+++ b/migration/ram.c
@@ -8,6 +8,7 @@
 line 8
 line 9
 line 10
+hook
 line 11
 line 12
 line 13
"""


class TreeCase(testtools.TestCase):
    """A pristine source, our files and patches, and a prepared tree."""

    def setUp(self):
        super().setUp()
        silence = mock.patch.object(common, 'say', autospec=True)
        silence.start()
        self.addCleanup(silence.stop)
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.top = Path(scratch.name)
        self.src = self.top / 'src'
        self.tops = (self.src,)
        self.patches = self.top / 'patches'
        self.place = self.top / 'place'
        pristine = self.top / 'pristine'
        for folder in (self.src, self.patches, self.place,
                       pristine / 'migration'):
            folder.mkdir(parents=True)
        (pristine / 'migration' / 'ram.c').write_text(RAM)
        (pristine / 'VERSION').write_text('10.0.13\n')
        self.source = debian.Source('10.0.13', 'test', pristine)
        tree.prepare(self.source, self.place)
        self.ram = self.place / 'source' / 'migration' / 'ram.c'

    def write(self, name, content=''):
        path = self.src / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def patch(self, text, name='hook.patch'):
        (self.patches / name).write_text(text)
        (self.patches / 'series').write_text(f'# hooks\n\n{name}\n')

    def synchronise(self):
        return tree.synchronise(
            self.source, self.place, self.tops, self.patches)


class TestPrepare(TreeCase):

    def test_builds_and_history_stay_behind(self):
        for name in ('build', '.git', 'include/build'):
            (self.source.tree / name).mkdir(parents=True)
        place = self.top / 'other'
        place.mkdir()
        tree.prepare(self.source, place)
        self.assertEqual(
            {'VERSION', 'migration', 'include'},
            {path.name for path in (place / 'source').iterdir()})
        self.assertTrue((place / 'source/include/build').is_dir())


    def test_files_that_configure_needs(self):
        place = self.top / 'other'
        place.mkdir()
        tree.prepare(self.source, place, [('migration/x.mak', 'X=y\n')])
        self.assertEqual(
            'X=y\n', (place / 'source/migration/x.mak').read_text())


class TestRestore(TreeCase):

    def test_pristine_again(self):
        self.write('a.c', 'a')
        self.patch(HOOK)
        self.synchronise()
        self.assertEqual(['a.c', 'migration/ram.c'],
                         tree.restore(self.source, self.place))
        self.assertFalse((self.place / 'source' / 'a.c').exists())
        self.assertEqual(RAM, self.ram.read_text())
        self.assertEqual([], tree.restore(self.source, self.place))

    def test_patched_again(self):
        self.patch(HOOK)
        self.synchronise()
        tree.restore(self.source, self.place)
        self.assertEqual(['migration/ram.c'], self.synchronise())
        self.assertIn('hook', self.ram.read_text())

    def test_after_a_kill(self):
        # noted and not written yet
        (self.place / 'ours.json').write_text('["a.c", "migration/ram.c"]')
        self.assertEqual([], tree.restore(self.source, self.place))

    def test_fresh(self):
        self.assertEqual([], tree.restore(self.source, self.place))


class TestSynchronise(TreeCase):

    def test_later_folder_counts(self):
        more = self.top / 'more'
        more.mkdir()
        (more / 'a.c').write_text('new')
        self.write('a.c', 'old')
        self.write('b.c', 'b')
        self.synchronise()
        self.tops = (self.src, more)
        self.assertEqual(['a.c'], self.synchronise())
        self.assertEqual(
            'new', (self.place / 'source' / 'a.c').read_text())
        self.tops = (self.src,)
        self.assertEqual(['a.c'], self.synchronise())

    def test_nothing_to_do(self):
        self.assertEqual([], self.synchronise())

    def test_files_and_hooks(self):
        self.write('migration/dedup/hints.c', 'x')
        self.patch(HOOK)
        self.assertEqual(
            ['migration/dedup/hints.c', 'migration/ram.c'],
            self.synchronise())
        self.assertIn('line 10\nhook\nline 11', self.ram.read_text())
        self.assertEqual([], self.synchronise())

    def test_only_what_changed_is_touched(self):
        self.write('a.c', 'a')
        self.write('b.c', 'b')
        self.patch(HOOK)
        self.synchronise()
        old = self.place / 'source' / 'a.c'
        for path in (old, self.ram):
            os.utime(path, (1, 1))
        self.write('b.c', 'changed')
        self.assertEqual(['b.c'], self.synchronise())
        self.assertEqual(1, old.stat().st_mtime)
        self.assertEqual(1, self.ram.stat().st_mtime)

    def test_what_is_gone_is_undone(self):
        self.write('a.c', 'a')
        self.patch(HOOK)
        self.synchronise()
        (self.src / 'a.c').unlink()
        (self.patches / 'series').unlink()
        self.assertEqual(['a.c', 'migration/ram.c'], self.synchronise())
        self.assertFalse((self.place / 'source' / 'a.c').exists())
        self.assertEqual(RAM, self.ram.read_text())

    def test_edited_in_the_tree(self):
        self.patch(HOOK)
        self.synchronise()
        self.ram.write_text('edited')
        self.assertEqual(['migration/ram.c'], self.synchronise())
        self.assertIn('hook', self.ram.read_text())

    def test_offset_is_fine(self):
        moved = 'new\nnew\n' + RAM
        (self.source.tree / 'migration' / 'ram.c').write_text(moved)
        self.patch(HOOK)
        self.synchronise()
        self.assertIn('line 10\nhook\nline 11', self.ram.read_text())

    def test_hook_that_does_not_fit(self):
        self.write('a.c', 'a')
        self.patch(HOOK.replace('line 9', 'other'))
        error = self.assertRaises(common.BuildError, self.synchronise)
        for part in ('hook.patch', '10.0.13', 'migration/ram.c'):
            self.assertIn(part, str(error))
        self.assertEqual(RAM, self.ram.read_text())
        self.assertFalse((self.place / 'source' / 'a.c').exists())

    def test_hook_in_missing_file(self):
        self.patch(HOOK.replace('ram.c', 'none.c'))
        error = self.assertRaises(common.BuildError, self.synchronise)
        self.assertIn('migration/none.c', str(error))

    def test_replacing_a_file_of_qemu(self):
        self.write('migration/ram.c', 'x')
        error = self.assertRaises(common.BuildError, self.synchronise)
        self.assertIn('qemu/src/migration/ram.c', str(error))

    def test_listed_patch_missing(self):
        (self.patches / 'series').write_text('gone.patch\n')
        error = self.assertRaises(common.BuildError, self.synchronise)
        self.assertIn('gone.patch', str(error))

    def test_patch_outside_the_tree(self):
        self.patch(HOOK.replace('migration/ram.c', '../../x'))
        error = self.assertRaises(common.BuildError, self.synchronise)
        self.assertIn('leaves the tree', str(error))


class TestDigest(TreeCase):

    def digest(self):
        return tree.digest(self.tops, self.patches)

    def test_follows_files_and_listed_patches(self):
        seen = {self.digest()}
        self.write('a.c', 'a')
        seen.add(self.digest())
        self.write('a.c', 'b')
        seen.add(self.digest())
        self.patch(HOOK)
        seen.add(self.digest())
        self.assertEqual(4, len(seen))

    def test_leftovers_do_not_count(self):
        before = self.digest()
        self.write('a.c~', 'a')
        self.write('.a.c.swp', 'a')
        (self.patches / 'unlisted.patch').write_text(HOOK)
        self.assertEqual(before, self.digest())
