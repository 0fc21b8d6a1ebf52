# SPDX-License-Identifier: Apache-2.0
"""Moves of a server in an emulated cloud."""

from unittest import mock

from nova_dedup_migrate.server_move import cloud
from nova_dedup_migrate.server_move import errors
from nova_dedup_migrate.server_move import mover
from nova_dedup_migrate.server_move import obstacles
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.server_move import emulated

ALL = obstacles.Goal('compute2', emulated.NEW)
#: Name of a field in what Cinder answers.
MIGRATION = 'os-vol-mig-status-attr:migstat'


class MoveCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.begin_anew()

    def begin_anew(self):
        self.connection = emulated.connection()
        self.storage = self.connection.block_storage
        self.compute = self.connection.compute
        self.said = []

    def mover(self, goal=ALL, timeout=60):
        return mover.Mover(cloud.Cloud(self.connection), goal, timeout,
                           self.said.append, interval=0)

    def move(self, goal=ALL, **more):
        return self.mover(goal, **more).move('one')

    def assert_untouched(self):
        self.assertEqual(([], []), (self.storage.calls, self.compute.calls))


class MoverTest(MoveCase):

    def test_volumes_come_before_the_server(self):
        seen = []
        self.compute.live_migrate_server = (
            lambda *_, **__: seen.extend(
                one['os-vol-host-attr:host']
                for one in self.storage.volumes.values())
            or self.compute.begin('compute2'))
        steps = self.move()
        self.assertEqual([emulated.NEW] * 2, seen)
        self.assertEqual(
            [('volume', mover.MOVED), ('volume', mover.MOVED),
             ('server', mover.MOVED)],
            [(step.what, step.state) for step in steps])
        self.assertEqual(
            [('migrate', emulated.ROOT, emulated.NEW),
             ('migrate', emulated.DATA, emulated.NEW)], self.storage.calls)
        self.assertTrue(any('migrating' in line for line in self.said))

    def test_the_plan_changes_nothing(self):
        steps = self.mover().plan('one')
        self.assertEqual([mover.TO_DO] * 3, [one.state for one in steps])
        self.assert_untouched()

    def test_once_more_does_nothing(self):
        self.move()
        self.storage.calls.clear()
        self.compute.calls.clear()
        self.assertEqual([mover.DONE] * 3,
                         [step.state for step in self.move()])
        self.assert_untouched()

    def test_a_move_goes_on_where_it_has_ended(self):
        self.storage.volumes[emulated.ROOT]['os-vol-host-attr:host'] = (
            emulated.NEW)
        self.storage.begin(emulated.DATA, **{
            'os-vol-host-attr:host': emulated.NEW})
        steps = self.move()
        self.assertEqual([mover.DONE, mover.MOVED, mover.MOVED],
                         [step.state for step in steps])
        self.assertEqual([], self.storage.calls)
        self.assertEqual(1, len(self.compute.calls))

    def test_a_server_that_migrates_is_waited_for(self):
        for one in self.storage.volumes.values():
            one['os-vol-host-attr:host'] = emulated.NEW
        self.compute.begin('compute2', looks=8)
        self.assertEqual(mover.MOVED, self.move()[-1].state)
        self.assert_untouched()

    def test_a_type_instead_of_a_backend(self):
        steps = self.move(obstacles.Goal('', '', 'on-nas2'))
        self.assertEqual(
            [('retype', one, 'on-nas2', 'on-demand')
             for one in (emulated.ROOT, emulated.DATA)], self.storage.calls)
        self.assertEqual(2, len(steps))
        self.assertEqual('on-nas2, ' + emulated.NEW, steps[0].destination)

    def test_only_the_server(self):
        (step,) = self.move(obstacles.Goal('compute2'))
        self.assertEqual(('compute1', 'compute2', mover.MOVED),
                         (step.source, step.destination, step.state))
        self.assertEqual([(emulated.SERVER, 'compute2', 'auto')],
                         self.compute.calls)

    def test_cinder_gives_up(self):
        self.storage.fails = emulated.ROOT
        error = self.assertRaises(errors.StepFailed, self.move)
        self.assertIn('goes on from there', str(error))
        self.assertEqual([], self.compute.calls)
        self.assertEqual(1, len(self.storage.calls))
        # and it can be tried again
        self.storage.fails = None
        self.move()

    def test_nova_gives_up(self):
        self.compute.outcome = 'error'
        error = self.assertRaises(errors.StepFailed, self.move)
        self.assertIn('ACTIVE on compute1', str(error))

    def test_nova_does_not_begin(self):
        """The status of an earlier migration says nothing."""
        self.compute.outcome = 'lost'
        self.patched('_BEGINS', 0)
        self.assertRaises(errors.StepFailed, self.move,
                          obstacles.Goal('compute2'))

    def patched(self, name, value):
        patch = mock.patch.object(mover, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def test_a_step_that_takes_too_long_is_left(self):
        self.assertRaises(errors.StepLate, self.move, timeout=0)
        self.assertEqual(1, len(self.storage.calls))

    def test_a_cloud_that_is_away_for_a_moment(self):
        begin = self.compute.begin

        def away(host):
            begin(host)
            self.compute.failures = 5

        self.compute.begin = away
        self.assertEqual(mover.MOVED, self.move()[-1].state)

    def test_a_cloud_that_stays_away(self):
        begin = self.compute.begin

        def away(host):
            begin(host)
            self.compute.failures = 1 << 30

        self.compute.begin = away
        self.patched('SILENCE', 0)
        self.assertRaises(errors.CallFailed, self.move)

    def test_what_users_had_is_compared(self):
        for field, value, words in (
                ('name', 'other', 'name'),
                ('metadata', {}, 'metadata'),
                ('bootable', 'false', 'bootable'),
                ('volume_type', 'on-nas2', 'type')):
            self.begin_anew()
            self.storage.loses = lambda record, change={field: value}: (
                record.update(change))
            error = self.assertRaises(errors.NotKept, self.move)
            self.assertIn(words, str(error))

    def test_backups_that_have_gone(self):
        self.storage.loses = lambda record: (
            self.storage.backups_of.update({emulated.ROOT: set()}))
        self.assertIn(emulated.BACKUP, str(
            self.assertRaises(errors.NotKept, self.move)))

    def test_what_cinder_itself_writes_may_change(self):
        self.storage.loses = lambda record: record.update(
            metadata={'user': 'value', 'attached_mode': 'rw'})
        self.move()
