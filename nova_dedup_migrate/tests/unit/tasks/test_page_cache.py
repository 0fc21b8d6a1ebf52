# SPDX-License-Identifier: Apache-2.0
import dataclasses
import threading
from unittest import mock

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.pagecache import ask as pagecache_ask
from nova_dedup_migrate.planner import asking
from nova_dedup_migrate.tasks import ask
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.tasks import fakes

TAKEN = answer.Answer('taken', way='port', taken_pages=70000)


class AskCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.record = fakes.record()
        self.guest = mock.create_autospec(hypervisor.Guest, instance=True)
        self.asker = mock.create_autospec(pagecache_ask.Asker,
                                          instance=True)
        self.asker.obstacle.return_value = ''
        self.asker.ask.return_value = TAKEN
        self.hints(90000)
        patch = mock.patch.object(asking, 'obstacle', autospec=True,
                                  return_value='')
        self.obstacle = patch.start()
        self.addCleanup(patch.stop)

    def hints(self, pages, tracking=False):
        self.guest.dedup_statistics.return_value = (
            statistics.DedupStatistics(
                tracking=tracking,
                hints=statistics.HintStatistics(pages=pages)))

    def task(self, asker=True, limit=60):
        return ask.AskGuest(self.record, self.guest,
                            self.asker if asker else None, limit)


class AskGuestTest(AskCase):

    def test_taken(self):
        facts = self.task().execute(fakes.some_facts())
        self.asker.ask.assert_called_once_with({'virtio-disk0'})
        self.assertEqual((90000, 70000),
                         (facts.guest.hint_pages, facts.guest.map_pages))
        self.assertIs(facts, self.record.facts)
        self.assertIs(TAKEN, self.record.page_cache)
        self.assertEqual([], self.record.warnings)

    def test_no_facts(self):
        self.assertIsNone(self.task().execute(None))

    def assert_nothing(self, outcome, reason, task=None):
        facts = (task or self.task()).execute(fakes.some_facts())
        self.assertEqual(0, facts.guest.map_pages)
        self.assertEqual(fakes.some_facts().guest.hint_pages,
                         facts.guest.hint_pages)
        self.assertIn(reason, facts.guest.map_reason)
        self.assertEqual(outcome, self.record.page_cache.outcome)

    def test_not_asked(self):
        self.assert_nothing('not asked', 'switched off',
                            self.task(asker=False))
        self.obstacle.return_value = 'no use'
        self.assert_nothing('not asked', 'no use')
        self.obstacle.return_value = ''
        self.asker.obstacle.return_value = 'no port'
        self.assert_nothing('unavailable', 'no port')
        self.asker.ask.assert_not_called()

    def test_what_the_guest_did(self):
        for outcome in (answer.TIMEOUT, answer.REFUSED, answer.UNAVAILABLE):
            self.asker.ask.return_value = answer.Answer(outcome, 'it lies')
            self.assert_nothing(outcome, 'it lies')
        self.asker.ask.return_value = dataclasses.replace(TAKEN,
                                                          taken_pages=0)
        self.assert_nothing('taken', 'lists nothing')

    def test_hangs_beyond_its_limit(self):
        over = threading.Event()
        self.addCleanup(over.set)
        self.asker.ask.side_effect = lambda usable: over.wait(60)
        self.assert_nothing('timeout', 'did not answer',
                            self.task(limit=-0.9))

    def test_failure(self):
        self.asker.ask.side_effect = errors.QmpDisconnected(command='x')
        self.assert_nothing('refused', 'connection is closed')
        self.assertEqual(1, len(self.record.warnings))

    def test_hints_cannot_be_counted(self):
        self.guest.dedup_statistics.side_effect = errors.QmpTimeout(
            command='x', seconds=1)
        facts = self.task().execute(fakes.some_facts())
        self.assertEqual(70000, facts.guest.hint_pages)

    def test_revert(self):
        self.task().revert(result=None, flow_failures={})
        self.guest.track_dedup.assert_not_called()
        self.record.page_cache = TAKEN
        self.task().revert(result=None, flow_failures={})
        self.guest.track_dedup.assert_called_once_with(False)


class ForgetTest(AskCase):

    def forget(self, outcome, found=TAKEN):
        self.record.page_cache = found
        self.record.outcome = outcome
        ask.ForgetAnswer(self.record, self.guest).execute()

    def test_a_guest_that_stayed(self):
        for outcome in ('cancelled', 'failed', None):
            self.guest.track_dedup.reset_mock()
            self.forget(outcome)
            self.guest.track_dedup.assert_called_once_with(False)

    def test_nothing_to_forget(self):
        self.forget('completed')
        self.forget('cancelled', None)
        self.forget('cancelled', answer.Answer('timeout'))
        self.hints(1, tracking=True)
        self.forget('cancelled')
        self.guest.track_dedup.assert_not_called()

    def test_gone(self):
        for error in (errors.GuestNotRunning(name='x'),
                      errors.QmpDisconnected(command='x')):
            self.guest.dedup_statistics.side_effect = error
            self.forget('failed')
        self.assertEqual([], self.record.warnings)
        self.guest.dedup_statistics.side_effect = ValueError('x')
        self.forget('failed')
        self.assertEqual(1, len(self.record.warnings))
