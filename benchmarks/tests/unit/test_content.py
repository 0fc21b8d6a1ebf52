# SPDX-License-Identifier: Apache-2.0
from benchmarks import content
from guests.synthetic import pattern
from nova_dedup_migrate.tests import base
from testkit import memory


class ContentTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()

    def ram(self, *pages):
        path = self.directory / 'ram'
        path.write_bytes(b''.join(pages))
        size = 4096 * len(pages)
        return memory.RamImage(
            (memory.RamFile(memory.RamRange(0, size), path),))

    def test_counts(self):
        image = self.directory / 'disk'
        image.write_bytes(pattern.page(1, 0, 0) + bytes(4096)
                          + pattern.page(1, 0, 1))
        ram = self.ram(bytes(4096), pattern.page(1, 0, 1),
                       pattern.page(2, 0, 0), pattern.page(1, 0, 0))
        found = content.analyse(ram, [image])
        self.assertEqual(content.Content(4, 3, 2), found)
        self.assertEqual(4096, found.unique_bytes)
        self.assertAlmostEqual(2 / 3, found.share)

    def test_file_system_that_is_not_aligned(self):
        image = self.directory / 'disk'
        image.write_bytes(bytes(63 * 512) + pattern.page(1, 0, 0))
        ram = self.ram(pattern.page(1, 0, 0))
        self.assertEqual(
            1, content.analyse(ram, [image], 63 * 512).duplicate)
        self.assertEqual(0, content.analyse(ram, [image]).duplicate)

    def test_all_layers_of_a_chain_count(self):
        layers = []
        for number in range(2):
            layers.append(self.directory / f'layer{number}')
            layers[-1].write_bytes(pattern.page(number, 0, 0))
        ram = self.ram(pattern.page(0, 0, 0), pattern.page(1, 0, 0))
        self.assertEqual(2, content.analyse(ram, layers).duplicate)
