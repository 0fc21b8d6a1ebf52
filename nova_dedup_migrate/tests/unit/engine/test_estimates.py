# SPDX-License-Identifier: Apache-2.0
"""Estimates of figures that agents of a cloud have sent."""

import nova.conf
from nova.virt.libvirt import migration as nova_migration
import sqlalchemy as sa

from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.db import models
from nova_dedup_migrate.engine import cloud
from nova_dedup_migrate.engine import estimates
from nova_dedup_migrate.engine import overheads
from nova_dedup_migrate.engine import summary
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests import controller

UUID = 'abd7e118-7754-458b-b46a-1ff65719f534'
OPTIONS = {'strategy': 'auto', 'downtime_ms': 500.0, 'downtime_steps': 10,
           'downtime_delay': 75.0, 'adapt_downtime_limit': True,
           'max_extra_downtime_ms': 50.0, 'min_gain': 0.05,
           'timeout_per_gb': 800.0}
#: A third of what its memory holds came from its disk.
SAMPLE = {'uuid': UUID, 'memory': 268435456, 'tracked': True, 'age': 28.0,
          'dirty_rate': 209715.2, 'disk_write_rate': 0.0,
          'in_use': 185335808.0, 'in_use_error': 3879472.9,
          'hint_pages': 18470, 'map_pages': 0}


class EstimateTest(base.TestCase):

    def estimate(self, slots=1, dirty_rate=SAMPLE['dirty_rate'], **options):
        server = cloud.Server(UUID, 'a', 'blue', 'compute1', 'compute1',
                              'ACTIVE', None, True, 1 << 28, {}, {})
        return estimates.estimate(server, estimates.HostFacts(
            {'guests': [{**SAMPLE, 'dirty_rate': dirty_rate}],
             'options': {**OPTIONS, **options}}, 12.5e6, slots, True), ())

    def test_limits_of_downtime_are_those_of_nova(self):
        """With the highest one at once, storage would seem too slow."""
        found = self.estimate()
        self.assertEqual('shared_nas', found['strategy'],
                         found['explanation'])
        found = self.estimate(downtime_steps=None)
        self.assertEqual('stock', found['strategy'])

    def test_one_that_runs_alone_has_the_whole_link(self):
        found = [self.estimate(slots=2, dirty_rate=rate)
                 for rate in (4.3e6, 4.5e6)]
        self.assertEqual([False, True],
                         [one['runs_alone'] for one in found])
        self.assertLess(*(one['plan']['time']['likely']
                          for one in reversed(found)))

    def test_least_gain(self):
        self.assertEqual('stock', self.estimate(min_gain=0.9)['strategy'])

    def test_steps(self):
        conf = nova.conf.CONF
        for limit, steps, delay, size in (
                (500, 10, 75, 2.0), (400, 10, 30, 3.0), (333, 7, 11, 2.7)):
            for name, value in (('downtime', limit),
                                ('downtime_steps', steps),
                                ('downtime_delay', delay)):
                name = 'live_migration_' + name
                conf.set_override(name, value, 'libvirt')
                self.addCleanup(conf.clear_override, name, 'libvirt')
            self.assertEqual(
                list(nova_migration.downtime_steps(size)),
                list(estimates._downtime_steps(limit, steps, delay, size)))

    def test_an_older_agent(self):
        """It has sent fewer options."""
        found = self.estimate(downtime_steps=None, downtime_delay=None)
        self.assertEqual('medium', found['confidence'])


class TotalTest(base.TestCase):

    def total(self, *found, slots=1):
        return estimates.total(
            [{'runs_alone': False, 'plan': {'time': {
                'low': 1.0, 'likely': 2.0, 'high': 3.0}}, **one}
             for one in found], slots, plan.Band(0.0, 10.0, 20.0))

    def test_nova_takes_time_for_each(self):
        self.assertEqual({'low': 2.0, 'likely': 24.0, 'high': 46.0},
                         self.total({}, {}))
        # At best they do not meet on the link.
        self.assertEqual({'low': 0.5, 'likely': 12.0, 'high': 23.0},
                         self.total({}, {}, slots=2))
        self.assertEqual({'low': 1.5, 'likely': 24.0, 'high': 46.0},
                         self.total({}, {'runs_alone': True}, slots=2))

    def test_one_that_has_begun(self):
        self.assertEqual({'low': 2.0, 'likely': 14.0, 'high': 26.0},
                         self.total({'begun': True}, {}))


class OverheadTest(controller.ControllerTestCase):

    def band(self):
        with self.database.read() as session:
            return overheads.band(session)

    def add(self, number, took, **values):
        uuid = '7f0f5d0e-2c5c-4d9c-8d5e-%012d' % number
        known = summary.of_nova('completed')
        with self.database.write() as session:
            migrations.put(session, {
                'uuid': uuid, 'server_id': UUID, 'source': 'a',
                'destination': 'b', 'state': 'completed', 'phase': '',
                'strategy': 'stock', 'started_at': 1.0, 'finished_at': 2.0,
                'revision': 1, 'summary': {**known, 'total_time': took}},
                b'{}')
            session.execute(sa.insert(models.drain_servers).values(**{
                'drain_id': uuid, 'server_id': UUID, 'name': '',
                'state': 'moved', 'reason': '', 'blockers': [],
                'on_blocked': 'wait', 'position': 0,
                'action': 'live-migration', 'tries': 1, 'destination': '',
                'migration_uuid': uuid, 'submitted_at': 100.0,
                'finished_at': 130.0, 'updated_at': 1.0, **values}))

    def test_it_is_learned(self):
        self.assertEqual(overheads.USUAL, self.band())
        for number, took in enumerate((20.0, 26.0, 28.0, None)):
            self.add(number, took)
        self.add(9, 1.0, state='failed')
        self.assertEqual(plan.Band(2.0, 4.0, 10.0), self.band())
        for number in range(20):
            self.add(100 + number, 29.0)
        self.assertEqual(plan.Band(1.0, 1.0, 1.0), self.band())


class RestTest(base.TestCase):

    ESTIMATE = {'plan': {'time': {'low': 5.0, 'likely': 10.0,
                                  'high': None}, 'bytes': 1}}

    def rest(self, *arguments):
        return estimates.rest(self.ESTIMATE, *arguments,
                              plan.Band(0.0, 1.0, 2.0))['plan']['time']

    def test_without_a_report(self):
        self.assertEqual({'low': 0.0, 'likely': 4.0, 'high': None},
                         self.rest(None, 7.0))
        self.assertEqual({'plan': None}, estimates.rest(
            {'plan': None}, None, 7.0, plan.Band(0.0, 1.0, 2.0)))

    def test_with_one(self):
        self.assertEqual(
            {'low': 2.0, 'likely': 2.0, 'high': 9.0},
            self.rest({'low': None, 'likely': 2.0, 'high': 9.0}, 7.0))
