# SPDX-License-Identifier: Apache-2.0
"""Metrics, their alert rules and their dashboard."""

import json
import re

import prometheus_client
from prometheus_client import parser

from nova_dedup_migrate.agent import metrics as agent_metrics
from nova_dedup_migrate.db import drains
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.engine import metrics as engine_metrics
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.reports import report as reports
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate.tests.unit.reports import samples
import tests

_NAME = re.compile(r'dedup_migrate_[a-z_]+')
#: What a histogram and a counter have for one family.
_SUFFIXES = ('_bucket', '_sum', '_count', '_created')


_DRAIN = {'id': '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11', 'host': 'compute1',
          'user_id': '', 'dry_run': False, 'order': 'longest',
          'on_blocked': 'wait'}


class MetricsTest(controller.ControllerTestCase):

    def setUp(self):
        super().setUp()
        self.engine = engine_metrics.Metrics()
        self.engine.watch(self.database, 60)
        self.store = store.OperationStore(
            self.temporary_dir() / 'operations', 10)
        self.agent = agent_metrics.Metrics(self.store, _Outbox())

    @staticmethod
    def read(registry):
        """Return {(name, labels): value}."""
        text = prometheus_client.generate_latest(registry).decode()
        return {(one.name, *sorted(one.labels.values())): one.value
                for family in parser.text_string_to_metric_families(text)
                for one in family.samples}

    def test_engine(self):
        with self.database.write() as session:
            hosts.put(session, 'compute1', {})
        self.engine.report(samples.make(), True)
        self.engine.report(samples.make(), False)
        self.engine.report(samples.make(outcome='failed',
                                        strategy_used='x' * 50), True)
        found = self.read(self.engine.registry)
        prefix = 'dedup_migrate_'
        self.assertEqual(1, found[prefix + 'migrations_total', 'completed',
                                  'shared_nas'])
        self.assertEqual(1, found[prefix + 'migrations_total', 'failed',
                                  'other'])
        self.assertEqual(1, found[prefix + 'migration_downtime_seconds_count'
                                  ,])
        self.assertEqual(1, found[prefix + 'host_agent_up', 'compute1'])
        self.assertEqual(0, found[prefix + 'drains', 'running'])

    def test_agent(self):
        samples.write(self.store, samples.make(
            outcome='running', phase='running', finished_at=None,
            progress=reports.Progress(0.5, 20.0, 1.0, 100, 40, 1000, 250)))
        found = self.read(self.agent.registry)
        labels = (samples.INSTANCE, 'compute2')
        self.assertEqual(290, found['dedup_migrate_data_remaining_bytes',
                                    *sorted(labels)])
        self.assertEqual(3, found['dedup_migrate_report_outbox',])
        samples.write(self.store, samples.make())
        self.assertNotIn(samples.INSTANCE, str(self.read(
            self.agent.registry)))

    def test_rules_and_dashboard_have_names_that_there_are(self):
        self.test_agent()
        with self.database.write() as session:
            hosts.put(session, 'compute1', {})
        with self.database.write() as session:
            drains.create(session, _DRAIN)
        samples.write(self.store, samples.make(
            outcome='running', phase='running', finished_at=None,
            progress=reports.Progress(0.5, 20.0, 1.0, 100, 40, 1000, 250)))
        self.engine.report(samples.make(), True)
        there, labels = set(), {}
        for registry in (self.engine.registry, self.agent.registry):
            text = prometheus_client.generate_latest(registry).decode()
            there |= set(re.findall(r'(?m)^# TYPE (\S+)', text))
            for family in parser.text_string_to_metric_families(text):
                for one in family.samples:
                    labels.setdefault(one.name, set()).update(one.labels)
        for name in ('prometheus/nova-dedup-migrate.rules.yaml',
                     'grafana/nova-dedup-migrate.json'):
            text = (tests.TOP / 'etc' / name).read_text()
            used = set(_NAME.findall(text))
            self.assertGreater(len(used), 5)
            for one in used:
                for suffix in _SUFFIXES:
                    one = one.removesuffix(suffix)
                self.assertIn(one, there, name)
            for line in text.splitlines():
                names = _NAME.findall(line)
                known = set().union({'job', 'instance'}, *(
                    labels[one] for one in names))
                wanted = re.findall(r'[{,]\s*(\w+)\s*=~?\\?"', line)
                for group in re.findall(r'\bby \(([^)]*)\)', line):
                    wanted += group.replace(' ', '').split(',')
                if names:
                    self.assertLessEqual(set(wanted), known, line)
        json.loads(text)

    def test_documentation(self):
        page = (tests.TOP / 'doc/source/admin/controller.rst').read_text()
        for registry in (self.engine.registry, self.agent.registry):
            text = prometheus_client.generate_latest(registry).decode()
            for name in re.findall(r'(?m)^# TYPE (\S+)', text):
                name = name.removeprefix('dedup_migrate_')
                if not name.endswith('_created'):
                    self.assertIn('``%s``' % name, page)


class _Outbox:
    waiting = 3
