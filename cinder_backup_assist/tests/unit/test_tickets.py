# SPDX-License-Identifier: Apache-2.0
"""Tickets, rates and counters, without a network."""

import types
import unittest

from cinder_backup_assist import errors
from cinder_backup_assist.service import limits
from cinder_backup_assist.service import metrics
from cinder_backup_assist.service import tickets

CHAIN = [types.SimpleNamespace(id='b')]


class TicketsTest(unittest.TestCase):

    def setUp(self):
        self.now = 100.0
        self.tickets = tickets.Tickets('backup-1', 10, 2,
                                       clock=lambda: self.now)

    def take(self, ticket, names=('compute-1',), abort=None):
        return self.tickets.take(ticket, list(names), abort)

    def test_taken_once(self):
        ticket = self.tickets.issue('compute-1', CHAIN)
        self.assertEqual('b', self.take(ticket).backup_id)
        self.assertRaises(errors.TicketRefused, self.take, ticket)

    def test_only_by_its_host(self):
        ticket = self.tickets.issue('compute-1', CHAIN)
        for names in ((), ('compute-2',), ('compute-11',), ('1',),
                      ('x.compute-1',)):
            self.assertRaises(errors.TicketRefused, self.take, ticket, names)
        self.take(ticket, ('other', 'COMPUTE-1.example.org'))

    def test_a_full_name_has_to_be_the_same(self):
        ticket = self.tickets.issue('compute-1.example.org', CHAIN)
        for name in ('compute-1', 'compute-1.example.com'):
            self.assertRaises(errors.TicketRefused, self.take, ticket,
                              (name,))
        self.take(ticket, ('compute-1.example.org',))

    def test_expires(self):
        ticket = self.tickets.issue('compute-1', CHAIN)
        self.now += 10
        self.assertRaises(errors.TicketRefused, self.take, ticket)
        self.assertEqual(0, self.tickets.count())

    def test_limit_counts_those_in_use(self):
        first = self.tickets.issue('compute-1', CHAIN)
        self.take(first)
        self.tickets.issue('compute-1', CHAIN)
        self.assertRaises(errors.Overloaded, self.tickets.issue,
                          'compute-1', CHAIN)
        self.tickets.release(first)
        self.tickets.issue('compute-1', CHAIN)

    def test_close_ends_the_session(self):
        ended = []
        ticket = self.tickets.issue('compute-1', CHAIN)
        self.take(ticket, abort=lambda: ended.append(1))
        self.assertTrue(self.tickets.close(ticket))
        self.assertEqual([1], ended)
        self.tickets.release(ticket)
        self.assertFalse(self.tickets.close(ticket))

    def test_what_is_kept_is_no_ticket(self):
        ticket = self.tickets.issue('compute-1', CHAIN)
        self.assertNotIn(ticket, repr(vars(self.tickets)))


class RateLimitTest(unittest.TestCase):

    def test_what_is_sent_over_time(self):
        now = [0.0]

        def sleep(seconds):
            now[0] += seconds

        limit = limits.RateLimit(1000, clock=lambda: now[0], sleep=sleep)
        for _ in range(50):
            limit.wait(100)
        self.assertAlmostEqual(4.9, now[0], places=3)
        # a pause allows a short burst and no more
        now[0] += 100
        start = now[0]
        for _ in range(50):
            limit.wait(100)
        self.assertGreater(now[0] - start, 4.5)

    def test_no_limit(self):
        limits.RateLimit(0, sleep=self.fail).wait(1 << 40)


class MetricsTest(unittest.TestCase):

    def test_text(self):
        found = metrics.Metrics()
        found.add('sent_bytes_total', 7)
        self.assertIn('# TYPE cinder_backup_assist_sent_bytes_total counter'
                      '\ncinder_backup_assist_sent_bytes_total 7\n',
                      found.text())
        self.assertRaises(KeyError, found.add, 'unknown')
