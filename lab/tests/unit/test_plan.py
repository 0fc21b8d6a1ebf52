# SPDX-License-Identifier: Apache-2.0
from lab import cloud as clouds
from lab import settings
from lab import steps
from lab import up
from nova_dedup_migrate.tests import base


class TestPlan(base.TestCase):

    def plan(self, *values):
        cloud = clouds.Cloud('none', self.temporary_dir(),
                             settings.Settings(*values))
        return up.plan(cloud)

    def test_each_profile_has_a_plan_that_can_run(self):
        for profile in settings.PROFILES:
            plan = self.plan(profile)
            steps.check(plan)
            self.assertEqual('hosts', plan[0].name)

    def test_agents_belong_to_our_driver(self):
        names = [step.name for step
                 in self.plan('shared', ('dedup', 'stock'))]
        self.assertIn('agent of compute1', names)
        self.assertNotIn('agent of compute2', names)

    def test_cinder_is_there_where_volumes_are(self):
        have = {profile: 'cinder' in [step.name for step
                                      in self.plan(profile)]
                for profile in settings.PROFILES}
        self.assertEqual({'shared': False, 'local': False, 'volume': True,
                          'ceph': True}, have)
