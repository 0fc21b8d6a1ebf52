# SPDX-License-Identifier: Apache-2.0
"""The strategy, by flavor and by image."""

from tempest import config
from tempest.common import utils
from tempest.lib import decorators
from tempest.lib import exceptions
from tempest.lib.common import api_microversion_fixture
from tempest.lib.common.utils import data_utils

from nova_dedup_migrate_tempest_plugin.scenario import base

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
        server, guest = self.boot(image_id=self._image_with('off'))
        self.migrate(server)
        self.verify(guest)

    def _image_with(self, strategy):
        """Return the ID of a copy of the usual image with a strategy."""
        client = self.os_admin.image_client_v2
        usual = client.show_image(CONF.compute.image_ref)
        made = client.create_image(
            name=data_utils.rand_name(
                'dedup-migrate', prefix=CONF.resource_name_prefix),
            disk_format=usual['disk_format'],
            container_format=usual['container_format'],
            visibility='public', **{
                base.STRATEGY: strategy,
                **{name: value for name, value in usual.items()
                   if name.startswith(('hw_', 'img_'))}})
        self.addCleanup(client.delete_image, made['id'])
        client.store_image_file(
            made['id'], client.show_image_file(CONF.compute.image_ref).data)
        return made['id']

    @decorators.attr(type='negative')
    @decorators.idempotent_id('9a2f4c70-8f33-4b4b-8b52-a0f96d1f1c03')
    def test_flavor_with_unknown_strategy(self):
        """Nova refuses a strategy that there is not (from 2.86 on)."""
        self.useFixture(api_microversion_fixture.APIMicroversionFixture(
            compute_microversion='2.86'))
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
