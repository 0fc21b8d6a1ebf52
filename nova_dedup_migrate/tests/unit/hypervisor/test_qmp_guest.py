# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.tests import base
from testkit import direct
from testkit import spec

GIB = 1 << 30


class QmpGuestTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.guest = direct.DirectGuest(spec.GuestSpec('qemu'))
        self.replies = {
            'qom-get': 'pc-i440fx-10.0-machine',
            'query-memory-size-summary': {'base-memory': GIB},
            'query-memory-devices': [], 'calc-dirty-rate': {},
            'query-dirty-rate': {'status': 'measured', 'dirty-rate': 3},
            'query-migrate': {}, 'query-status': {'status': 'running'},
            'getfd': {}, 'closefd': {}}
        self.commands = []
        for name in ('execute', 'execute_with_fd'):
            patcher = mock.patch.object(
                self.guest, name, autospec=True,
                side_effect=getattr(self, '_' + name))
            patcher.start()
            self.addCleanup(patcher.stop)

    def _execute(self, command, arguments, timeout=None, oob=False):
        self.commands.append((command, arguments))
        if command not in self.replies:
            raise errors.CommandNotFound(
                command=command, error_class='CommandNotFound',
                description='')
        return self.replies[command]

    def _execute_with_fd(self, fd, command, arguments):
        return self._execute(command, arguments)

    def test_sample_hints(self):
        one = {'device': 'virtio-disk0', 'hints': 9, 'sampled': 5,
               'valid': 4}
        self.replies['x-dedup-sample-hints'] = [one] * 2
        self.assertEqual((statistics.DiskHints('virtio-disk0', 9, 5, 4),) * 2,
                         self.guest.sample_hints(7))
        self.assertEqual([('x-dedup-sample-hints', {'pages': 7})],
                         self.commands)

    def test_sample_hints_of_another_qemu(self):
        self.assertRaises(errors.DedupNotSupported, self.guest.sample_hints)
        for reply in ({}, None, [{}], [1], [{'device': 'a', 'hints': 0,
                                             'sampled': 0, 'valid': 0}] * 128):
            self.replies['x-dedup-sample-hints'] = reply
            self.assertRaises(errors.MalformedReply, self.guest.sample_hints)

    def test_dirty_rate(self):
        self.assertEqual(3 << 20, self.guest.dirty_rate())
        asked = dict(self.commands)['calc-dirty-rate']
        self.assertEqual(8192, asked['sample-pages'])

    def test_sample_has_limits(self):
        for size, expected in ((1 << 20, 16384), (1024 * GIB, 128)):
            self.replies['query-memory-size-summary'] = {
                'base-memory': size}
            self.guest.dirty_rate()
            asked = dict(self.commands)['calc-dirty-rate']
            self.assertEqual(expected, asked['sample-pages'])

    def test_malformed_dirty_rate(self):
        for reply in ([], {'status': 'measured'},
                      {'status': 'measured', 'dirty-rate': -1}):
            self.replies['query-dirty-rate'] = reply
            self.assertRaises(errors.MalformedReply, self.guest.dirty_rate)

    def test_memory_in_use(self):
        self.replies['x-dedup-sample-memory'] = {
            'pages': GIB >> 12, 'sampled': 1024, 'used': 256}
        self.assertEqual(GIB / 4, self.guest.memory_in_use().bytes)
        self.assertEqual([('x-dedup-sample-memory', {'pages': 1024})],
                         self.commands)
        self.replies['x-dedup-sample-memory'] = []
        self.assertRaises(errors.MalformedReply, self.guest.memory_in_use)

    def test_page_digests(self):
        self.assertRaises(errors.DedupNotSupported, self.guest.page_digests,
                          5)
        self.commands.clear()
        self.replies['x-dedup-sample-digests'] = {
            'pages': 3, 'digests': 'eDkcAopGk9ARXsRw'}
        found = self.guest.page_digests(5)
        self.assertEqual((3, 12), (found.total, len(found.digests)))
        self.assertEqual([('x-dedup-sample-digests',
                           {'seed': 5, 'pages': 8192})], self.commands)

    def test_disk_bytes_written(self):
        self.replies['query-blockstats'] = [
            {'device': '', 'stats': {'wr_bytes': 5, 'rd_bytes': 7},
             'parent': {'stats': {'wr_bytes': 900}}},
            {'device': 'x', 'stats': {'wr_bytes': 6}}]
        self.assertEqual(11, self.guest.disk_bytes_written())
        for reply in ({}, ['x'], [{}], [{'stats': {}}],
                      [{'stats': {'wr_bytes': -1}}]):
            self.replies['query-blockstats'] = reply
            self.assertRaises(errors.MalformedReply,
                              self.guest.disk_bytes_written)

    def test_malformed_state(self):
        for reply in ([], {}, {'status': 1}):
            self.replies['query-status'] = reply
            self.assertRaises(errors.MalformedReply, self.guest.run_state)

    def test_stock_qemu(self):
        self.assertFalse(self.guest.is_patched())
        self.assertIsNone(self.guest.progress().dedup)
        self.assertRaises(errors.DedupNotSupported,
                          self.guest.load_dedup_map, 3)
        self.assertEqual('closefd', self.commands[-1][0])

    def test_index(self):
        self.replies['x-dedup-index-disks'] = {}
        self.replies['x-dedup-index-cancel'] = {}
        self.guest.index_disks()
        self.guest.index_disks(('a', 'b'), rate=0, memory=5, cached=True)
        self.guest.cancel_index()
        self.assertEqual(
            [('x-dedup-index-disks', {}),
             ('x-dedup-index-disks', {
                 'devices': ['a', 'b'], 'rate': 0, 'memory': 5,
                 'cached': True}),
             ('x-dedup-index-cancel', {})], self.commands)
        self.replies['query-x-dedup'] = {'index': {
            'state': 'disks', 'found-pages': 7}}
        found = self.guest.dedup_statistics().index
        self.assertEqual((True, 7), (found.running, found.found_pages))

    def test_patched_qemu(self):
        self.replies['query-x-dedup'] = {'tracking': True}
        self.assertTrue(self.guest.is_patched())
        self.assertTrue(self.guest.progress().dedup.tracking)
        self.assertIsNone(self.guest.progress(dedup=False).dedup)
