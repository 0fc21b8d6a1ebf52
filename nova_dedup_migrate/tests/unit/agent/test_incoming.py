# SPDX-License-Identifier: Apache-2.0
"""Events of incoming migrations."""

import threading
from unittest import mock

from nova_dedup_migrate.agent import incoming
from nova_dedup_migrate.tests import base

INSTANCE = 'instance'
DATA = {'info': {'active': False, 'record-pages': 9, 'fetched-pages': 8,
                 'bytes-read': 7}}


class IncomingTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.events = incoming.IncomingEvents()

    def done(self, data=DATA):
        self.events.on_event(INSTANCE, incoming.EVENT, data)

    def reason(self, migration='m1', match=''):
        figures, reason = self.events.wait(INSTANCE, migration, 0)
        self.assertIsNone(figures)
        self.assertRegex(reason, match)

    def test_figures(self):
        self.events.expect(INSTANCE, 'm1')
        self.done()
        figures, reason = self.events.wait(INSTANCE, 'm1', 0)
        self.assertEqual((9, 8, 7), (figures.record_pages,
                                     figures.fetched_pages,
                                     figures.bytes_read))
        self.assertEqual('', reason)
        self.assertIsNotNone(self.events.wait(INSTANCE, 'm1', 0)[0])

    def test_they_come_later(self):
        self.events.expect(INSTANCE, 'm1')
        threading.Timer(0.01, self.done).start()
        self.assertIsNotNone(self.events.wait(INSTANCE, 'm1', 30)[0])

    def test_they_do_not_come(self):
        self.reason(match='has not sent')
        self.events.expect(INSTANCE, 'm1')
        self.reason(match='has not sent')

    def test_figures_of_an_earlier_migration(self):
        self.events.expect(INSTANCE, 'm1')
        self.done()
        self.events.expect(INSTANCE, 'm2')
        self.reason('m2', 'has not sent')
        self.reason('m1', 'a later migration')

    def test_agent_was_started_during_the_migration(self):
        self.done()
        self.assertIsNotNone(self.events.wait(INSTANCE, 'm1', 0)[0])

    def test_instance_ends(self):
        self.events.expect(INSTANCE, 'm1')
        self.events.on_event(INSTANCE, None, None)
        self.reason(match='ended')

    def test_figures_and_then_it_ends(self):
        self.events.expect(INSTANCE, 'm1')
        self.done()
        self.events.on_event(INSTANCE, None, None)
        self.assertIsNotNone(self.events.wait(INSTANCE, 'm1', 0)[0])

    def test_malformed(self):
        self.events.expect(INSTANCE, 'm1')
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
                self.events.expect('i%d' % number, 'm')
                self.events.on_event('j%d' % number, incoming.EVENT, DATA)
        self.assertEqual(3, len(self.events._arrivals))

    def test_close_ends_waiting(self):
        threading.Timer(0.01, self.events.close).start()
        self.assertIsNone(self.events.wait(INSTANCE, 'm1', 50)[0])
