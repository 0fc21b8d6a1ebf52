# SPDX-License-Identifier: Apache-2.0
from nova_dedup_migrate.hypervisor import progress
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.reports import build
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.reports import samples

_SOURCE = {'state': 'done', 'record_pages': 9, 'storage_pages': 7,
           'nack_digest': 1, 'nack_io': 2}


def _finished(outcome='completed', **attributes):
    made = samples.make_operation(**{'plan': samples.make_plan(),
                                    **attributes})
    made.see(samples.look(
        2, _SOURCE, transferred_bytes=11 * 10 ** 8, total_time_ms=9000,
        downtime_ms=120, pages=progress.PagePaths(5, 4, 7)))
    made.finish(outcome)
    return made


class BuildTest(base.TestCase):

    def test_at_the_start(self):
        made = build.of_operation(samples.make_operation())
        self.assertEqual(('running', None, None, (), None, 'stock'),
                         (made.outcome, made.finished_at, made.plan,
                          made.rounds, made.link_bytes, made.strategy_used))
        self.assertEqual(('auto', 'flavor'), (made.strategy_requested,
                                              made.strategy_source))

    def test_completed(self):
        made = build.of_operation(_finished())
        self.assertEqual('completed', made.outcome)
        self.assertEqual('shared_nas', made.strategy_used)
        self.assertEqual(report.Paths(5, 4, 7), made.pages)
        self.assertEqual(report.Paths(5 * 4096, 4 * 4096, 7 * 4096),
                         made.bytes)
        self.assertEqual((1, 2), (made.digest_failures,
                                  made.storage_failures))
        self.assertEqual((9.0, 120), (made.total_time, made.downtime_ms))
        self.assertEqual(report.PredictionError(-10.0, 10.0, 20.0),
                         made.prediction_error)
        self.assertEqual(9, made.dedup_source['record_pages'])
        self.assertEqual(made, codec.decode(codec.encode(made)))

    def test_page_cache(self):
        found = samples.make().page_cache
        made = build.of_operation(_finished(page_cache=found))
        self.assertIs(found, made.page_cache)
        self.assertEqual(made, codec.decode(codec.encode(made)))

    def test_downtime_that_only_events_tell(self):
        made = samples.make_operation(downtime=0.0804)
        made.see(samples.look(1, {}))
        self.assertEqual(80, build.of_operation(made).downtime_ms)
        # QEMU's own figure is exact
        self.assertEqual(120, build.of_operation(
            _finished(downtime=0.5)).downtime_ms)

    def test_fell_back(self):
        """The prediction of what was done is the one to compare with."""
        made = samples.make_operation(plan=samples.make_plan(),
                                     reason='the storage is slow')
        made.see(samples.look(1, {}, total_time_ms=33000,
                                transferred_bytes=3 * 10 ** 9))
        made.finish('completed')
        made = build.of_operation(made)
        self.assertEqual(('stock', 'the storage is slow'),
                         (made.strategy_used, made.fallback_reason))
        self.assertEqual(report.PredictionError(10.0, 0.0, None),
                         made.prediction_error)

    def test_source_ended_before_it_was_read(self):
        for pages, strategy in ((7, 'shared_nas'), (0, 'stock')):
            made = samples.make_operation(
                plan=samples.make_plan(),
                incoming=objects.DedupIncomingReply(
                    known=True, record_pages=pages))
            made.see(samples.look(1, None))
            made.finish('completed')
            made = build.of_operation(made)
            self.assertEqual(strategy, made.strategy_used)
            self.assertEqual(pages, made.dedup_incoming['record_pages'])

    def test_disks_are_not_counted(self):
        made = _finished()
        made.plan = samples.make_plan()
        object.__setattr__(made.plan, 'prediction', samples.prediction(
            time=100.0, size=5e9, disk_time=91.0, disk_bytes=3.9e9))
        self.assertEqual(
            (0.0, 0.0),
            (build.of_operation(made).prediction_error.time_percent,
             build.of_operation(made).prediction_error.bytes_percent))

    def test_no_error_without_an_outcome(self):
        for outcome in ('failed', 'cancelled'):
            self.assertIsNone(build.of_operation(
                _finished(outcome)).prediction_error)
        self.assertIsNone(build.of_operation(
            _finished(plan=None)).prediction_error)

    def test_failed(self):
        made = build.of_operation(_finished(
            'failed', error=RuntimeError('x' * 5000)))
        self.assertEqual('failed', made.outcome)
        self.assertEqual(2000, len(made.error))

    def test_incoming(self):
        reply = objects.DedupIncomingReply(known=True, reads=5)
        made = build.of_operation(_finished(incoming=reply))
        self.assertEqual((True, 5), (made.dedup_incoming['known'],
                                     made.dedup_incoming['reads']))
        made = build.of_operation(_finished(
            incoming=statistics.IncomingStatistics(reads=6)))
        self.assertEqual(6, made.dedup_incoming['reads'])
        self.assertEqual(made, codec.decode(codec.encode(made)))
