# SPDX-License-Identifier: Apache-2.0
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
