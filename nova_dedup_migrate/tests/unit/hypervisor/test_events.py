# SPDX-License-Identifier: Apache-2.0
import threading

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.tests import base


class EventLogTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.log = events.EventLog(size=3)

    def test_event_before_the_wait_is_not_missed(self):
        mark = self.log.mark()
        self.log.add('STOP', {})
        self.assertEqual('STOP', self.log.wait('STOP', mark, 0).name)

    def test_event_before_the_mark_does_not_count(self):
        self.log.add('STOP', {})
        self.assertRaises(errors.WaitTimeout, self.log.wait, 'STOP',
                          self.log.mark(), 0)

    def test_match(self):
        self.log.add('MIGRATION', {'status': 'setup'})
        self.log.add('MIGRATION', {'status': 'active'})
        found = self.log.wait('MIGRATION', 0, 0,
                              lambda data: data['status'] == 'active')
        self.assertEqual(1, found.number)

    def test_wait_is_woken_up(self):
        timer = threading.Timer(0.05, self.log.add, ('STOP', {}))
        timer.start()
        self.addCleanup(timer.join)
        self.assertEqual('STOP', self.log.wait('STOP', 0, 30).name)

    def test_wait_ends_when_the_guest_does(self):
        timer = threading.Timer(0.05, self.log.close)
        timer.start()
        self.addCleanup(timer.join)
        self.assertRaises(errors.WaitTimeout, self.log.wait, 'STOP', 0,
                          3600)

    def test_only_the_last_are_kept(self):
        for number in range(5):
            self.log.add('E', {'n': number})
        self.assertEqual([2, 3, 4], [e.number for e in self.log.since()])
        self.assertEqual([4], [e.data['n'] for e in self.log.since(4)])

    def test_subscription_ends(self):
        seen = []
        end = self.log.subscribe(seen.append)
        self.log.add('A', {})
        end()
        end()
        self.log.add('B', {})
        self.assertEqual(['A'], [e.name for e in seen])
