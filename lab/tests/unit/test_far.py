# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from lab import cloud as clouds
from lab import settings
from lab import topology
from lab.hosts import far
from nova_dedup_migrate.tests import base


class TestHeld(base.TestCase):

    def test_frames_are_due_in_turn(self):
        held = far.Held(0.5)
        self.assertIsNone(held.wait(1.0))
        held.add(b'one', 1.0)
        held.add(b'two', 1.25)
        self.assertEqual(0.5, held.wait(1.0))
        self.assertEqual([], list(held.due(1.25)))
        self.assertEqual([b'one'], list(held.due(1.5)))
        self.assertEqual(0.0, held.wait(2.0))
        self.assertEqual([b'two'], list(held.due(2.0)))
        self.assertIsNone(held.wait(2.0))

    def test_no_more_than_there_is_room_for(self):
        held = far.Held(0.5)
        with mock.patch.object(far, '_HELD', 6):
            held.add(b'one', 1.0)
            self.assertFalse(held.full)
            held.add(b'two', 1.0)
            self.assertTrue(held.full)
            list(held.due(1.5))
            self.assertFalse(held.full)


class TestDelay(base.TestCase):

    def test_half_a_round_trip_each_and_served_before_it_is_used(self):
        link = mock.Mock(interface='eth1')
        host = mock.Mock(**{'link.return_value': link})
        cloud = mock.create_autospec(clouds.Cloud, instance=True)
        cloud.python, cloud.settings = 'python', settings.Settings(
            migration_delay=60)
        cloud.host.return_value = host
        self.assertEqual('60 ms', topology.delay(cloud, 'compute1'))
        cloud.start.assert_called_once_with(
            host, topology.FAR, ['python', '-m', 'lab.hosts.far', 'eth1',
                                 'wire-eth1', '0.03'])
        host.link.assert_called_once_with('migration')
        ready = cloud.wait.call_args.args[2]
        for carrier, expected in ('', False), ('0\n', False), ('1\n', True):
            host.run.return_value.stdout = carrier
            self.assertEqual(expected, ready())


class TestPass(base.TestCase):

    def test_what_there_is_and_no_more_at_once(self):
        read = mock.Mock(side_effect=[b'one', b'two', BlockingIOError])
        passed = []
        far._pass(read, passed.append)
        self.assertEqual([b'one', b'two'], passed)
        far._pass(lambda most: b'again', passed.append)
        self.assertEqual(2 + far._AT_ONCE, len(passed))

    def test_a_frame_that_cannot_go_is_lost_alone(self):
        read = mock.Mock(side_effect=[b'one', b'two', BlockingIOError])
        write = mock.Mock(side_effect=[OSError('full'), None])
        far._pass(read, write)
        self.assertEqual([mock.call(b'one'), mock.call(b'two')],
                         write.mock_calls)
