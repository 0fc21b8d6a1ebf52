# SPDX-License-Identifier: Apache-2.0
"""The command that compares disks, with images of both formats."""

import contextlib
import importlib.util
import io
import json
import struct

from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.tests.functional.storage import world

_PNG = b'\x89PNG\r\n\x1a\n'


class SimilarityTest(world.Case):
    def setUp(self):
        super().setUp()
        conf = self.directory / 'nova.conf'
        conf.write_text('[DEFAULT]\nstate_path = %s\n' % self.directory)
        self.common = world.content(4, 100, zeros=0)
        self.disks = [self.disk_of('raw', world.content(5, 60, zeros=0)),
                      self.disk_of('qcow2', world.content(6, 20, zeros=0))]
        self.command = ['--config-file', str(conf), 'similarity',
                        *(disk.path for disk in self.disks)]

    def disk_of(self, image_format, own):
        image = self.create('disk.' + image_format, image_format,
                            256 * blocks.BLOCK)
        self.write(image, [(0, b''.join(self.common + own))])
        return image

    def run_command(self, *arguments):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(0, main.main([*self.command, *arguments]))
        return out.getvalue()

    def test_raw_and_qcow2(self):
        raw, qcow2 = json.loads(self.run_command('-f', 'json'))
        self.assertEqual((1.0, 100 / 160), (raw['disk.raw'],
                                            raw['disk.qcow2']))
        self.assertEqual(1 - 160 / 256, raw['zeros'])
        # the metadata of qcow2 are blocks, too
        self.assertEqual(1.0, qcow2['disk.qcow2'])
        self.assertTrue(100 / 130 < qcow2['disk.raw'] < 100 / 120,
                        qcow2['disk.raw'])

    def test_heat_map(self):
        if importlib.util.find_spec('matplotlib') is None:
            self.skipTest('matplotlib is not installed')
        path = self.directory / 'map.png'
        self.run_command('--png', str(path))
        data = path.read_bytes()
        self.assertEqual(_PNG, data[:8])
        # IHDR comes first, and the file is whole
        self.assertEqual(b'IHDR', data[12:16])
        self.assertTrue(all(side > 100 for side in
                            struct.unpack('>II', data[16:24])))
        self.assertEqual(b'IEND', data[-8:-4])
