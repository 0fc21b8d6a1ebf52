# SPDX-License-Identifier: Apache-2.0
"""Measuring links as rarely as possible, and never beside a migration."""

import threading
from unittest import mock

from nova_dedup_migrate.agent import errors as agent_errors
from nova_dedup_migrate.agent import link
from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.agent import peers
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.tests import base


class LinkRatesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.api = mock.create_autospec(api.AgentAPI, instance=True)
        self.peers = mock.create_autospec(peers.Peers, instance=True)
        self.peers.resolve.return_value = (2, ('192.0.2.1', 49152))
        self.busy = False
        patcher = mock.patch.object(link, 'measure', autospec=True,
                                    return_value=9.0)
        self.measure = patcher.start()
        self.addCleanup(patcher.stop)

    def rates(self, seconds=0.5, keep=600):
        return link_rates.LinkRates(
            self.api, 'compute1', self.peers, seconds, 1 << 20, keep,
            lambda: self.busy)

    def test_measured_once(self):
        rates = self.rates()
        self.assertEqual((9.0, ''), (rates.rate({}, 'compute2', 1.0).rate,
                                     rates.rate({}, 'compute2', 1.0).reason))
        self.api.link_probe.assert_called_once_with({}, 'compute2',
                                                    mock.ANY)
        self.assertEqual(9.0, rates.rate({}, 'compute3', 1.0).rate)
        self.assertEqual(2, self.measure.call_count)

    def test_only_the_address_that_was_checked_is_used(self):
        self.rates().rate({}, 'compute2', 1.0)
        offer = self.api.link_probe.return_value
        self.peers.resolve.assert_called_once_with('compute2', offer)
        request = self.api.link_probe.call_args.args[2]
        self.measure.assert_called_once_with(offer, request, 2,
                                             ('192.0.2.1', 49152))

    def test_offer_that_is_refused(self):
        self.peers.resolve.side_effect = agent_errors.OfferRefused(
            host='compute2', address='127.0.0.1', port=22,
            reason='the port is wrong')
        found = self.rates().rate({}, 'compute2', 1.0)
        self.assertIsNone(found.rate)
        self.assertIn('127.0.0.1, port 22: the port is wrong', found.reason)
        self.measure.assert_not_called()

    def test_measured_each_time(self):
        rates = self.rates(keep=0)
        rates.rate({}, 'compute2', 1.0)
        rates.rate({}, 'compute2', 1.0)
        self.assertEqual(2, self.measure.call_count)
        rates.refresh({})
        self.assertEqual(2, self.measure.call_count)

    def test_off(self):
        found = self.rates(seconds=0).rate({}, 'compute2', 1.0)
        self.assertIsNone(found.rate)
        self.assertIn('probe_time', found.reason)
        self.api.link_probe.assert_not_called()

    def old(self, rates):
        """Have a rate that is too old."""
        rates.rate({}, 'compute2', 1.0)
        rates._links['compute2'].measured -= 1000
        self.measure.return_value = 7.0

    def test_errors_leave_the_last_rate(self):
        rates = self.rates()
        self.old(rates)
        for error in (errors.AgentUnavailable('compute2', 'it is away'),
                      ConnectionRefusedError('refused')):
            self.api.link_probe.side_effect = error
            found = rates.rate({}, 'compute2', 1.0)
            self.assertEqual(9.0, found.rate)
            self.assertGreaterEqual(found.age, 1000)
            self.assertIn(str(error), found.reason)

    def test_nothing_arrived(self):
        self.measure.return_value = None
        found = self.rates().rate({}, 'compute2', 1.0)
        self.assertEqual((None, 'no bytes arrived there'),
                         (found.rate, found.reason))

    def test_destination_is_busy_with_another_measurement(self):
        """It gets the request again until its turn has come."""
        refused = errors.AgentRefused('compute2', 'busy', 'ProbeRefused')
        self.api.link_probe.side_effect = [refused, refused, mock.DEFAULT]
        with mock.patch.object(link_rates, '_AGAIN', 0.001):
            self.assertEqual(9.0, self.rates().rate({}, 'compute2',
                                                    30.0).rate)
        self.assertEqual(3, self.api.link_probe.call_count)

    def test_destination_is_busy_for_too_long(self):
        rates = self.rates()
        self.old(rates)
        self.api.link_probe.side_effect = errors.AgentRefused(
            'compute2', 'busy', 'ProbeRefused')
        self.assertEqual(9.0, rates.rate({}, 'compute2', 0.0).rate)
        self.assertEqual(2, self.api.link_probe.call_count)

    def test_destination_migrates(self):
        """That takes longer than anybody waits."""
        self.api.link_probe.side_effect = errors.AgentRefused(
            'compute2', 'a migration is under way', 'LinkInUse')
        found = self.rates().rate({}, 'compute2', 30.0)
        self.assertIsNone(found.rate)
        self.api.link_probe.assert_called_once_with({}, 'compute2', mock.ANY)

    def test_this_host_migrates(self):
        rates = self.rates()
        self.old(rates)
        self.busy = True
        found = rates.rate({}, 'compute2', 30.0)
        self.assertEqual(9.0, found.rate)
        self.assertIn('under way', found.reason)
        rates.refresh({})
        self.assertEqual(1, self.measure.call_count)

    def test_one_at_a_time(self):
        rates = self.rates()
        self.old(rates)
        with rates._measuring:
            found = rates.rate({}, 'compute2', 0.01)
        self.assertEqual(9.0, found.rate)
        self.assertIn('other links', found.reason)

    def test_measured_while_waiting(self):
        rates = self.rates()
        rates._measuring.acquire()
        found = []
        threads = [threading.Thread(target=lambda: found.append(
            rates.rate({}, 'compute2', 30.0).rate)) for _ in range(3)]
        for thread in threads:
            thread.start()
        rates._measuring.release()
        for thread in threads:
            thread.join()
        self.assertEqual([9.0] * 3, found)
        self.assertEqual(1, self.measure.call_count)

    def test_refresh(self):
        rates = self.rates()
        rates.rate({}, 'compute2', 1.0)
        rates.refresh({})
        self.assertEqual(1, self.measure.call_count)
        self.old(rates)
        rates.refresh({})
        self.assertEqual(7.0, rates.last('compute2', '').rate)

    def test_refresh_ends_with_the_requests(self):
        rates = self.rates()
        self.old(rates)
        rates._links['compute2'].wanted -= link_rates.WANTED
        rates.refresh({})
        self.assertEqual(1, self.measure.call_count)

    def test_last(self):
        rates = self.rates()
        self.assertEqual(link_rates.LinkRate(None, None, 'why'),
                         rates.last('compute2', 'why'))

    def test_bounded(self):
        rates = self.rates()
        with mock.patch.object(link_rates, 'MAX_HOSTS', 2):
            for number in range(5):
                rates.rate({}, 'compute%d' % number, 1.0)
        self.assertEqual(2, len(rates._links))
