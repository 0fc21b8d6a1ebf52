# SPDX-License-Identifier: Apache-2.0
import datetime
from unittest import mock
import uuid

from nova_dedup_migrate.operations import errors
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.reports import links
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.reports import samples

NOW = datetime.datetime(2027, 1, 15, tzinfo=datetime.timezone.utc)


def finished(destination, rate, age=0, **fields):
    """Return the Report of a migration that is so many seconds old."""
    return samples.make(
        str(uuid.uuid4()), destination=destination,
        finished_at=NOW - datetime.timedelta(seconds=age),
        rounds=(report.Round(1, transferred_bytes=10 ** 9,
                             link_rate=rate),), **fields)


class LinkHistoryTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.source = mock.create_autospec(store.OperationStore,
                                           instance=True)
        self.history = links.LinkHistory(self.source)
        patch = mock.patch.object(links, '_now', autospec=True,
                                  return_value=NOW)
        patch.start()
        self.addCleanup(patch.stop)

    def kept(self, *reports):
        """The store has Reports, the newest first."""
        self.source.reports.return_value = list(reports), []

    def test_nothing_is_kept(self):
        self.kept()
        self.assertIsNone(self.history.rate('compute2'))

    def test_the_newest_counts(self):
        self.kept(finished('compute2', 5e6, 20), finished('compute3', 1e6),
                  finished('compute2', 3e6, 30))
        self.assertEqual(5e6, self.history.rate('compute2'))
        self.assertEqual(1e6, self.history.rate('compute3'))
        self.assertIsNone(self.history.rate('compute4'))
        self.source.reports.assert_called_once_with(50)

    def test_what_counts_for_nothing(self):
        self.kept(finished('too old', 5e6, 8 * 86400),
                  finished('not completed', 5e6, outcome='failed'),
                  finished('no rate', 0.0),
                  samples.make(destination='too short', rounds=(
                      report.Round(1, transferred_bytes=1000,
                                   link_rate=5e6),)))
        for destination in ('too old', 'not completed', 'no rate',
                            'too short'):
            self.assertIsNone(self.history.rate(destination), destination)

    def test_it_learns(self):
        self.kept(finished('compute2', 3e6, 30))
        self.assertEqual(3e6, self.history.rate('compute2'))
        self.history.learn(finished('compute2', 7e6))
        self.history.learn(finished('compute2', 9e6, outcome='cancelled'))
        self.assertEqual(7e6, self.history.rate('compute2'))
        self.source.reports.assert_called_once_with(50)

    def test_nothing_is_read_before_it_is_needed(self):
        """What is written first is among what is read then."""
        self.history.learn(finished('compute2', 7e6))
        self.source.reports.assert_not_called()
        self.kept(finished('compute2', 7e6))
        self.assertEqual(7e6, self.history.rate('compute2'))

    def test_a_store_that_fails_is_read_again(self):
        self.source.reports.side_effect = errors.StoreUnusable(
            path='/x', reason='no')
        self.assertRaises(errors.StoreUnusable, self.history.rate,
                          'compute2')
        self.source.reports.side_effect = None
        self.kept(finished('compute2', 7e6))
        self.assertEqual(7e6, self.history.rate('compute2'))
