# SPDX-License-Identifier: Apache-2.0
"""What keeps a move from beginning; nothing is changed then."""

from nova_dedup_migrate.server_move import errors
from nova_dedup_migrate.server_move import obstacles
from nova_dedup_migrate.tests.unit.server_move import emulated
from nova_dedup_migrate.tests.unit.server_move import test_mover


class ObstaclesTest(test_mover.MoveCase):

    def refused(self, goal=test_mover.ALL):
        error = self.assertRaises(errors.MoveRefused, self.move, goal)
        self.assert_untouched()
        self.assertRaises(errors.MoveRefused, self.mover(goal).plan, 'one')
        self.begin_anew()
        return str(error)

    def test_volumes(self):
        other = {'server_id': emulated.BACKUP, 'device': '/dev/vdc'}
        own = {'server_id': emulated.SERVER, 'device': '/dev/vdc'}
        for change, words in (
                ({'status': 'backing-up'}, 'backing-up'),
                ({'multiattach': True}, 'multiattach'),
                ({'encrypted': True}, 'encrypted'),
                ({'group_id': 'group'}, 'group'),
                ({'replication_status': 'enabled'}, 'replicated'),
                ({'availability_zone': 'other'}, 'zone'),
                ({'attachments': [own, other]}, emulated.BACKUP),
                ({'attachments': [own, own]}, 'more than once')):
            self.storage.volumes[emulated.DATA].update(change)
            text = self.refused()
            self.assertIn(words, text)
            self.assertIn('data (%s)' % emulated.DATA, text)

    def test_snapshots(self):
        self.storage.snapshots_of[emulated.ROOT] = ['snapshot-1']
        self.assertIn('snapshot-1', self.refused())

    def test_all_reasons_are_there(self):
        self.storage.snapshots_of[emulated.ROOT] = ['snapshot-1']
        self.compute.record['locked'] = True
        text = self.refused()
        self.assertIn('snapshot-1', text)
        self.assertIn('locked', text)

    def test_the_server(self):
        for field, value, words in (
                ('status', 'SHUTOFF', 'SHUTOFF'),
                ('status', 'MIGRATING', 'MIGRATING'),
                ('OS-EXT-STS:task_state', 'image_snapshot', 'busy'),
                ('locked', True, 'locked')):
            self.compute.record[field] = value
            self.assertIn(words, self.refused())

    def test_the_host(self):
        self.assertIn('no nova-compute on nowhere', self.refused(
            obstacles.Goal('nowhere', emulated.NEW)))
        self.compute.hosts['compute2'] = 'disabled'
        self.assertIn('disabled', self.refused())

    def test_the_backend(self):
        self.assertIn(emulated.NEW, self.refused(
            obstacles.Goal('', 'control@nas3#nas3')))
        self.storage.service_state = 'down'
        self.assertIn('down', self.refused())
        self.storage.free = 1.0
        self.assertIn('2 GiB', self.refused())
        # not known
        self.storage.free = 'infinite'
        self.move()

    def test_a_type_that_needs_the_old_backend(self):
        self.storage.volumes[emulated.DATA]['volume_type'] = 'on-nas'
        self.assertIn('--volume-type', self.refused())
        self.storage.volumes[emulated.DATA]['volume_type'] = 'on-nas2'
        self.move()

    def test_the_type(self):
        self.assertIn('no volume type other', self.refused(
            obstacles.Goal('', '', 'other')))
        self.storage.encrypted_types.add('on-nas2')
        self.assertIn('encrypted', self.refused(
            obstacles.Goal('', '', 'on-nas2')))

    def test_a_server_that_is_not_there(self):
        self.assertRaises(errors.NotFound, self.mover().move, 'other')

    def test_volumes_that_have_moved_may_have_snapshots(self):
        for one in self.storage.volumes.values():
            one['os-vol-host-attr:host'] = emulated.NEW
        self.storage.snapshots_of[emulated.ROOT] = ['snapshot-1']
        self.move()
