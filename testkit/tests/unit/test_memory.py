# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.tests import base
from testkit import memory

MIB = 1 << 20
PAGE = memory.PAGE


class CompareTest(base.TestCase):

    def image(self, name, *contents):
        files = []
        for number, content in enumerate(contents):
            path = self.dir / ('%s-%d' % (name, number))
            path.write_bytes(content)
            files.append(memory.RamFile(
                memory.RamRange(number << 32, len(content)), path))
        return memory.RamImage(tuple(files))

    def setUp(self):
        super().setUp()
        self.dir = self.temporary_dir()

    def test_identical(self):
        content = bytes(range(256)) * 16 * 700
        result = memory.compare(self.image('a', content),
                                self.image('b', content))
        self.assertTrue(result.identical)
        self.assertEqual(700, result.pages)

    def test_every_differing_page_is_found(self):
        content = bytearray(3 * MIB + PAGE)
        expected = [0, MIB - PAGE, MIB, 2 * MIB + 17 * PAGE, 3 * MIB]
        one = self.image('a', content, bytes(PAGE))
        for address in expected:
            content[address + 4095] = 1
        other = self.image('b', content, b'\1' * PAGE)
        result = memory.compare(one, other)
        self.assertEqual(tuple(expected + [1 << 32]), result.addresses)
        self.assertEqual(6, result.differing)
        self.assertFalse(result.identical)

    def test_list_is_bounded(self):
        result = memory.compare(self.image('a', bytes(100 * PAGE)),
                                self.image('b', b'\1' * 100 * PAGE), 3)
        self.assertEqual((100, (0, PAGE, 2 * PAGE)),
                         (result.differing, result.addresses))

    def test_other_shape(self):
        self.assertRaises(ValueError, memory.compare,
                          self.image('a', bytes(PAGE)),
                          self.image('b', bytes(2 * PAGE)))

    def test_short_file(self):
        one, other = (self.image('a', bytes(2 * PAGE)),
                      self.image('b', bytes(2 * PAGE)))
        other.files[0].path.write_bytes(bytes(PAGE))
        self.assertRaises(ValueError, memory.compare, one, other)

    def test_keep(self):
        one, other = (
            self.image(name, bytes(2 * PAGE), byte * 3 * PAGE)
            for name, byte in (('a', b'\1'), ('b', b'\2')))
        memory.keep(self.dir / 'kept', [PAGE, (1 << 32) + 2 * PAGE],
                    here=one, there=other)
        self.assertEqual(
            {'0x1000.here': bytes(PAGE), '0x1000.there': bytes(PAGE),
             '0x100002000.here': b'\1' * PAGE,
             '0x100002000.there': b'\2' * PAGE},
            {path.name: path.read_bytes()
             for path in (self.dir / 'kept').iterdir()})

    def test_remove(self):
        image = self.image('a', bytes(PAGE))
        image.remove()
        self.assertEqual([], list(self.dir.iterdir()))
        image.remove()
