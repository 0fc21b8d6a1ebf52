# SPDX-License-Identifier: Apache-2.0
"""Measuring links as rarely as possible."""

from unittest import mock

from nova_dedup_migrate.agent import link
from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.tests import base


class LinkRatesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.api = mock.create_autospec(api.AgentAPI, instance=True)
        patcher = mock.patch.object(link, 'measure', autospec=True,
                                    return_value=9.0)
        self.measure = patcher.start()
        self.addCleanup(patcher.stop)

    def rates(self, seconds=0.5, keep=600):
        return link_rates.LinkRates(self.api, 'compute1', seconds,
                                    1 << 20, keep)

    def test_measured_once(self):
        rates = self.rates()
        self.assertEqual(9.0, rates.rate({}, 'compute2'))
        self.assertEqual(9.0, rates.rate({}, 'compute2'))
        self.api.link_probe.assert_called_once_with({}, 'compute2',
                                                    mock.ANY)
        self.assertEqual(9.0, rates.rate({}, 'compute3'))
        self.assertEqual(2, self.measure.call_count)

    def test_measured_each_time(self):
        rates = self.rates(keep=0)
        rates.rate({}, 'compute2')
        rates.rate({}, 'compute2')
        self.assertEqual(2, self.measure.call_count)

    def test_off(self):
        self.assertIsNone(self.rates(seconds=0).rate({}, 'compute2'))
        self.api.link_probe.assert_not_called()

    def test_errors(self):
        rates = self.rates()
        self.api.link_probe.side_effect = errors.AgentUnavailable(
            'compute2', 'it is not there')
        self.assertIsNone(rates.rate({}, 'compute2'))
        self.api.link_probe.side_effect = None
        self.measure.side_effect = ConnectionRefusedError
        self.assertIsNone(rates.rate({}, 'compute2'))

    def test_bounded(self):
        rates = self.rates()
        with mock.patch.object(link_rates.LinkRates, 'MAX_HOSTS', 2):
            for number in range(5):
                rates.rate({}, 'compute%d' % number)
        self.assertEqual(2, len(rates._known))
