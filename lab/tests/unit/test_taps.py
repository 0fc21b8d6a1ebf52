# SPDX-License-Identifier: Apache-2.0
import errno
import unittest
from unittest import mock

try:
    from pyroute2 import NetlinkError
except ImportError as error:
    raise unittest.SkipTest('there is no pyroute2: %s' % error) from error

from lab.hosts import taps
from lab.hosts.taps import Interface
from nova_dedup_migrate.tests import base

_BRIDGE = 7


class TestTaps(base.TestCase):

    interfaces = [
        Interface(1, 'lo', None, True),
        Interface(2, 'eth3', _BRIDGE, True),
        Interface(3, 'tap-new', None, False),
        Interface(4, 'tap-in', _BRIDGE, True),
        Interface(5, 'tap-down', _BRIDGE, False),
        Interface(6, 'tap-elsewhere', 8, True),
        Interface(_BRIDGE, 'br-instances', None, True),
    ]

    def test_taps_belong_into_the_bridge_and_nothing_else(self):
        self.assertEqual(
            ['tap-new', 'tap-down', 'tap-elsewhere'],
            [one.name for one in taps.lacking(self.interfaces, _BRIDGE)])

    def test_one_that_has_vanished_keeps_no_other_out(self):
        # pyroute2 makes its methods when it is used
        ip = mock.Mock(spec=['link'])
        ip.link.side_effect = [NetlinkError(errno.ENODEV, 'gone'), [], []]
        with mock.patch.object(taps, '_interfaces', autospec=True,
                               return_value=self.interfaces):
            taps.connect(ip, _BRIDGE)
        self.assertEqual(
            [mock.call('set', index=index, master=_BRIDGE, state='up')
             for index in (3, 5, 6)], ip.link.mock_calls)

    def test_waits_for_one_event_and_takes_all(self):
        events = mock.Mock(spec=['recv'])
        events.recv.side_effect = [b'one', b'two', BlockingIOError]
        taps._wait(events)
        self.assertEqual([0, 64, 64], [
            int(call.args[1]) for call in events.recv.mock_calls])

    def test_events_that_were_lost_are_events(self):
        events = mock.Mock(spec=['recv'])
        events.recv.side_effect = [OSError(errno.ENOBUFS, 'lost'),
                                   BlockingIOError]
        taps._wait(events)
        events.recv.side_effect = OSError(errno.EBADF, 'closed')
        self.assertRaises(OSError, taps._wait, events)
