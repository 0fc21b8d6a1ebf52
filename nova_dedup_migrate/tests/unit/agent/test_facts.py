# SPDX-License-Identifier: Apache-2.0
"""The answer as a whole."""

import threading
from unittest import mock

from nova_dedup_migrate.agent import emulator
from nova_dedup_migrate.agent import facts
from nova_dedup_migrate.agent import storage_rates
from nova_dedup_migrate.identity import answer
from nova_dedup_migrate.identity import nodes
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.tests import base

UUID = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'


def disk(target='vda', copy='shared'):
    return objects.DedupDiskAnswer(target=target, copy=copy, reason='so')


class FactsTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.emulators = mock.create_autospec(emulator.Emulators,
                                              instance=True)
        self.emulators.describe.return_value = emulator.Emulator(
            True, '10.0.3')
        self.rates = mock.create_autospec(storage_rates.StorageRates,
                                          instance=True)
        self.rates.rates.return_value = storage_rates.Rates(5.0, 2.0)
        self.site = nodes.Site(roots=('/x',))
        self.facts = facts.Facts('compute2', '1.2', self.site,
                                 self.emulators, self.rates)
        patcher = mock.patch.object(answer, 'answer', autospec=True)
        self.answer = patcher.start()
        self.answer.side_effect = lambda query, key, site: disk(query.target)
        self.addCleanup(patcher.stop)

    def request(self, images=1, targets=('vda',), **kwargs):
        claim = objects.DedupNodeClaim(kind='file', path='/x/disk')
        return objects.DedupFactsRequest(
            instance_uuid=UUID, migration_uuid=UUID, emulator='/qemu',
            disks=[objects.DedupDiskQuery(target=target,
                                          chain=[claim] * images)
                   for target in targets],
            sample_key='0' * 64, **{'budget': 30.0, **kwargs})

    def test_answer(self):
        reply = self.facts.reply(self.request(targets=('vda', 'vdb')))
        self.assertEqual(('compute2', '1.2', True, '10.0.3', ''),
                         (reply.host, reply.release, reply.patched,
                          reply.qemu_version, reply.reason))
        self.assertEqual([('vda', 'shared', 5.0, 2.0),
                          ('vdb', 'shared', 5.0, 2.0)],
                         [(each.target, each.copy, each.storage_rate,
                           each.scattered_rate) for each in reply.disks])
        self.emulators.describe.assert_called_once_with('/qemu')

    def test_not_measured_if_nobody_wants_to_know(self):
        for request in (self.request(probe_storage=False),):
            reply = self.facts.reply(request)
            self.assertIsNone(reply.disks[0].storage_rate)
        self.emulators.describe.return_value = emulator.Emulator(
            False, '10', 'stock')
        reply = self.facts.reply(self.request())
        self.assertEqual('stock', reply.reason)
        self.answer.side_effect = [disk(copy='none')]
        self.facts.reply(self.request())
        self.rates.rates.assert_not_called()

    def test_first_image_with_content_is_measured(self):
        self.rates.rates.side_effect = [None, storage_rates.Rates(7.0)]
        reply = self.facts.reply(self.request(images=3))
        self.assertEqual((7.0, None), (reply.disks[0].storage_rate,
                                       reply.disks[0].scattered_rate))
        self.assertEqual(2, self.rates.rates.call_count)

    def test_storage_hangs(self):
        done = threading.Event()
        self.addCleanup(done.set)
        self.answer.side_effect = lambda *args: done.wait(30)
        reply = self.facts.reply(self.request(targets=('vda', 'vdb'),
                                              budget=0.05))
        for each in reply.disks:
            self.assertEqual('none', each.copy)
            self.assertIn('did not answer', each.reason)

    def test_measurement_hangs(self):
        done = threading.Event()
        self.addCleanup(done.set)
        self.rates.rates.side_effect = lambda *args: done.wait(30)
        reply = self.facts.reply(self.request(budget=0.05))
        self.assertIsNone(reply.disks[0].storage_rate)
        self.assertEqual('shared', reply.disks[0].copy)

    def test_too_many_images(self):
        reply = self.facts.reply(self.request(
            images=64, targets=['vd%d' % n for n in range(9)]))
        self.assertIn('576 images', reply.disks[8].reason)
        self.answer.assert_not_called()

    def test_no_disks(self):
        self.assertEqual([], self.facts.reply(self.request(
            targets=())).disks)

    def test_host_that_takes_no_part(self):
        off = facts.Facts('compute2', '1.2', self.site, self.emulators,
                          self.rates, enabled=False)
        reply = off.reply(self.request())
        self.assertFalse(reply.patched)
        self.assertIn('enabled is off', reply.reason)
        self.assertEqual('none', reply.disks[0].copy)
        self.answer.assert_not_called()
