# SPDX-License-Identifier: Apache-2.0
"""The strategy, by flavor and by image."""

import fixtures
from tempest import config
from tempest.common import utils
from tempest.lib import decorators
from tempest.lib import exceptions
from tempest.lib.services.compute import base_compute_client
import testtools

from nova_dedup_migrate_tempest_plugin.scenario import base
from nova_dedup_migrate_tempest_plugin.scenario import controller

CONF = config.CONF


class StrategyTest(base.DedupMigrateScenario):

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('3d5f0f7e-b8a2-4b0d-8bc9-4e6d6a1f7a01')
    @utils.services('compute', 'network')
    def test_flavor(self):
        """Each strategy of a flavor is accepted, and migrates."""
        for strategy in ('off', 'shared_nas', 'page_cache', 'auto'):
            server, guest = self.boot(
                flavor=self.make_flavor(**{base.STRATEGY: strategy}))
            self.migrate(server)
            self.verify(guest)
            self.servers_client.delete_server(server['id'])

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('7e1c0b92-6c55-4f63-9d71-0f8c2d3e5b02')
    @utils.services('compute', 'network', 'image')
    def test_image(self):
        """An image's property is kept by Nova, and migrates."""
        server, guest = self.boot(image_id=self.image_with('off'))
        self.migrate(server)
        self.verify(guest)

    @decorators.attr(type='negative')
    @decorators.idempotent_id('9a2f4c70-8f33-4b4b-8b52-a0f96d1f1c03')
    def test_flavor_with_unknown_strategy(self):
        """Nova refuses a strategy that there is not (from 2.86 on)."""
        # Tempest's own fixture leaves none behind, instead of that of the
        # class, for the tests that follow.
        self.useFixture(fixtures.MockPatchObject(
            base_compute_client, 'COMPUTE_MICROVERSION', '2.86'))
        flavor = self.make_flavor()
        self.assertRaises(
            exceptions.BadRequest, self.admin_flavors.set_flavor_extra_spec,
            flavor, **{base.STRATEGY: 'fastest'})
        self.assertRaises(
            exceptions.BadRequest, self.admin_flavors.set_flavor_extra_spec,
            flavor, **{'dedup_migrate:unknown': 'off'})

    @decorators.attr(type='negative')
    @decorators.idempotent_id('b4f9a5d1-1f6b-4d8e-9f7f-6d0f2f9c6d04')
    def test_flavor_is_changed_by_administrators_only(self):
        flavor = self.make_flavor()
        self.assertRaises(
            exceptions.Forbidden,
            self.os_primary.flavors_client.set_flavor_extra_spec,
            flavor, **{base.STRATEGY: 'off'})


class StrategyReportTest(controller.ControllerScenario):
    """What the report has about the strategy."""

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('2d6e8f10-5b3a-4c7d-9e21-6a7b8c9d0e11')
    @utils.services('compute', 'network', 'image')
    def test_image_decides(self):
        """Nothing is left out, because the image has it so."""
        report = self._migrate(image_id=self.image_with('off'))
        self.assertEqual(('off', 'image', 'stock'), _strategy(report))
        self.assertIn('off is set in image', report['fallback_reason'])
        self.assertEqual(0, report['bytes']['storage'])

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('4f708192-6c4b-4d8e-8f32-7b8c9d0e1f22')
    @utils.services('compute', 'network', 'image')
    def test_flavor_decides_before_the_image(self):
        report = self._migrate(
            image_id=self.image_with('off'),
            flavor=self.make_flavor(**{base.STRATEGY: 'shared_nas'}))
        self.assertEqual(('shared_nas', 'flavor'), _strategy(report)[:2])
        self.assertNotIn('strategy off', report['fallback_reason'])

    @decorators.attr(type=['slow', 'multinode'])
    @decorators.idempotent_id('6182a3b4-7d5c-4e9f-9043-8c9d0e1f2033')
    @utils.services('compute', 'network', 'volume')
    @testtools.skipUnless(CONF.dedup_migrate.shared_volumes,
                          '[dedup_migrate] shared_volumes is off')
    def test_flavor_of_an_instance_with_a_volume(self):
        """The strategy that the flavor has is the one that is used."""
        report = self._migrate(
            self.boot_from_volume,
            flavor=self.make_flavor(**{base.STRATEGY: 'shared_nas'}))
        self.assertEqual(('shared_nas', 'flavor', 'shared_nas'),
                         _strategy(report))
        self.assertGreater(report['bytes']['storage'], 0)

    def _migrate(self, boot=None, **kwargs):
        """Boot an instance, migrate it; return the report."""
        server, guest = (boot or self.boot)(**kwargs)
        self.migrate(server)
        self.verify(guest)
        return self.controller.show_report(self.reported(server)['uuid'])


def _strategy(report):
    return tuple(report['strategy_' + name]
                 for name in ('requested', 'source', 'used'))
