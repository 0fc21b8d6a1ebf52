# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.tests import base
from testkit import bootsector


class BootSectorTest(base.TestCase):

    def test_it_is_a_boot_sector(self):
        for chunks in (0, bootsector.MAX_CHUNKS):
            code = bootsector.BootSector(chunks=chunks, delay=1).code()
            self.assertEqual(512, len(code))
            self.assertEqual(b'\x55\xaa', code[-2:])

    def test_image(self):
        spec = bootsector.BootSector(chunks=2)
        path = spec.write_image(self.temporary_dir() / 'disk')
        content = path.read_bytes()
        self.assertEqual(1 << 20, len(content))
        self.assertEqual(spec.code(), content[:512])
        payload = content[64 * 512:][:2 * bootsector.CHUNK]
        self.assertNotIn(bytes(16), payload)

    def test_other_seed_other_payload(self):
        spec = bootsector.BootSector(chunks=1)
        directory = self.temporary_dir()
        one = spec.write_image(directory / 'a').read_bytes()
        other = spec.write_image(directory / 'b', seed=2).read_bytes()
        self.assertNotEqual(one, other)

    def test_out_of_range(self):
        for given in ({'start': 1}, {'chunks': 15}, {'chunks': -1}):
            self.assertRaises(ValueError,
                              bootsector.BootSector(**given).code)
