# SPDX-License-Identifier: Apache-2.0
import lzma

from guests import kernel
from nova_dedup_migrate.tests import base


def module(*depends):
    return (b'\x7fELF\0license=GPL\0depends=' + ','.join(depends).encode()
            + b'\0name=x\0')


class LoadOrderTest(base.TestCase):

    def files(self, **modules):
        directory = self.temporary_dir()
        files = {}
        for name, depends in modules.items():
            files[name] = directory / (name + '.ko')
            files[name].write_bytes(module(*depends))
        return files

    def test_dependencies_come_first(self):
        files = self.files(virtio=(), virtio_ring=('virtio',),
                           virtio_blk=('virtio', 'virtio_ring'))
        order = kernel.in_load_order(['virtio_blk'], files)
        self.assertEqual(['virtio', 'virtio_ring', 'virtio_blk'],
                         list(order))

    def test_hyphen_and_underscore_are_one(self):
        self.assertEqual(['nvme_core'],
                         kernel.depends_of(module('nvme-core')))

    def test_built_in_modules_are_left_out(self):
        files = self.files(ext4=('jbd2',))
        self.assertEqual(['ext4'],
                         list(kernel.in_load_order(['crc16', 'ext4'],
                                                   files)))

    def test_a_circle_ends(self):
        files = self.files(a=('b',), b=('a',))
        self.assertEqual({'a', 'b'},
                         set(kernel.in_load_order(['a'], files)))

    def test_compressed_module(self):
        path = self.temporary_dir() / 'x.ko.xz'
        path.write_bytes(lzma.compress(module()))
        self.assertEqual(module(), kernel.module_data(path))
