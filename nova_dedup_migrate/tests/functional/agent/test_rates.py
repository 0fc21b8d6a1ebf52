# SPDX-License-Identifier: Apache-2.0
"""Reading past the page cache, on a real file system."""

import os
import shutil
import subprocess

from nova_dedup_migrate.images import operations
from nova_dedup_migrate.tests import base

MIB = 1 << 20


class RatesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        if shutil.which('fincore') is None:
            self.skipTest('fincore (util-linux) is not installed')
        self.directory = self.temporary_dir()
        self.disk = self.directory / 'disk'
        with self.disk.open('wb') as file:
            file.write(os.urandom(16 * MIB))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if self.cached():
            self.skipTest('the file system of %s keeps all in memory'
                          % self.directory)

    def cached(self):
        done = subprocess.run(
            ['fincore', '--bytes', '--noheadings', '--output', 'RES',
             str(self.disk)], capture_output=True, text=True, check=True)
        return int(done.stdout)

    def test_rate(self):
        for rate in operations.read_rates(
                str(self.disk), (str(self.directory),), 8 * MIB, 10.0):
            self.assertGreater(rate, 1000)
        self.assertEqual(0, self.cached())

    def test_samples(self):
        digest = operations.sample(str(self.disk), (str(self.directory),),
                                   '0' * 64)
        self.assertEqual(64, len(digest))
        self.assertEqual(0, self.cached())
