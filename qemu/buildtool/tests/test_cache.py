# SPDX-License-Identifier: Apache-2.0
import io
import json
import os
from pathlib import Path
import tempfile
from unittest import mock

import testtools

from buildtool import cli
from buildtool import common
from buildtool import compiler
from buildtool import debian
from buildtool import prefix
from buildtool import recipe


class CacheCase(testtools.TestCase):

    def setUp(self):
        super().setUp()
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.top = Path(scratch.name)
        self.cache = common.Cache(self.top)


class TestRun(CacheCase):

    def test_output_is_logged(self):
        log = self.top / 'log' / 'x.log'
        lines = []
        self.cache.run('saying', ['echo', 'one'], self.top, log,
                       on_line=lines.append)
        self.assertEqual(['one\n'], lines)
        self.assertEqual(['$ echo one', 'one'], common.last_lines(log))

    def test_failure_names_the_log(self):
        log = self.top / 'x.log'
        error = self.assertRaises(
            common.BuildError, self.cache.run, 'failing', ['false'],
            self.top, log)
        self.assertEqual('failing failed', str(error))
        self.assertEqual(log, error.log)


class TestScratch(CacheCase):

    def test_leftovers_are_removed(self):
        (self.top / '.copy-killed').mkdir()
        with common.scratch(self.top, '.copy-') as new:
            self.assertEqual([new], list(self.top.iterdir()))
        self.assertEqual([], list(self.top.iterdir()))


class TestSpace(CacheCase):

    def test_refused(self):
        error = self.assertRaises(
            common.BuildError, common.need_space, self.top, 1 << 40)
        self.assertIn('not enough disk space', str(error))

    def test_enough(self):
        common.need_space(self.top, 0)


class TestCached(CacheCase):

    def add(self, version):
        place = self.cache.folder('source', version)
        (place / 'source.json').write_text(json.dumps({
            'debian_version': f'1:{version}+ds-1', 'version': version,
            'identity': f'dsc:{version}'}))

    def test_empty(self):
        self.assertIsNone(debian.cached(self.cache))

    def test_newest(self):
        for version in ('10.0.2', '10.0.13', '10.0.9'):
            self.add(version)
        self.assertEqual('10.0.13', debian.cached(self.cache).version)
        self.assertEqual(
            '10.0.9', debian.cached(self.cache, '10.0.9').version)
        self.assertIsNone(debian.cached(self.cache, '10.0.3'))
        self.assertIsNone(debian.cached(
            self.cache, series=debian.SERIES['10.2']))


class TestPrune(CacheCase):

    def test_last_used_stay(self):
        for age, key in enumerate('abcde'):
            place = self.cache.folder(key, 'patched')
            (place / 'build.json').write_text('{}')
            os.utime(place, (1000 - age, 1000 - age))
        stock = self.cache.folder('e', 'stock')
        (stock / 'build.json').write_text('{}')
        prefix.use(self.cache.root / 'd' / 'patched')
        prefix.prune(self.cache, 'patched')
        self.assertEqual(
            ['a/patched', 'b/patched', 'd/patched', 'e/stock'],
            sorted(str(path.parent.relative_to(self.cache.root))
                   for path in self.cache.root.glob('*/*/build.json')))
        self.assertFalse((self.cache.root / 'c').exists())

    def test_all_of_today_stay(self):
        for key in 'abcde':
            place = self.cache.folder(key, 'patched')
            (place / 'build.json').write_text('{}')
        prefix.prune(self.cache, 'patched')
        self.assertEqual(5, len(list(self.cache.root.glob('*/patched'))))


class TestBuilds(CacheCase):
    """Which QEMUs --small means."""

    def setUp(self):
        super().setUp()
        for name, value in (('compiler', ('cc', 'cc 12')),
                            ('firmware_versions', 'seabios=1')):
            patch = mock.patch.object(
                recipe, name, autospec=True, return_value=value)
            patch.start()
            self.addCleanup(patch.stop)
        self.source = debian.Source('10.0.13', 'dsc:1', self.top)

    def builds(self, *words):
        return cli.builds(self.cache, self.source,
                          cli.parser().parse_args(words), [])

    def install(self, build):
        build.prefix.mkdir(parents=True)
        (build.prefix / 'build.json').write_text('{}')

    def test_complete(self):
        for build in self.builds('stock', 'patched'):
            self.assertIs(recipe.FULL, build.profile)
            self.assertEqual(build.flavour, build.prefix.name)

    def test_small(self):
        one, other = self.builds('stock', 'patched', '--small')
        self.assertIs(recipe.SMALL, one.profile)
        self.assertEqual(one.tree, other.tree)
        self.assertEqual(['stock-small', 'patched-small'],
                         [one.prefix.name, other.prefix.name])

    def test_faulty_is_apart_in_the_tree_of_patched(self):
        patched, faulty = self.builds('patched', 'faulty')
        self.assertEqual(patched.tree, faulty.tree)
        self.assertNotEqual(patched.prefix.parent, faulty.prefix.parent)
        self.assertEqual('faulty', faulty.prefix.name)

    def test_sanitizers_have_trees_of_their_own(self):
        one, = self.builds('stock', '--small')
        two = cli.Build(self.cache, self.source, 'stock', ['address'],
                        recipe.SMALL)
        self.assertNotEqual(one.tree, two.tree)
        self.assertNotEqual(one.prefix, two.prefix)

    def test_complete_ones_are_there(self):
        for build in self.builds('stock', 'patched'):
            self.install(build)
        self.assertEqual(
            {recipe.FULL}, {build.profile for build in
                            self.builds('stock', 'patched', '--small')})

    def test_one_complete_is_not_compared_with_a_small_one(self):
        self.install(self.builds('patched')[0])
        self.assertEqual(
            {recipe.SMALL}, {build.profile for build in
                             self.builds('stock', 'patched', '--small')})

    def test_series_are_apart(self):
        one, = self.builds('patched')
        self.source = debian.Source('10.2.2', 'dsc:1', self.top)
        other, = self.builds('patched')
        small, = self.builds('patched', '--small')
        self.assertEqual(['patched-10.2', 'patched-10.2-small'],
                         [other.prefix.name, small.prefix.name])
        self.assertEqual(one.patches / '10.2', other.patches)
        self.assertNotEqual(one.ours, other.ours)
        self.assertEqual('10.2-small', small.tree_kind)

    def test_both_flavours_from_one_tree(self):
        self.source.tree.joinpath('VERSION').write_text('10.0.13\n')
        seen = []
        stock, patched = self.builds('stock', 'patched', '--small')
        with (mock.patch.object(cli.compiler, 'configure', autospec=True),
              mock.patch.object(cli.common, 'need_space', autospec=True),
              mock.patch.object(cli.common, 'say', autospec=True),
              mock.patch.object(cli.tree, 'prepare', autospec=True),
              mock.patch.object(
                  cli.tree, 'restore', autospec=True,
                  side_effect=lambda *_: seen.append('restored')),
              mock.patch.object(
                  cli.tree, 'synchronise', autospec=True,
                  side_effect=lambda *_: seen.append('patched'))):
            for build in (stock, patched, stock):
                build.prepare()
        self.assertEqual(['restored', 'patched', 'restored'], seen)


class TestProgress(testtools.TestCase):

    def test_now_and_then(self):
        stream = io.StringIO()
        times = iter((0, 1, 16, 17, 18))
        progress = compiler.Progress(stream, lambda: next(times))
        for line in ('[1/9] a', 'warning', '[2/9] b', '[3/9] c', '[9/9] d'):
            progress.line(line)
        self.assertEqual(
            ['qemu/build: compiling 2/9 (16 s)',
             'qemu/build: compiling 9/9 (18 s)'],
            stream.getvalue().splitlines())


class TestCommand(CacheCase):

    def setUp(self):
        super().setUp()
        environment = mock.patch.dict(
            os.environ, NOVA_DEDUP_MIGRATE_CACHE=str(self.top))
        environment.start()
        self.addCleanup(environment.stop)
        for name in ('stdout', 'stderr'):
            patch = mock.patch(f'sys.{name}', new=io.StringIO())
            setattr(self, name, patch.start())
            self.addCleanup(patch.stop)

    def refuse(self, *arguments):
        """Run it, expecting one sentence, and return that."""
        self.assertEqual(1, cli.main(arguments))
        lines = self.stderr.getvalue().splitlines()
        self.assertEqual(1, len(lines))
        return lines[0]

    def test_not_built(self):
        self.assertIn('is not built', self.refuse('stock', '--print-prefix'))

    def test_unsupported_version(self):
        self.assertIn('9.2.0 is not supported',
                      self.refuse('stock', '--source', '9.2.0'))

    def test_no_source_there(self):
        self.assertIn('not an unpacked QEMU source',
                      self.refuse('stock', '--source-dir', str(self.top)))

    def test_unknown_sanitizer(self):
        self.assertIn('no sanitizer',
                      self.refuse('stock', '--sanitize', 'speed'))

    def test_unusable_cache(self):
        (self.top / 'qemu').write_text('')
        self.assertIn('not usable', self.refuse('stock'))

    def test_bad_options(self):
        for arguments in (['fast'], [], ['stock', '--jobs', '0'],
                          ['stock', '--jobs', 'x']):
            self.assertRaises(SystemExit, cli.main, arguments)
