# SPDX-License-Identifier: Apache-2.0
"""Measuring as rarely as possible."""

from unittest import mock

from nova_dedup_migrate.agent import storage_rates
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.images import access
from nova_dedup_migrate.images import rbd
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.tests import base

Rates = storage_rates.Rates


class StorageRatesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.root = self.temporary_dir()
        for name in ('a', 'b'):
            (self.root / name).write_bytes(b'x')
        self.site = nodes.Site(roots=(str(self.root),))
        patcher = mock.patch.object(access, 'read_rates', autospec=True,
                                    return_value=(5.0, 1.0))
        self.read_rates = patcher.start()
        self.addCleanup(patcher.stop)
        self.rates = self.make()

    def make(self, seconds=0.5, keep=600):
        return storage_rates.StorageRates(self.site, seconds, 1 << 20, keep)

    def claim(self, name, kind='file'):
        return objects.DedupNodeClaim(kind=kind,
                                      path=str(self.root / name))

    def test_once_for_a_file_system(self):
        for name in ('a', 'b'):
            self.assertEqual(Rates(5.0, 1.0),
                             self.rates.rates(self.claim(name), 1.0))
        self.read_rates.assert_called_once_with(
            str(self.root / 'a'), (str(self.root),), 1 << 20, 0.5,
            block=False)

    def test_again_after_some_time(self):
        rates = self.make(keep=0)
        rates.rates(self.claim('a'), 1.0)
        rates.rates(self.claim('a'), 1.0)
        self.assertEqual(2, self.read_rates.call_count)

    def test_again_if_there_was_nothing_to_read(self):
        self.read_rates.return_value = (None, None)
        self.assertIsNone(self.rates.rates(self.claim('a'), 1.0))
        self.read_rates.return_value = (7.0, None)
        self.assertEqual(Rates(7.0), self.rates.rates(self.claim('a'), 1.0))

    def test_off(self):
        self.assertIsNone(self.make(seconds=0).rates(self.claim('a'), 1.0))
        self.read_rates.assert_not_called()

    def test_one_at_a_time(self):
        with self.rates._measuring:
            self.assertIsNone(self.rates.rates(self.claim('a'), 0.01))
        self.read_rates.assert_not_called()

    def test_errors(self):
        for error in (OSError('EIO'), PermissionError()):
            self.read_rates.side_effect = error
            self.assertIsNone(self.rates.rates(self.claim('a'), 1.0))
        self.assertFalse(self.rates._measuring.locked())

    def test_not_allowed(self):
        self.assertIsNone(self.rates.rates(self.claim('/etc/passwd'), 1.0))
        self.assertIsNone(self.rates.rates(self.claim('none'), 1.0))
        self.assertIsNone(self.rates.rates(self.claim('a', 'block'), 1.0))
        self.read_rates.assert_not_called()

    def test_rbd(self):
        with mock.patch.object(rbd, 'read_rates', autospec=True,
                               return_value=(3.0, 2.0)) as read_rates:
            for image in ('vms/one', 'vms/two'):
                claim = objects.DedupNodeClaim(kind='rbd', path=image,
                                               user='cinder')
                self.assertEqual(Rates(3.0, 2.0), self.rates.rates(claim, 1.0))
        read_rates.assert_called_once_with('vms/one', 'cinder', None, '',
                                          1 << 20, 0.5)

    def test_bounded(self):
        with mock.patch.object(storage_rates, 'MAX_KNOWN', 1):
            self.rates._remember('x', 1.0)
            self.rates._remember('y', 2.0)
        self.assertEqual(['y'], list(self.rates._known))
