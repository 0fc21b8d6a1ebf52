# SPDX-License-Identifier: Apache-2.0
import shutil
import subprocess
import zlib

from guests import programs
from guests.synthetic import pattern
from nova_dedup_migrate.tests import base


class PatternTest(base.TestCase):

    def fill_tool(self):
        if shutil.which('gcc') is None:
            self.skipTest('no gcc')
        tool = self.temporary_dir() / 'fill'
        programs.compile_fill(tool)
        return tool

    def test_c_and_python_agree(self):
        tool = self.fill_tool()
        for place in ((1, 0, 0, 0), (7, 63, 1023, 5),
                      ((1 << 64) - 1, pattern.ANON_OBJECT, 1 << 40,
                       (1 << 32) - 1)):
            done = subprocess.run([tool, '-', *map(str, place)],
                                  capture_output=True, check=True)
            self.assertEqual(pattern.page(*place), done.stdout, place)
            done = subprocess.run([tool, '-', *map(str, place), 'plain'],
                                  capture_output=True, check=True)
            self.assertEqual(pattern.page(*place, plain=True), done.stdout,
                             place)

    def test_pages_differ_in_every_argument(self):
        pages = {pattern.page(*place) for place in (
            (1, 2, 3, 4), (2, 2, 3, 4), (1, 3, 3, 4), (1, 2, 4, 4),
            (1, 2, 3, 5))}
        self.assertEqual(5, len(pages))

    def test_cannot_be_compressed(self):
        data = b''.join(pattern.page(1, 0, n) for n in range(16))
        self.assertGreater(len(zlib.compress(data, 9)), len(data))

    def test_compresses_as_a_real_guest(self):
        """Zlib makes about as much of it as zstd -1."""
        data = b''.join(pattern.page(1, pattern.ANON_OBJECT, n, plain=True)
                        for n in range(64))
        self.assertLess(len(zlib.compress(data, 1)), 0.25 * len(data))
        self.assertGreater(len(zlib.compress(data, 9)), 0.15 * len(data))

    def test_files_of_a_disk(self):
        tool = self.fill_tool()
        directory = self.temporary_dir()
        subprocess.run([tool, directory, '9', '2', '3'], check=True)
        self.assertEqual(['f00000', 'f00001'],
                         sorted(path.name for path in directory.iterdir()))
        self.assertEqual(
            b''.join(pattern.page(9, 1, n) for n in range(3)),
            (directory / 'f00001').read_bytes())
