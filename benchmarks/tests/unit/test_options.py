# SPDX-License-Identifier: Apache-2.0
import contextlib
import io

from benchmarks import options
from nova_dedup_migrate.tests import base


class OptionsTest(base.TestCase):

    def refused(self, *arguments):
        """Run the parser on what it must refuse; return what it says."""
        said = io.StringIO()
        with contextlib.redirect_stderr(said):
            error = self.assertRaises(SystemExit, options.parse,
                                      list(arguments))
        self.assertEqual(2, error.code)
        self.assertEqual(1, said.getvalue().count('\n'), said.getvalue())
        return said.getvalue()

    def test_defaults(self):
        chosen, given = options.parse([])
        self.assertEqual(options.Options(), chosen)
        self.assertEqual(25_000_000, chosen.link_bytes_per_s)
        self.assertTrue(chosen.migration().paused)

    def test_unlimited_link(self):
        chosen, _ = options.parse(['--link', '0'])
        self.assertIsNone(chosen.link_bytes_per_s)
        self.assertIsNone(chosen.migration().max_bandwidth)

    def test_memory_grows_with_the_share(self):
        self.assertEqual(768,
                         options.parse(['--duplicates', '85'])[0].memory)

    def test_each_option_reaches_the_migration(self):
        chosen, _ = options.parse(['--multifd', '4', '--compression',
                                   'zstd', '--postcopy'])
        migration = chosen.migration()
        self.assertEqual(4, migration.multifd_channels)
        self.assertEqual('zstd', migration.multifd_compression)
        self.assertTrue(migration.postcopy)

    def test_own_copy_pauses_for_its_mirror(self):
        chosen, _ = options.parse(['--storage', 'own'])
        self.assertTrue(chosen.migration().pause_before_switchover)

    def test_wrong_values_end_with_one_sentence(self):
        for arguments in (
                ['--link', 'fast'], ['--link', '-1'], ['--link', 'nan'],
                ['--memory', '10'], ['--duplicates', '99'],
                ['--workload', 'games'], ['--format', 'vmdk'],
                ['--storage', 'tape'], ['--storage-rate', '0'],
                ['--multifd', '100'], ['--compression', 'zstd'],
                ['--xbzrle', '--multifd', '2'], ['--stock-peer', 'both'],
                ['--runs', 'stock,stock'], ['--runs', ''],
                ['--timeout', '0'], ['--device', 'floppy'],
                ['--storage', 'own', '--postcopy'],
                ['--memory', '512', '--duplicates', '85'],
                ['--nonsense']):
            self.assertStartsWith(self.refused(*arguments), 'demo: ')

    def assertStartsWith(self, text, start):
        self.assertTrue(text.startswith(start), text)

    def test_adaptive_rate(self):
        chosen = options.Options(link=500, start_link=100)
        migration = chosen.migration()
        self.assertEqual(12_500_000, migration.max_bandwidth)
        self.assertEqual(
            62_500_000,
            migration.qmp_parameters()['avail-switchover-bandwidth'])
        # 256 KiB at 62.5 MB/s
        self.assertEqual(5, migration.downtime_limit_ms)
        self.assertIsNone(options.Options().pacing)
