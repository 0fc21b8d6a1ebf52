# SPDX-License-Identifier: Apache-2.0
"""Requests that name what must not be opened."""

import os
import socket
import threading
from unittest import mock

from nova_dedup_migrate.images import paths
from nova_dedup_migrate.tests import base


class PathsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.top = self.temporary_dir()
        self.root = self.top / 'instances'
        (self.root / 'uuid').mkdir(parents=True)
        self.disk = self.root / 'uuid' / 'disk'
        self.disk.write_bytes(b'content')
        (self.top / 'secret').write_bytes(b'secret')

    def read(self, path, roots=None, opener=paths.open_file):
        with opener(str(path), roots or (str(self.root),)) as fd:
            return os.read(fd, 100)

    def refused(self, path, match, opener=paths.open_file, roots=None):
        error = self.assertRaises(paths.PathRefused, self.read, path,
                                  opener=opener, roots=roots)
        self.assertEqual(str(path), error.path)
        self.assertRegex(error.reason, match)
        self.assertIn(str(path), str(error))

    def test_disk(self):
        self.assertEqual(b'content', self.read(self.disk))

    def test_root_with_a_slash(self):
        self.assertEqual(b'content', self.read(
            self.disk, (str(self.root) + '/',)))

    def test_path_of_the_local_libvirt(self):
        with paths.open_file(str(self.top / 'secret'), None) as fd:
            self.assertEqual(b'secret', os.read(fd, 100))

    def test_outside(self):
        self.refused(self.top / 'secret', 'not below')
        self.refused('/etc/passwd', 'not below')
        self.refused(self.root, 'not below')
        (self.top / 'instances2').mkdir()
        (self.top / 'instances2' / 'disk').write_bytes(b'')
        self.refused(self.top / 'instances2' / 'disk', 'not below')

    def test_form(self):
        for path in ('disk', '', '%s/../secret' % self.root,
                     '%s/uuid/./disk' % self.root,
                     '%s//uuid/disk' % self.root, '%s/' % self.disk):
            self.refused(path, 'not absolute')

    def test_link_to_a_file(self):
        (self.root / 'uuid' / 'link').symlink_to(self.top / 'secret')
        self.refused(self.root / 'uuid' / 'link', 'symbolic link')

    def test_link_to_a_directory(self):
        (self.root / 'out').symlink_to(self.top)
        self.refused(self.root / 'out' / 'secret', 'out in it')

    def test_file_for_a_directory(self):
        self.refused(self.disk / 'disk', 'disk in it')

    def test_root_that_is_a_link(self):
        (self.top / 'link').symlink_to(self.root)
        self.assertEqual(b'content', self.read(
            self.top / 'link' / 'uuid' / 'disk', (str(self.top / 'link'),)))

    def test_no_regular_file(self):
        fifo = self.root / 'fifo'
        os.mkfifo(fifo)
        self.refused(fifo, 'no regular file')
        bound = self.root / 'socket'
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(bound))
            self.refused(bound, 'no regular file')
        self.refused(self.root / 'uuid', 'no regular file')
        self.refused('/dev/null', 'no regular file', roots=('/dev',))

    def test_fifo_is_not_opened(self):
        # its writer would see a reader come
        fifo = self.root / 'fifo'
        os.mkfifo(fifo)
        self.refused(fifo, 'no regular file')
        self.assertRaises(OSError, os.open, fifo,
                          os.O_WRONLY | os.O_NONBLOCK)

    def test_what_is_not_there(self):
        self.assertRaises(FileNotFoundError, self.read,
                          self.root / 'uuid' / 'none')

    def test_read_only(self):
        with paths.open_file(str(self.disk), (str(self.root),)) as fd:
            self.assertRaises(OSError, os.write, fd, b'x')

    def test_nothing_stays_open(self):
        before = os.listdir('/proc/self/fd')
        self.read(self.disk)
        (self.root / 'out').symlink_to(self.top)
        self.refused(self.root / 'out' / 'secret', 'out in it')
        self.refused(self.root / 'uuid', 'no regular file')
        if threading.active_count() == 1:
            self.assertEqual(before, os.listdir('/proc/self/fd'))

    def test_devices(self):
        for path in (self.disk, '/dev/null', '/dev/shm/x', '/dev/../etc/x'):
            if path == '/dev/shm/x' and not os.path.exists(path):
                continue
            self.refused(path, 'no device|no block device|not absolute',
                         opener=paths.open_block)

    def test_link_in_dev_out_of_it(self):
        link = self.top / 'link'
        link.symlink_to(self.disk)
        with mock.patch.object(paths, 'DEV', str(self.top)):
            self.refused(link, 'no device in', opener=paths.open_block)

    def test_beside(self):
        (self.root / 'uuid' / 'mark').write_bytes(b'mark')
        with paths.open_beside(str(self.disk), 'mark',
                               (str(self.root),)) as fd:
            self.assertEqual(b'mark', os.read(fd, 100))

    def test_link_beside(self):
        (self.root / 'uuid' / 'mark').symlink_to(self.top / 'secret')
        self.assertRaises(
            paths.PathRefused, paths.open_beside(
                str(self.disk), 'mark', (str(self.root),)).__enter__)
