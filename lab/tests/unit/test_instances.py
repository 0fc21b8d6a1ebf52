# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import openstack
from openstack.compute.v2 import _proxy

from lab import errors
from lab import instances
from lab import settings
from nova_dedup_migrate.tests import base


class TestDisks(base.TestCase):

    def of(self, profile, *values):
        return instances.Disks.of(settings.Settings(profile), *values)

    def test_the_profile_suggests_the_root_disk(self):
        self.assertEqual(
            {'shared': 'image', 'local': 'image', 'volume': 'volume',
             'ceph': 'image'},
            {profile: self.of(profile).root
             for profile in settings.PROFILES})
        self.assertEqual('image', self.of('volume', 'image').root)

    def test_volumes_need_cinder(self):
        for values in (('volume',), (None, 'volume')):
            self.assertRaises(errors.LabError, self.of, 'shared', *values)
            self.assertIn('volume', vars(self.of('ceph', *values)).values())
        self.assertEqual('ephemeral', self.of('local', None,
                                              'ephemeral').second)


class TestDelete(base.TestCase):

    def test_one_that_is_gone_already(self):
        """DELETED, yet in the list that it was found in."""
        compute = mock.create_autospec(_proxy.Proxy, instance=True)
        compute.delete_server.side_effect = [
            openstack.exceptions.NotFoundException(), None]
        instances.delete(compute, 'gone', 'there')
        self.assertEqual(
            ['gone', 'there'],
            [one.args[0] for one in compute.delete_server.call_args_list])
        compute.wait_for_delete.assert_called_with(
            'there', interval=mock.ANY, wait=mock.ANY)
