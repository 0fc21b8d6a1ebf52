# SPDX-License-Identifier: Apache-2.0
import contextlib
import dataclasses
import io
import json

import fixtures

from benchmarks import runner
from guests.errors import GuestError
from nova_dedup_migrate.tests import base


@dataclasses.dataclass(frozen=True)
class Named:

    name: str
    variants: tuple = ()


CELLS = [Named('one', (Named('a'), Named('b'))), Named('two', (Named('a'),))]


class Summary:
    """In place of the modules summary and publish."""

    @staticmethod
    def build(chosen, runs, command):
        return {'runs': runs, 'command': command}

    @staticmethod
    def failures(report):
        return [one['failed'] for variants in report['runs'].values()
                for records in variants.values() for one in records
                if 'failed' in one]

    @staticmethod
    def targets(report):
        for cell, variants in report['runs'].items():
            for name, records in variants.items():
                for one in records:
                    if 'downtime_ms' in one:
                        yield f'{cell}, {name}', 'downtime', {
                            'value': one['downtime_ms'], 'limit': 5,
                            'reached': one['downtime_ms'] <= 5}

    @staticmethod
    def text(report):
        return report['command']

    @staticmethod
    def write(report, directory):
        (directory / 'report').write_text(json.dumps(report))


class Small(runner.Bench):

    name = 'small'
    about = 'measures nothing'
    summary = publish = Summary

    def __init__(self, breaks=()):
        self.breaks = breaks
        self.said = []
        self.version = 1
        self.downtime = 2

    def cells(self, given):
        wanted = runner.pattern('--only', given.only)
        return [cell for cell in CELLS if wanted.search(cell.name)]

    def inputs(self, task):
        return self.version

    def prepare(self, given):
        self.said.append('prepare')

    def close(self):
        self.said.append('close')

    def run(self, task):
        name = task.cell.name + task.variant.name
        self.said.append(name)
        if name in self.breaks:
            raise self.breaks[name]
        return {'total_time_s': 1.0, 'link_bytes': 1000,
                'downtime_ms': self.downtime}

    def failed(self, task):
        self.said.append('failed')


class CommandTest(base.TestCase):

    def test_make_passes_on_what_was_typed(self):
        self.assertEqual('make bench-a', runner.command(
            'a', ['--report-only']))
        self.assertEqual(
            """make bench-a ARGS='--only '"'"'^(b|c)$$'"'"''""",
            runner.command('a', ['--only', '^(b|c)$', '--report-only']))


class RunnerTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.useFixture(fixtures.MockPatchObject(runner, '_TOP',
                                                 self.directory))

    def rows(self):
        report = json.loads((self.directory / 'build/bench-small/report.json'
                             ).read_text())
        return [(row['name'], row['value'], row['target'], row['ok'])
                for row in report['rows']]

    def go(self, small, *words):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = runner.main(
                small, ['--output', str(self.directory), *words])
        return status, out.getvalue() + err.getvalue()

    def report(self):
        return json.loads((self.directory / 'report').read_text())

    def test_all_is_measured_and_written(self):
        small = Small()
        status, said = self.go(small)
        self.assertEqual(0, status)
        self.assertEqual(['prepare', 'onea', 'oneb', 'twoa', 'close'],
                         small.said)
        self.assertIn('[3/3] two, a, run 1: 1.0 s, 0 MB, 2 ms', said)
        report = self.report()
        self.assertIn('make bench-small', report['command'])
        self.assertEqual({'one': ['a', 'b'], 'two': ['a']}, {
            cell: list(runs) for cell, runs in report['runs'].items()})

    def test_targets(self):
        self.assertEqual(0, self.go(Small(), '--only', 'two')[0])
        self.assertEqual([
            ('runs that failed', 0, '0', True),
            ('two, a: downtime', 2, '5 or less', True)], self.rows())
        small = Small()
        small.downtime, small.version = 6, 2
        status, said = self.go(small, '--only', 'two')
        self.assertEqual(1, status)
        self.assertIn('NO', said)
        self.assertEqual(('two, a: downtime', 6, '5 or less', False),
                         self.rows()[1])

    def test_what_was_interrupted_goes_on(self):
        small = Small({'oneb': KeyboardInterrupt()})
        status, said = self.go(small)
        self.assertEqual(130, status)
        self.assertIn('interrupted', said)
        self.assertEqual('close', small.said[-1])
        small = Small()
        self.assertEqual(0, self.go(small)[0])
        self.assertEqual(['prepare', 'oneb', 'twoa', 'close'], small.said)

    def test_a_failed_run_is_kept_until_it_is_done_again(self):
        small = Small({'onea': GuestError('it does not boot')})
        status, said = self.go(small)
        self.assertEqual(1, status)
        self.assertIn('FAILED: GuestError: it does not boot', said)
        self.assertEqual(
            ['prepare', 'onea', 'failed', 'oneb', 'twoa', 'close'],
            small.said)
        small = Small()
        self.assertEqual(1, self.go(small)[0])
        self.assertEqual([], small.said)
        self.assertEqual(0, self.go(small, '--retry-failed')[0])
        self.assertEqual(['prepare', 'onea', 'close'], small.said)

    def test_what_another_version_did_does_not_count(self):
        self.go(Small())
        small = Small()
        small.version = 2
        self.go(small, '--only', 'two')
        self.assertEqual(['prepare', 'twoa', 'close'], small.said)

    def test_report_only_measures_nothing(self):
        self.go(Small(), '--only', 'two')
        small = Small()
        self.assertEqual(0, self.go(small, '--report-only')[0])
        self.assertEqual([], small.said)
        self.assertEqual(['two'], list(self.report()['runs']))

    def test_what_is_asked_wrongly(self):
        for words, wanted in ((['--only', '('], '--only'),
                              (['--only', 'x'], 'no such cell')):
            status, said = self.go(Small(), *words)
            self.assertEqual(1, status)
            self.assertIn(wanted, said)
