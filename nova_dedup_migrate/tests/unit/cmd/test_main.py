# SPDX-License-Identifier: Apache-2.0
import contextlib
import csv
import io
import json
import uuid

from nova_dedup_migrate.cmd import main
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.reports import samples


class MainTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.directory = self.temporary_dir()
        self.conf = self.directory / 'nova.conf'
        self.conf.write_text('[DEFAULT]\nstate_path = %s\n' % self.directory)
        self.store = store.OperationStore(
            self.directory / 'dedup_migrate/operations', 10)

    def _run(self, *arguments):
        """Return exit status, output, errors."""
        out, err = io.StringIO(), io.StringIO()
        with (contextlib.redirect_stdout(out),
              contextlib.redirect_stderr(err)):
            status = main.main(['--config-file', str(self.conf),
                                *arguments])
        return status, out.getvalue(), err.getvalue()

    def test_report_table(self):
        samples.write(self.store, samples.make())
        status, out, _ = self._run('report', 'show', samples.MIGRATION)
        self.assertEqual(0, status)
        for part in ('compute2', '2027-01-15 08:00:00 UTC', 'One.', '11 s',
                     'Predicted time: 10 s (5.0 s or more)',
                     'time +10 %, bytes -5 %, downtime +4 ms',
                     'peer 9, zero 8, storage 7', 'record_pages: 7'):
            self.assertIn(part, out)

    def test_report_json(self):
        samples.write(self.store, samples.make())
        status, out, _ = self._run('report', 'show', '-f', 'json')
        self.assertEqual(0, status)
        self.assertEqual(codec.plain(samples.make()), json.loads(out))

    def test_report_of_what_went_wrong(self):
        samples.write(self.store, samples.make(
            outcome='failed', plan=None, error='no', prediction_error=None,
            finished_at=None, dedup_source=None, dedup_incoming=None,
            link_bytes=None, total_time=None, downtime_ms=None,
            strategy_used=plan.STOCK, warnings=('a', 'b')))
        self.assertEqual(0, self._run('report', 'show')[0])

    def test_report_of_a_running_migration(self):
        for seconds, text in ((63.0, '42 %, 63 s left'),
                              (None, '42 %, not converging')):
            samples.write(self.store, samples.make(
                outcome='running', phase='running', finished_at=None,
                progress=report.Progress(0.42, seconds, samples.STARTED)))
            self.assertIn(text, self._run('report', 'show')[1])

    def test_report_fields(self):
        samples.write(self.store, samples.make())
        self.assertEqual('completed\n', self._run(
            'report', 'show', '-f', 'value', '-c', 'outcome')[1])

    def test_list(self):
        other = str(uuid.uuid4())
        samples.write(self.store, samples.make())
        samples.write(self.store, samples.make(other, instance_uuid=other))
        status, out, _ = self._run('report', 'list', '-f', 'csv')
        rows = list(csv.DictReader(io.StringIO(out)))
        self.assertEqual((0, 2), (status, len(rows)))
        self.assertEqual(('11.0', '1000000000', '103', '10.0'), tuple(
            rows[0][name] for name in ('time', 'link', 'downtime',
                                       'time_prediction_error')))
        self.assertIn('+10 %', self._run('report', 'list')[1])
        self.assertEqual(1, len(json.loads(self._run(
            'report', 'list', '-f', 'json', '--instance', other)[1])))
        self.assertEqual(1, len(json.loads(self._run(
            'report', 'list', '-f', 'json', '--limit', '1')[1])))

    def test_empty_list(self):
        self.assertEqual((0, '[]\n'),
                         self._run('report', 'list', '-f', 'json')[:2])

    def test_damaged_in_list(self):
        samples.write(self.store, samples.make())
        other = str(uuid.uuid4())
        (self.directory / 'dedup_migrate/operations' / (other + '.json')
         ).write_text('{')
        status, out, _ = self._run('report', 'list')
        self.assertEqual(0, status)
        self.assertIn(samples.MIGRATION, out)

    def test_rounds(self):
        samples.write(self.store, samples.make())
        status, out, _ = self._run('report', 'rounds', '-f', 'json')
        self.assertEqual(0, status)
        self.assertEqual([{
            'round': 1, 'time': 11.0, 'peer_pages': 9, 'zero_pages': 8,
            'storage_pages': 7, 'refused_pages': 0, 'resent_pages': 0,
            'transferred': 10 ** 9, 'remaining': 0, 'link_rate': 1.2e7,
            'dirty_rate': 0.0}], json.loads(out))

    def test_errors(self):
        for arguments, part in (
                (('report', 'show'), 'there are no reports in'),
                (('report', 'show', 'x'),
                 "'x' is not the UUID of a migration"),
                (('report', 'show', samples.MIGRATION),
                 'has no live migration'),
                (('--config-file', '/nowhere', 'report', 'show'),
                 'the configuration cannot be used: Failed to find some '
                 'config files: /nowhere')):
            status, _, err = self._run(*arguments)
            self.assertEqual(1, status)
            self.assertIn(part, err)

    def test_wrong_configuration(self):
        self.conf.write_text('[dedup_migrate]\noperations_kept = many\n')
        status, _, err = self._run('report', 'list')
        self.assertEqual(1, status)
        self.assertIn('operations_kept', err)

    def test_unusable_directory(self):
        self.conf.write_text('[dedup_migrate]\noperations_path = %s\n'
                             % self.conf)
        status, _, err = self._run('report', 'list')
        self.assertEqual(1, status)
        self.assertIn('cannot be used: Not a directory', err)
