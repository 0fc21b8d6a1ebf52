# SPDX-License-Identifier: Apache-2.0
"""Reports from the directory of a host into the controller's database."""

import os
from unittest import mock

from oslo_config import cfg
from oslo_messaging import conffixture

from nova_dedup_migrate.agent import outbox
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.engine import intake
from nova_dedup_migrate.engine import metrics
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.rpc import engine_api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import transport
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate.tests.unit.reports import samples

OTHER = '7f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11'


def host_report(waiting=0):
    return objects.DedupHostReport(
        host='compute1', patched=True, max_outbound=1,
        options=objects.DedupMigrationOptions(
            strategy='auto', downtime_ms=500.0,
            downtime_steps=10, downtime_delay=75.0,
            adapt_downtime_limit=True,
            max_extra_downtime_ms=50.0, min_gain=0.05,
            post_copy=False,
            auto_converge=False, timeout_per_gb=800.0,
            force_complete=False),
        guests=[objects.DedupGuestSample(uuid=OTHER, memory=1 << 30)],
        waiting_reports=waiting)


class OutboxTest(controller.ControllerTestCase):
    """Agent and engine with a real serializer and bus in memory."""

    def setUp(self):
        super().setUp()
        self.store = store.OperationStore(
            self.temporary_dir() / 'operations', 10)
        conf = cfg.ConfigOpts()
        self.useFixture(conffixture.ConfFixture(conf, 'fake://'))
        bus = transport.get_transport(conf)
        self.addCleanup(bus.cleanup)
        self.intake = intake.Intake(self.database, metrics.Metrics())
        self.server = transport.get_server(
            bus, 'control', [self.intake], transport.ENGINE_TOPIC)
        self.api = engine_api.EngineAPI(bus)
        self.outbox = self.make()

    def make(self):
        return outbox.Outbox(self.store, self.api, 'compute1', host_report)

    def start(self):
        self.server.start()
        self.addCleanup(self.server.wait)
        self.addCleanup(self.server.stop)

    def stored(self, uuid=samples.MIGRATION):
        with self.database.read() as session:
            return migrations.get(session, uuid)

    def refused(self, **fields):
        made = samples.make(**fields.pop('report', {}))
        return self.assertRaises(
            errors.EngineRefused, self.api.put_report,
            objects.DedupReport(**{
                'host': 'compute1', 'migration_uuid': samples.MIGRATION,
                'revision': 1, 'report': outbox.json.dumps(
                    outbox.codec.plain(made)), **fields}))

    def test_reports_arrive_once(self):
        self.start()
        samples.write(self.store, samples.make())
        self.assertEqual(1, self.outbox.waiting)
        self.outbox.send()
        self.assertEqual(0, self.outbox.waiting)
        first = self.stored()
        self.assertEqual('completed', first['state'])
        self.make().send()
        self.assertEqual(first, self.stored())

    def test_engine_that_is_away(self):
        samples.write(self.store, samples.make())
        with mock.patch.object(engine_api, 'TIMEOUT', 0.2):
            self.assertRaises(errors.EngineUnavailable, self.outbox.send)
        self.assertEqual(1, self.outbox.waiting)
        self.start()
        self.outbox.send()
        self.stored()

    def test_running_ones_first(self):
        sent = []
        api = mock.create_autospec(engine_api.EngineAPI, instance=True)
        api.put_report.side_effect = lambda one: sent.append(
            one.migration_uuid)
        box = outbox.Outbox(self.store, api, 'compute1', host_report)
        samples.write(self.store, samples.make(
            outcome='running', phase='running', finished_at=None))
        box.send()
        samples.write(self.store, samples.make(OTHER))
        samples.write(self.store, samples.make(
            outcome='running', phase='running', finished_at=None))
        box.send()
        self.assertEqual([samples.MIGRATION, samples.MIGRATION, OTHER],
                         sent)

    def test_the_host_is_reported_at_the_end_of_a_migration(self):
        api = mock.create_autospec(engine_api.EngineAPI, instance=True)
        with mock.patch.object(outbox, 'INTERVAL', 0.05):
            box = outbox.Outbox(self.store, api, 'compute1', host_report)
            samples.write(self.store, samples.make(
                outcome='running', phase='running', finished_at=None))
            box.start()
            self.addCleanup(box.stop)
            self.eventually(lambda: api.put_report.called
                            and api.put_host.called, 'both are sent')
            self.assertEqual(1, api.put_host.call_count)
            samples.write(self.store, samples.make())
            self.eventually(lambda: api.put_host.call_count == 2,
                            'the host again')

    def test_end_counts_though_the_clock_went_back(self):
        self.start()
        path = os.path.join(self.store.path, samples.MIGRATION + '.json')
        samples.write(self.store, samples.make(
            outcome='running', phase='running', finished_at=None))
        self.outbox.send()
        samples.write(self.store, samples.make())
        os.utime(path, ns=(1, 1))
        self.make().send()
        self.assertEqual('completed', self.stored()['state'])

    def test_only_what_the_host_takes_part_in(self):
        self.start()
        self.assertIn('its source is compute1', str(self.refused(
            host='compute9')))
        samples.write(self.store, samples.make())
        self.outbox.send()
        error = self.refused(host='compute9', revision=1 << 60,
                             report={'source': 'compute9'})
        self.assertIn('the source of the migration is compute1', str(error))
        self.assertEqual('compute1', self.stored()['source'])

    def test_malformed(self):
        self.start()
        for text in ('{', '[' * 10000, '{}', '"x"'):
            self.assertIn('cannot be read', str(self.malformed(text)))
        self.assertIn('it is about migration', str(self.refused(
            report={'uuid': OTHER})))

    def malformed(self, text):
        return self.assertRaises(
            errors.EngineRefused, self.api.put_report, objects.DedupReport(
                host='compute1', migration_uuid=samples.MIGRATION,
                revision=1, report=text))

    def test_a_report_that_is_refused_is_not_sent_again(self):
        self.start()
        samples.write(self.store, samples.make(source='compute9'))
        self.outbox.send()
        self.assertEqual(0, self.outbox.waiting)

    def test_host(self):
        self.start()
        self.outbox.send_host()
        with self.database.read() as session:
            found = hosts.get(session, 'compute1')
        self.assertEqual(OTHER, found['facts']['guests'][0]['uuid'])
        self.assertEqual(500.0, found['facts']['options']['downtime_ms'])

    def test_largest_message(self):
        self.assertRaises(ValueError, objects.DedupReport, host='a',
                          migration_uuid=OTHER, revision=1,
                          report='x' * (objects.MAX_REPORT + 1))
