# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import io
import json
import math
import re
from unittest import mock

from benchmarks import options
from benchmarks import predicted_run
from benchmarks import prediction
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.planner import cases


def record(known=None, **changes):
    """A line of runs.jsonl: 3 GiB over 12.5 MB/s, half of it on disk."""
    return {'cell': 'idle', 'variant': 'stock', 'time_s': 250.0,
            'link_bytes': 3 << 30, 'downtime_ms': 80,
            'facts': dataclasses.asdict(known or cases.make()), **changes}


class PredictionTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.ledger = self.temporary_dir() / 'runs.jsonl'

    def run_main(self, *arguments):
        said, wrong = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), \
                contextlib.redirect_stderr(wrong), \
                mock.patch('sys.argv', ['prediction', *arguments]):
            status = prediction.main()
        return status, said.getvalue(), wrong.getvalue()

    def test_facts_through_json(self):
        known = cases.make(options={'downtime_steps': ((0, 50), (9, 500))},
                           guest={'in_use': 2.5e9, 'in_use_error': 1e7})
        again = predicted_run.facts_of(json.loads(json.dumps(
            dataclasses.asdict(known))))
        self.assertEqual(
            dataclasses.replace(known, options=again.options), again)
        self.assertEqual([[0, 50], [9, 500]], again.options.downtime_steps)

    def test_ledger_of_migrations(self):
        half = dataclasses.replace(
            cases.make(), disks=(cases.disk(storage_rate=1e9),))
        self.ledger.write_text('\n'.join(map(json.dumps, (
            record(), record(half, variant='dedup', time_s=125.0,
                             link_bytes=3 << 29))))
            + '\n{"cut by a ki')
        stock, ours = prediction.compare(self.ledger)
        for one in (stock, ours):
            self.assertAlmostEqual(0, one.time_error, delta=0.05)
            self.assertAlmostEqual(0, one.bytes_error, delta=0.05)
            self.assertTrue(one.agrees)
        status, said, _ = self.run_main(str(self.ledger))
        self.assertEqual(0, status)
        self.assertIn('2 of 2 within 25 %', said)
        self.assertIn('end foreseen: 2 of 2', said)

    def test_migration_that_never_ended(self):
        busy = cases.make(guest={'dirty_rate': 1e9})
        never, surprise = map(prediction.predicted_again, (
            record(busy, time_s=None), record(time_s=None)))
        self.assertEqual((None, None), (never.time_error, never.bytes_error))
        self.assertTrue(never.agrees)
        self.assertFalse(surprise.agrees)
        self.assertIn('never', prediction._row(never))

    def test_one_thing_at_a_time(self):
        for arguments in ((), ('--migrate', 'x')):
            status, _, wrong = self.run_main(*arguments)
            self.assertEqual(2, status)
            self.assertIn('either', wrong)

    def test_no_such_ledger(self):
        status, _, wrong = self.run_main(str(self.ledger))
        self.assertEqual(1, status)
        self.assertIn('runs.jsonl', wrong)


class CellsTest(base.TestCase):

    def test_all_can_be_run(self):
        found = predicted_run.cells(512, [100, 200])
        names = [cell.name for cell in found]
        self.assertEqual(len(names), len(set(names)))
        for cell in found:
            cell.options.guest_workload()
            cell.options.migration()
            self.assertTrue(re.search('(100|200)$', cell.name))

    def test_rates_reach_the_facts(self):
        run = mock.Mock(spec=predicted_run.PredictedRun)
        run._options = options.Options(memory=256, link=80, wire=1000,
                                       storage='slow', storage_rate=10)
        run._storage_rate = lambda: (
            predicted_run.PredictedRun._storage_rate(run))
        with mock.patch.object(predicted_run.survey, 'survey',
                               autospec=True) as survey:
            survey.return_value = predicted_run.survey.Survey(
                dirty_rate=5.0, disk_write_rate=3.0)
            run._source = mock.sentinel.guest
            found = predicted_run.PredictedRun._gather(run)
        self.assertEqual(facts.Link(configured=1e7, measured=1.25e8),
                         found.link)
        self.assertEqual((1e7, 5.0, 3.0), (
            found.disks[0].storage_rate, found.guest.dirty_rate,
            found.guest.disk_write_rate))
        self.assertIsNone(found.guest.in_use)
        self.assertFalse(math.isinf(found.guest.memory))
