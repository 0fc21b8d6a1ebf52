# SPDX-License-Identifier: Apache-2.0
"""Events of incoming migrations."""

import threading
from unittest import mock

from nova_dedup_migrate.agent import incoming
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base

INSTANCE = 'instance'
DATA = {'info': {'active': False, 'record-pages': 9, 'fetched-pages': 8,
                 'bytes-read': 7}}


class IncomingTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.events = incoming.IncomingMigrations()

    def done(self, data=DATA):
        self.events.on_event(INSTANCE, incoming.EVENT, data)

    def reason(self, migration='m1', match=''):
        figures, reason = self.events.wait(INSTANCE, migration, 0)
        self.assertIsNone(figures)
        self.assertRegex(reason, match)

    def test_figures(self):
        self.events.announce(INSTANCE, 'm1')
        self.done()
        figures, reason = self.events.wait(INSTANCE, 'm1', 0)
        self.assertEqual((9, 8, 7), (figures.record_pages,
                                     figures.fetched_pages,
                                     figures.bytes_read))
        self.assertEqual('', reason)
        self.assertIsNotNone(self.events.wait(INSTANCE, 'm1', 0)[0])

    def test_they_come_later(self):
        self.events.announce(INSTANCE, 'm1')
        threading.Timer(0.01, self.done).start()
        self.assertIsNotNone(self.events.wait(INSTANCE, 'm1', 30)[0])

    def test_they_do_not_come(self):
        self.reason(match='has not sent')
        self.events.announce(INSTANCE, 'm1')
        self.reason(match='has not sent')

    def test_figures_of_an_earlier_migration(self):
        self.events.announce(INSTANCE, 'm1')
        self.done()
        self.events.announce(INSTANCE, 'm2')
        self.reason('m2', 'has not sent')
        self.reason('m1', 'a later migration')

    def test_agent_was_started_during_the_migration(self):
        self.done()
        self.assertIsNotNone(self.events.wait(INSTANCE, 'm1', 0)[0])

    def test_instance_ends(self):
        self.events.announce(INSTANCE, 'm1')
        self.events.on_event(INSTANCE, None, None)
        self.reason(match='ended')

    def test_figures_and_then_it_ends(self):
        self.events.announce(INSTANCE, 'm1')
        self.done()
        self.events.on_event(INSTANCE, None, None)
        self.assertIsNotNone(self.events.wait(INSTANCE, 'm1', 0)[0])

    def test_malformed(self):
        self.events.announce(INSTANCE, 'm1')
        for data in (None, 7, [], {}, {'info': 7}, {'info': {'reads': -1}},
                     {'info': {'reads': 'x'}}, {'info': {'active': 1}}):
            self.done(data)
        self.reason(match='has not sent')

    def test_other_events(self):
        self.events.on_event(INSTANCE, 'STOP', {})
        self.events.on_event(INSTANCE, None, None)
        self.reason(match='has not sent')

    def test_bounded(self):
        with mock.patch.object(incoming, 'MAX_INSTANCES', 3):
            for number in range(9):
                self.events.announce('i%d' % number, 'm')
                self.events.on_event('j%d' % number, incoming.EVENT, DATA)
        self.assertEqual(3, len(self.events._arrivals))

    def test_close_ends_waiting(self):
        threading.Timer(0.01, self.events.close).start()
        self.assertIsNone(self.events.wait(INSTANCE, 'm1', 50)[0])

    def under_way(self, but=None, **states):
        def state_of(uuid):
            state = states[uuid]
            if isinstance(state, Exception):
                raise state
            return state

        return self.events.under_way(state_of, but)

    def test_announced(self):
        self.assertIsNone(self.events.announced(INSTANCE))
        self.events.announce(INSTANCE, 'm1')
        self.assertEqual('m1', self.events.announced(INSTANCE))
        self.done()
        self.assertEqual('m1', self.events.announced(INSTANCE))

    def test_under_way(self):
        for name in ('a', 'b', 'c', 'd', 'e'):
            self.events.announce(name, 'm-' + name)
        self.events.on_event('c', incoming.EVENT, DATA)
        self.events.on_event('d', None, None)
        self.assertEqual(2, self.under_way(
            but='e', a='arriving', b='none', e='arriving'))
        self.assertEqual(1, self.under_way(a='here', b='none', e='here'))
        # Those that were here are not looked up again.
        self.assertEqual(1, self.under_way(b='none'))
        self.events.end('b')
        self.assertEqual(0, self.under_way())

    def test_one_that_never_begins(self):
        self.events.announce('a', 'm1')
        with mock.patch.object(incoming, 'STARTING', -1.0):
            self.assertEqual(0, self.under_way(a='none'))

    def test_one_that_was_not_announced(self):
        self.done()
        self.events.on_event('other', incoming.EVENT, DATA)
        self.assertEqual(0, self.under_way())

    def test_under_way_without_libvirt(self):
        """It is asked once; what was announced just now counts."""
        for name in ('a', 'b'):
            self.events.announce(name, 'm-' + name)
        state_of = mock.Mock(spec=[], side_effect=(
            errors.HypervisorUnavailable(uri='x', reason='y')))
        self.assertEqual(2, self.events.under_way(state_of))
        state_of.assert_called_once_with('a')
        with mock.patch.object(incoming, 'STARTING', -1.0):
            self.assertEqual(0, self.events.under_way(state_of))
