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

    def test_backups_are_there_if_they_are_wanted(self):
        cloud = clouds.Cloud('none', self.temporary_dir(), settings.Settings(
            'volume', backups=True))
        plan = up.plan(cloud)
        steps.check(plan)
        names = [step.name for step in plan]
        for name in ('nas2', 'nas3', 'backup store of backup1',
                     'backup store of backup2', 'cinder-backup of backup1',
                     'cinder-backup-assist of backup1',
                     'cinder-backup-assist of backup2'):
            self.assertIn(name, names)
        self.assertEqual(
            ['control', 'nas', 'nas2', 'nas3', 'backup1', 'backup2',
             'compute1', 'compute2'], cloud.host_names)
        # It is no backend of volumes.
        self.assertEqual(('nas', 'nas2'), cloud.settings.nases)
        self.assertNotIn('nas2', [step.name for step in self.plan('volume')])

    def test_agents_belong_to_our_driver(self):
        names = [step.name for step
                 in self.plan('shared', ('dedup', 'stock'))]
        self.assertIn('agent of compute1', names)
        self.assertNotIn('agent of compute2', names)

    def test_the_controller_is_there_if_it_is_wanted(self):
        for wanted in (False, True):
            cloud = clouds.Cloud('none', self.temporary_dir(),
                                 settings.Settings(controller=wanted))
            plan = up.plan(cloud)
            steps.check(plan)
            self.assertEqual(wanted, 'controller' in [
                step.name for step in plan])

    def test_horizon_is_there_if_it_is_wanted(self):
        for wanted in (False, True):
            cloud = clouds.Cloud(
                'none', self.temporary_dir(),
                settings.Settings(controller=True, dashboard=wanted))
            plan = up.plan(cloud)
            steps.check(plan)
            self.assertEqual(wanted, 'horizon' in [
                step.name for step in plan])

    def test_hosts_are_far_apart_if_there_is_a_delay(self):
        for delay in (0, 60):
            cloud = clouds.Cloud('none', self.temporary_dir(),
                                 settings.Settings(migration_delay=delay))
            plan = up.plan(cloud)
            steps.check(plan)
            self.assertEqual(
                ['delay of compute1', 'delay of compute2'] if delay else [],
                [step.name for step in plan if 'delay' in step.name])

    def test_cinder_is_there_where_volumes_are(self):
        have = {profile: 'cinder' in [step.name for step
                                      in self.plan(profile)]
                for profile in settings.PROFILES}
        self.assertEqual({'shared': False, 'local': False, 'volume': True,
                          'ceph': True}, have)
