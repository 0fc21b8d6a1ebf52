# SPDX-License-Identifier: Apache-2.0
"""Drains from their request to their end, with an emulated Nova."""

import collections
import time

import sqlalchemy as sa

from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.db import models
from nova_dedup_migrate.tests.unit.engine import base


class DrainTest(base.EngineTestCase):

    def asked(self):
        """Return how often Nova was asked to migrate each server."""
        return collections.Counter(
            server for server, action in self.openstack.requests
            if action == 'live-migration')

    def let_migrate(self):
        """End the migrations that run, and those to come."""
        with self.openstack.lock:
            for one in self.openstack.servers.values():
                one.seconds = 0.1

    def put_facts(self, **samples):
        """Store what an agent reports of compute1."""
        with self.database.write() as session:
            hosts.put(session, 'compute1', {
                'patched': True, 'max_outbound': 2, 'link_rate': 1e8,
                'guests': [{'uuid': uuid, 'tracked': True, 'age': 1.0,
                            'memory': 1 << 29, 'in_use': 1 << 28,
                            **sample} for uuid, sample in samples.items()]})

    def test_all_move(self):
        servers = self.openstack.add('compute1', 3, seconds=0.1)
        self.start()
        self.drain()
        found = self.wait('drained')
        self.assertEqual(3, found['counts']['moved'])
        self.assertTrue(found['safe_to_power_off'], found['conditions'])
        self.assertEqual([], self.openstack.on('compute1'))
        self.assertEqual({one.id: 1 for one in servers}, self.asked())
        self.assertEqual(1, self.openstack.most_at_once)
        host = self.openstack.hosts['compute1']
        self.assertEqual('disabled', host['status'])
        self.assertIn(base.ID, host['disabled_reason'])
        for row in self.rows().values():
            self.assertEqual('moved', row['state'])
            self.assertIn(row['destination'], ('compute2', 'compute3'))
            self.assertTrue(row['migration_uuid'])
        events = self.call('GET', '/v1/drains/%s/events' % base.ID).json
        self.assertIn('safe to power off', events['events'][0]['message'])

    def test_migrations_know_their_drain(self):
        """Also those that were listed before the drain had found them."""
        server = self.openstack.add('compute1', seconds=1000)[0]
        self.start()
        self.drain()
        self.eventually(lambda: self.rows().get(server.id, {}).get(
            'migration_uuid'), 'its migration')
        uuid = self.rows()[server.id]['migration_uuid']
        path = '/v1/migrations/' + uuid
        self.eventually(lambda: self.call('GET', path).status_int == 200,
                        'the list of Nova')
        with self.database.write() as session:
            session.execute(sa.update(models.migrations).values(
                drain_id=None))
        self.let_migrate()
        self.wait('drained')
        self.assertEqual(base.ID, self.call(
            'GET', path).json['migration']['drain_id'])

    def test_dry_run(self):
        self.openstack.add('compute1', 2)
        self.openstack.add('compute1', status='SHUTOFF', power_state=4)
        self.start()
        self.drain(dry_run=True)
        found = self.wait('checked')
        self.assertEqual((2, 1), (found['counts']['queued'],
                                  found['counts']['blocked']))
        self.assertGreater(found['eta']['likely'], 0)
        self.assertEqual([], self.openstack.requests)
        self.assertEqual('enabled',
                         self.openstack.hosts['compute1']['status'])

    def test_every_reason_is_named(self):
        server = self.openstack.add(
            'compute1', status='ERROR', extra_specs={
                'pci_passthrough:alias': 'a:1', 'resources:VGPU': '1',
                'hw:mem_encryption': 'true'})[0]
        for number in range(1001):
            self.openstack.groups['g%d' % number] = {
                'policy': 'anti-affinity', 'members': [server.id, 'b']}
        self.openstack.groups['g'] = {
            'policy': 'affinity', 'members': [server.id, 'b']}
        self.openstack.room = False
        self.openstack.hosts['compute1']['state'] = 'down'
        self.start()
        self.drain(dry_run=True)
        self.wait('checked')
        self.assertEqual(
            ['source_down', 'error', 'device', 'device',
             'encrypted_memory', 'affinity', 'no_room'],
            [one['code'] for one in self.rows()[server.id]['blockers']])

    def test_hosts_that_are_disabled_have_no_room(self):
        """Nor has its own, whose name in Placement is another one."""
        server = self.openstack.add('compute1')[0]
        for name in ('compute2', 'compute3'):
            self.openstack.hosts[name]['status'] = 'disabled'
        self.start()
        self.drain(dry_run=True)
        self.wait('checked')
        self.assertEqual(
            ['no_room'],
            [one['code'] for one in self.rows()[server.id]['blockers']])

    def test_blocked_holds_no_slot_and_choices(self):
        cold, stays = self.openstack.add(
            'compute1', 2, extra_specs={'resources:VGPU': '1'})
        self.openstack.add('compute1', seconds=0.1)
        self.start()
        self.drain()
        found = self.wait('blocked')
        self.assertEqual((1, 2), (found['counts']['moved'],
                                  found['counts']['blocked']))
        self.assertIn('choose', found['reason'])
        path = '/v1/drains/%s/servers/' % base.ID
        self.call('PATCH', path + cold.id,
                  {'server': {'on_blocked': 'cold'}}, status=200)
        self.call('PATCH', path + stays.id,
                  {'server': {'on_blocked': 'stop'}}, status=200)
        found = self.wait('drained')
        rows = self.rows()
        self.assertEqual(('moved', 'stopped'), (
            rows[cold.id]['state'], rows[stays.id]['state']))
        self.assertTrue(found['safe_to_power_off'], found['conditions'])

    def test_choices_that_the_drain_is_created_with(self):
        cold, stays, waits = self.openstack.add(
            'compute1', 3, extra_specs={'resources:VGPU': '1'})
        moves, = self.openstack.add('compute1', seconds=0.1)
        self.start()
        self.drain(servers=[
            {'server_id': cold.id, 'on_blocked': 'cold'},
            {'server_id': stays.id, 'on_blocked': 'stop'},
            # It can move, so nothing has to be done instead.
            {'server_id': moves.id, 'on_blocked': 'skip'}])
        self.wait('blocked')
        rows = self.rows()
        self.assertEqual(['moved', 'stopped', 'blocked', 'moved'], [
            rows[one.id]['state'] for one in (cold, stays, waits, moves)])
        self.assertEqual('live-migration', rows[moves.id]['action'])

    def test_skipped_servers_make_it_partial(self):
        server = self.openstack.add('compute1', status='ERROR')[0]
        self.start()
        self.drain(on_blocked='skip')
        found = self.wait('partial')
        self.assertFalse(found['safe_to_power_off'])
        self.assertIn(server.id, found['reason'])

    def test_tries_again_then_gives_up(self):
        some, never = (self.openstack.add('compute1', seconds=0.1,
                                          fails=fails)[0]
                       for fails in (2, 99))
        self.start()
        self.drain()
        self.wait('partial')
        rows = self.rows()
        self.assertEqual(('moved', 'failed'), (rows[some.id]['state'],
                                               rows[never.id]['state']))
        self.assertEqual({some.id: 3, never.id: 3}, self.asked())
        never.fails = 0
        self.act({'retry': None})
        self.wait('drained')

    def test_pause_and_resume(self):
        self.openstack.add('compute1', 3, seconds=1000)
        self.start()
        self.drain()
        self.eventually(lambda: self.asked(), 'the first request')
        self.act({'pause': None})
        self.wait('paused')
        self.let_migrate()
        self.eventually(lambda: self.show()['counts']['moved'] == 1,
                        'what runs ends')
        self.assertEqual(1, len(self.asked()))
        self.act({'resume': None})
        self.wait('drained')

    def test_cancel_and_abort(self):
        self.openstack.add('compute1', 3, seconds=1000)
        self.start()
        self.drain()
        self.eventually(lambda: self.asked(), 'the first request')
        self.act({'cancel': {'in_flight': 'abort'}})
        found = self.wait('cancelled')
        self.assertEqual(3, found['counts']['cancelled'])
        self.assertEqual(1, len(self.asked()))
        self.assertEqual('enabled',
                         self.openstack.hosts['compute1']['status'])
        self.assertEqual(3, len(self.openstack.on('compute1')))

    def test_abort_waits_until_nova_takes_it(self):
        """Nova refuses it while it still looks for a destination."""
        self.openstack.first_status = 'accepted'
        self.openstack.add('compute1', seconds=1000)
        self.start()
        self.drain()
        self.eventually(lambda: self.asked(), 'the request')
        self.act({'cancel': {'in_flight': 'abort'}})
        self.wait('cancelling')
        time.sleep(0.5)
        with self.openstack.lock:
            self.openstack.migrations[0].status = 'queued'
        found = self.wait('cancelled')
        self.assertEqual(1, found['counts']['cancelled'])

    def test_cancel_waits_for_what_runs(self):
        self.openstack.add('compute1', 3, seconds=1000)
        self.start()
        self.drain()
        self.eventually(lambda: self.asked(), 'the first request')
        self.act({'cancel': {'in_flight': 'wait'}})
        self.wait('cancelling')
        self.let_migrate()
        found = self.wait('cancelled')
        self.assertEqual((1, 2), (found['counts']['moved'],
                                  found['counts']['cancelled']))

    def test_a_service_that_others_have_disabled_stays_so(self):
        self.openstack.hosts['compute1'].update(
            status='disabled', disabled_reason='new memory')
        self.openstack.add('compute1', seconds=1000)
        self.start()
        self.drain()
        self.eventually(lambda: self.asked(), 'the first request')
        self.act({'cancel': {'in_flight': 'abort'}})
        self.wait('cancelled')
        host = self.openstack.hosts['compute1']
        self.assertEqual(('disabled', 'new memory'),
                         (host['status'], host['disabled_reason']))

    def test_late_arrivals_and_those_that_are_gone(self):
        first, second = self.openstack.add('compute1', 2, seconds=1000)
        self.start()
        self.drain()
        self.eventually(lambda: self.asked(), 'the first request')
        late = self.openstack.add('compute1', seconds=0.1)[0]
        waits = second if first.id in self.asked() else first
        with self.openstack.lock:
            del self.openstack.servers[waits.id]
        self.let_migrate()
        found = self.wait('drained')
        rows = self.rows()
        self.assertEqual(('moved', 'gone'), (rows[late.id]['state'],
                                             rows[waits.id]['state']))
        self.assertEqual(2, found['counts']['moved'])

    def test_slots_and_order(self):
        servers = self.openstack.add('compute1', 4, seconds=1000)
        sets = dict(zip([one.id for one in servers],
                        (4e6, 1e6, 3e6, 2e6), strict=True))
        self.put_facts(**{one: {'dirty_rate': rate, 'in_use': 64 * rate}
                          for one, rate in sets.items()})
        self.openstack.slots = 10
        self.start()
        self.drain(order='working_set', max_parallel=8)
        rows = self.eventually(
            lambda: len(self.call('GET', '/v1/drains/%s/servers' % base.ID)
                        .json['servers']) == 4 and self.rows(), 'rows')
        self.assertEqual(
            sorted(sets, key=sets.get),
            sorted(rows, key=lambda one: rows[one]['position']))
        self.eventually(lambda: self.openstack.most_at_once == 2,
                        'two at a time')
        self.let_migrate()
        self.wait('verifying')
        self.put_facts()
        self.wait('drained')
        # Nova there has two slots.
        self.assertEqual(2, self.openstack.most_at_once)

    def test_a_guest_that_writes_fast_runs_alone(self):
        servers = self.openstack.add('compute1', 3, seconds=0.5)
        fast = servers[1].id
        self.put_facts(**{one.id: {
            'dirty_rate': 9e7 if one.id == fast else 1e5}
            for one in servers})
        self.openstack.slots = 10
        at_once = []

        def note(server, action):
            at_once.append((server == fast, sum(
                one.status == 'running'
                for one in self.openstack.migrations)))

        self.openstack.on_action = note
        self.start()
        self.drain(max_parallel=2)
        self.wait('verifying')
        self.put_facts()
        self.wait('drained')
        self.assertEqual((True, 0), at_once[-1])

    def test_the_time_left_is_that_of_reports(self):
        server = self.openstack.add('compute1', seconds=1000)[0]
        self.start()
        self.drain()
        self.eventually(lambda: self.rows().get(server.id, {}).get(
            'migration_uuid'), 'its migration')
        first = self.show()['eta']['likely']
        self.eventually(lambda: self.show()['eta']['likely'] < first,
                        'less is left')
        uuid = self.rows()[server.id]['migration_uuid']
        self.eventually(lambda: self.call(
            'GET', '/v1/migrations/' + uuid).status_int == 200, 'it is known')
        with self.database.write() as session:
            row = migrations.get(session, uuid)
            session.execute(sa.update(models.migrations).values(
                revision=1, summary={**row['summary'], 'eta': {
                    'low': None, 'likely': 777.0, 'high': 999.0}}))
        self.eventually(lambda: self.show()['eta'] == {
            'low': 777.0, 'likely': 777.0, 'high': 999.0}, 'the report')

    def test_deadline(self):
        self.openstack.add('compute1', 3, seconds=2.0)
        self.start()
        self.drain(deadline='2026-01-01T00:00:00Z')
        found = self.wait('partial')
        self.assertEqual(3, found['counts']['skipped'])
        self.assertIn('deadline', found['reason'])
        self.assertEqual({}, self.asked())

    def test_unknown_host(self):
        self.start()
        self.drain(host='nowhere')
        self.assertIn('nowhere', self.wait('failed')['reason'])

    def test_answer_that_is_lost(self):
        """Nova has got the request, and nobody can tell."""
        server = self.openstack.add('compute1', seconds=0.5)[0]
        self.openstack.lose_answers = True
        self.start()
        self.drain()
        self.wait('drained')
        self.assertEqual({server.id: 1}, self.asked())

    def test_safe_is_observed_again(self):
        self.start()
        self.drain()
        self.assertTrue(self.wait('drained')['safe_to_power_off'])
        self.openstack.add('compute1')
        self.eventually(lambda: not self.show()['safe_to_power_off'],
                        'it is not safe any more')

    def test_a_paused_server_is_not_safe(self):
        self.start()
        self.drain()
        self.assertTrue(self.wait('drained')['safe_to_power_off'])
        self.openstack.add('compute1', status='PAUSED', power_state=3)
        self.eventually(lambda: not self.show()['safe_to_power_off'],
                        'it is not safe any more')

    def test_an_old_report_of_the_agent_says_nothing(self):
        server = self.openstack.add('compute1', seconds=0.1)[0]
        self.put_facts(**{server.id: {'dirty_rate': 1.0}})
        self.start()
        self.drain()
        self.eventually(
            lambda: 'agent' in self.show()['reason'], 'the agent counts')
        self.assertEqual('verifying', self.show()['state'])
        self.put_facts()
        found = self.wait('drained')
        self.assertTrue(found['safe_to_power_off'], found['conditions'])

    def test_agent_sees_a_guest(self):
        """Nova has no server there, but a guest runs: not safe."""
        self.put_facts(**{base.ID: {'dirty_rate': 1.0}})
        self.start()
        self.drain()
        found = self.wait('drained')
        self.assertFalse(found['safe_to_power_off'])
        self.assertEqual(['NoGuestsSeen'],
                         [one['type'] for one in found['conditions']
                          if not one['status']])


class EstimateTest(base.EngineTestCase):

    def make(self, token=None, **fields):
        made = self.call('POST', '/v1/estimates', {'estimate': fields},
                         token=token or base.controller.ADMIN,
                         status=202).json['estimate']
        path = '/v1/estimates/' + made['id']

        def done():
            found = self.call('GET', path).json['estimate']
            return found['state'] in ('done', 'failed') and found

        return self.eventually(done, 'the estimate')

    def test_host(self):
        self.openstack.add('compute1', 3, ram=2048)
        self.start()
        found = self.make(host='compute1')
        self.assertEqual('done', found['state'], found['error'])
        self.assertEqual(3, len(found['servers']))
        one = found['servers'][0]
        self.assertEqual(('low', []), (one['confidence'],
                                       one['blockers']))
        self.assertGreater(found['total_time']['likely'],
                           one['plan']['time']['likely'])

    def test_projects(self):
        server = self.openstack.add('compute1', project_id='blue',
                                    status='ERROR')[0]
        self.openstack.hosts['compute1']['state'] = 'down'
        self.start()
        found = self.make(base.controller.MANAGER, server_id=server.id)
        self.assertEqual('done', found['state'])
        self.assertNotIn('compute1', str(found))
        found = self.make(base.controller.STRANGER, server_id=server.id)
        self.assertEqual('failed', found['state'])
        self.assertIn('there is no server', found['error'])

    def test_unknown_host(self):
        self.start()
        self.assertEqual('failed', self.make(host='nowhere')['state'])
