# SPDX-License-Identifier: Apache-2.0
from unittest import mock

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
