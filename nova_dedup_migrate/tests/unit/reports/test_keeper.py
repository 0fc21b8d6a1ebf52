# SPDX-License-Identifier: Apache-2.0
import datetime
from unittest import mock
import uuid

from oslo_config import cfg

from nova_dedup_migrate.conf import dedup_migrate
from nova_dedup_migrate.conf import paths
from nova_dedup_migrate.reports import errors
from nova_dedup_migrate.reports import keeper
from nova_dedup_migrate.reports import notify
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.reports import store
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.reports import samples


class KeeperTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        dedup_migrate.register_opts(self.conf)
        paths.register_opts(self.conf)
        self.conf.register_opt(cfg.StrOpt('host', default='compute1'))
        self.conf([])
        self.conf.set_override('state_path', str(self.temporary_dir()))
        self.store = store.ReportStore(self.conf.dedup_migrate.reports_path,
                                       100)
        patcher = mock.patch.object(notify, 'ReportNotifier', autospec=True)
        self.notifier = patcher.start().return_value
        self.addCleanup(patcher.stop)
        self.keeper = keeper.ReportKeeper(self.conf)

    def _running(self):
        return samples.make(outcome='running', finished_at=None)

    def _finished(self, destination, rate, age=0, **fields):
        return samples.make(
            str(uuid.uuid4()), destination=destination,
            finished_at=(datetime.datetime.now(datetime.timezone.utc)
                         - datetime.timedelta(seconds=age)),
            rounds=(report.Round(1, transferred_bytes=10 ** 9,
                                 link_rate=rate),), **fields)

    def test_keep(self):
        record = samples.make_record()
        self.keeper.keep(record)
        self.assertEqual('running',
                         self.store.read(samples.MIGRATION).outcome)
        self.notifier.end.assert_not_called()
        record.finish('cancelled')
        self.keeper.keep(record)
        written = self.store.read(samples.MIGRATION)
        self.assertEqual('cancelled', written.outcome)
        self.notifier.end.assert_called_once_with(written)

    def test_a_bus_that_is_down(self):
        self.notifier.end.side_effect = RuntimeError('no bus')
        record = samples.make_record()
        record.finish('completed')
        self.keeper.keep(record)
        self.assertEqual('completed',
                         self.store.read(samples.MIGRATION).outcome)

    def test_sent_though_not_written(self):
        self.conf.set_override('reports_path', '/dev/null/x',
                               group='dedup_migrate')
        record = samples.make_record()
        record.finish('completed')
        self.assertRaises(errors.StoreUnusable, self.keeper.keep, record)
        self.notifier.end.assert_called_once_with(mock.ANY)

    def test_close_unfinished(self):
        other = samples.make(str(uuid.uuid4()))
        self.store.write(other)
        self.store.write(self._running())
        self.keeper.close_unfinished()
        closed = self.store.read(samples.MIGRATION)
        self.assertEqual('failed', closed.outcome)
        self.assertIn('nova-compute stopped during', closed.error)
        self.assertIsNotNone(closed.finished_at)
        self.assertEqual(other, self.store.read(other.migration_uuid))
        self.notifier.end.assert_called_once_with(closed)

    def test_close_unfinished_beside_a_damaged_one(self):
        self.store.write(self._running())
        damaged = str(uuid.uuid4())
        self.store.write(samples.make(damaged))
        with open('%s/%s.json' % (self.store.path, damaged), 'w') as file:
            file.write('{')
        self.keeper.close_unfinished()
        self.assertEqual('failed',
                         self.store.read(samples.MIGRATION).outcome)

    def test_link_rate(self):
        self.assertIsNone(self.keeper.link_rate('compute2'))
        for age, rate in ((30, 3e6), (20, 5e6)):
            self.store.write(self._finished('compute2', rate, age))
        self.keeper = keeper.ReportKeeper(self.conf)
        self.assertEqual(5e6, self.keeper.link_rate('compute2'))
        self.assertIsNone(self.keeper.link_rate('compute3'))

    def test_link_rate_is_learnt(self):
        self.assertIsNone(self.keeper.link_rate('compute2'))
        record = samples.make_record()
        record.see(samples.look(1, transferred_bytes=10 ** 9, mbps=80.0))
        record.finish('completed')
        self.keeper.keep(record)
        self.assertEqual(1e7, self.keeper.link_rate('compute2'))

    def test_link_rate_that_is_not_believed(self):
        self.store.write(self._finished('compute2', 5e6, 8 * 86400))
        self.store.write(self._finished('compute3', 5e6, outcome='failed'))
        self.assertIsNone(self.keeper.link_rate('compute2'))
        self.assertIsNone(self.keeper.link_rate('compute3'))
