# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.db import drains
from nova_dedup_migrate.tests import base
from nova_dedup_migrate_dashboard import progress


def drain(state='running', requested='run', dry_run=False, **counts):
    return {'state': state, 'requested': requested, 'dry_run': dry_run,
            'counts': {**dict.fromkeys(drains.SERVER_STATES, 0), **counts}}


def row(state='queued', position=0, **fields):
    return {'state': state, 'position': position, 'migration_uuid': None,
            'blockers': [], **fields}


class DrainTest(base.TestCase):
    def test_each_state_of_a_server_is_in_one_group(self):
        states = [state for group in progress.GROUPS.values()
                  for state in group]
        self.assertEqual(sorted(drains.SERVER_STATES), sorted(states))

    def test_over_are_the_final_states(self):
        self.assertEqual(set(drains.FINAL), set(progress.OVER))

    def test_servers_are_counted_by_group(self):
        found = progress.drain(drain(moved=2, gone=1, migrating=1,
                                     queued=3, failed=1))
        self.assertEqual({'moved': 3, 'flying': 1, 'waiting': 3,
                          'blocked': 0, 'stays': 1}, found['groups'])
        self.assertEqual(8, found['total'])
        self.assertEqual('37.50', found['bar'][0].width)

    def test_actions_are_those_that_the_state_permits(self):
        for expected, given in (
                ({'pause', 'cancel'}, drain()),
                ({'resume', 'cancel'}, drain(requested='pause')),
                ({'resume', 'cancel'}, drain('paused', 'pause')),
                ({'pause', 'cancel', 'retry'}, drain(failed=1)),
                (set(), drain(requested='cancel')),
                (set(), drain('cancelling', 'cancel', failed=1)),
                (set(), drain('drained')),
                ({'retry'}, drain('partial', failed=1)),
                ({'retry'}, drain('failed')),
                (set(), drain('failed', dry_run=True)),
                (set(), drain('cancelled', 'cancel', cancelled=3))):
            self.assertEqual(expected, progress.drain(given)['can'], given)


class ServersTest(base.TestCase):
    def test_those_on_their_way_come_first(self):
        found = progress.servers(
            [row('moved', 0), row('queued', 3), row('migrating', 2),
             row('blocked', 1), row('retry_wait', 4), row('failed', 5)])
        self.assertEqual(['migrating', 'blocked', 'queued', 'retry_wait',
                          'failed', 'moved'],
                         [one['state'] for one in found])
        self.assertEqual([None, None, 1, 2, None, None],
                         [one['turn'] for one in found])

    def test_a_server_has_its_running_migration(self):
        found = progress.servers([row(migration_uuid='a'), row()],
                                 [{'uuid': 'a', 'share': 0.5}])
        self.assertEqual([0.5, None], [
            one['live'] and one['live']['share'] for one in found])

    def test_choices_help_against_every_reason(self):
        reasons = [{'choices': ['wait', 'skip', 'stop', 'cold']},
                   {'choices': ['skip', 'cold']}]
        blocked = row('blocked', blockers=reasons)
        self.assertEqual(['skip', 'cold'], progress.choices(blocked))
        self.assertEqual(['skip'], progress.choices(row('queued')))
        for state in ('migrating', 'moved', 'failed'):
            self.assertEqual([], progress.choices(row(state)))
        self.assertEqual(['skip', 'cold'], progress.helpful([blocked]))
        self.assertEqual([], progress.helpful([]))

    def test_saved(self):
        self.assertEqual(0.75, progress.saved(
            {'bytes': {'peer': 1, 'zero': 1, 'storage': 2}}))
        self.assertIsNone(progress.saved(
            {'bytes': {'peer': 0, 'zero': 0, 'storage': 0}}))
