# SPDX-License-Identifier: Apache-2.0
"""Which migrations are as with Nova's driver: facts_collector.obstacle."""

from unittest import mock

from oslo_config import fixture as config_fixture

from nova_dedup_migrate.compute import facts_collector
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.hypervisor import libvirt as hypervisor
from nova_dedup_migrate.tests import base


class ObstacleTest(base.TestCase):
    """An instance that migrates as with Nova's driver costs nothing."""

    def setUp(self):
        super().setUp()
        options.register_opts(facts_collector.CONF)
        self.conf = self.useFixture(config_fixture.Config(
            facts_collector.CONF))
        self.guest = mock.create_autospec(hypervisor.LibvirtGuest,
                                          instance=True)
        self.opened = mock.Mock(spec=[], return_value=self.guest)

    def obstacle(self, strategy='auto'):
        return facts_collector.obstacle(
            facts_collector.CONF.dedup_migrate, strategy, 'flavor',
            self.opened)

    def test_none(self):
        self.guest.is_patched.return_value = True
        self.assertEqual('', self.obstacle())
        self.assertEqual([mock.call.is_patched()], self.guest.mock_calls)

    def test_off(self):
        self.assertEqual('strategy off is set in flavor',
                         self.obstacle('off'))
        self.opened.assert_not_called()

    def test_not_enabled(self):
        self.conf.config(group='dedup_migrate', enabled=False)
        self.assertIn('enabled is false', self.obstacle())
        self.opened.assert_not_called()

    def test_stock_qemu(self):
        self.guest.is_patched.return_value = False
        self.assertIn('Install the patched QEMU', self.obstacle())
        self.assertEqual([mock.call.is_patched()], self.guest.mock_calls)
