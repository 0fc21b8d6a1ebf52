# SPDX-License-Identifier: Apache-2.0
import io
import shutil
import subprocess

from guests import cpio
from nova_dedup_migrate.tests import base


def archive():
    out = io.BytesIO()
    writer = cpio.CpioWriter(out)
    writer.directory('dev')
    writer.character_device('dev/console', 5, 1)
    writer.file('init', b'#!x', 0o755)
    writer.file('odd', b'12345')
    writer.close()
    return out.getvalue()


class CpioTest(base.TestCase):

    def test_header(self):
        data = archive()
        self.assertEqual(b'070701', data[:6])
        self.assertEqual(0o040755, int(data[14:22], 16))
        self.assertEqual(b'dev\0', data[110:114])

    def test_every_header_is_aligned(self):
        data = archive()
        at = -1
        for _ in range(5):
            at = data.index(b'070701', at + 1)
            self.assertEqual(0, at % 4)
        self.assertEqual(0, len(data) % 4)

    def test_same_input_same_archive(self):
        self.assertEqual(archive(), archive())

    def test_cpio_reads_it(self):
        if shutil.which('cpio') is None:
            self.skipTest('no cpio')
        done = subprocess.run(['cpio', '-tv', '--quiet'], input=archive(),
                              capture_output=True, check=True)
        lines = done.stdout.decode().splitlines()
        self.assertEqual(4, len(lines), lines)
        self.assertRegex(lines[1], r'^crw-------.*5, +1.*dev/console$')
        self.assertRegex(lines[2], r'^-rwxr-xr-x.* 3 .*init$')

    def test_a_tree_has_the_directories_of_its_files(self):
        if shutil.which('cpio') is None:
            self.skipTest('no cpio')
        out = io.BytesIO()
        cpio.write_tree(out, ('proc', 'var/tmp'),
                        {'/init': b'#!x', '/lib/a/b.so': b'y'})
        done = subprocess.run(['cpio', '-t', '--quiet'],
                              input=out.getvalue(), capture_output=True,
                              check=True)
        self.assertEqual(
            ['dev', 'lib', 'lib/a', 'proc', 'var', 'var/tmp', 'dev/console',
             'init', 'lib/a/b.so'], done.stdout.decode().splitlines())
