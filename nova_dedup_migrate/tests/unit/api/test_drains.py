# SPDX-License-Identifier: Apache-2.0
"""Drains, estimates and hosts as operators change them."""

import sqlalchemy as sa

from nova_dedup_migrate.db import drains
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import models
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate.tests.unit.reports import samples

ID = '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11'
OTHER = 'c0a9f1f7-1d33-4d2a-9a3e-1f0b7f1e6d10'
PATH = '/v1/drains/' + ID


class DrainsTest(controller.ApiTestCase):

    def create(self, status=202, **fields):
        return self.call('POST', '/v1/drains', {'drain': {
            'host': 'compute1', 'id': ID, **fields}}, status=status)

    def end(self, state=drains.PARTIAL):
        """Do what an engine does at the end."""
        with self.database.write() as session:
            session.execute(sa.update(models.drains).values(
                state=state, active_host=None, wish=drains.RUN))

    def add_server(self, state=drains.QUEUED):
        with self.database.write() as session:
            session.execute(sa.insert(models.drain_servers).values(
                drain_id=ID, server_id=OTHER, name='<b>', state=state,
                reason='', blockers=[], on_blocked='wait', position=0,
                action='live-migration', tries=0, destination='',
                updated_at=1.0))

    def test_create(self):
        response = self.create(deadline='2026-11-22T20:00:00Z',
                               max_parallel=2)
        self.assertTrue(response.headers['Location'].endswith(PATH))
        found = self.call('GET', PATH, status=200).json['drain']
        self.assertEqual(response.json['drain'], found)
        self.assertEqual('pending', found['state'])
        self.assertEqual('root', found['user_id'])
        self.assertTrue(found['deadline'].startswith('2026-11-22T20:00:00'))
        self.assertEqual([found], self.call(
            'GET', '/v1/drains?host=compute1').json['drains'])
        self.assertEqual([], self.call(
            'GET', '/v1/drains?state=failed').json['drains'])

    def test_create_again(self):
        self.create()
        self.create(status=200)
        self.create(status=409, order='shortest')

    def test_create_with_choices(self):
        choices = [{'server_id': OTHER, 'on_blocked': 'cold'}]
        self.create(servers=choices)
        self.create(status=200, servers=choices)
        self.create(status=409)
        self.create(status=409, servers=[
            {'server_id': OTHER, 'on_blocked': 'stop'}])
        for wrong in (choices * 2, choices * 501, [{'server_id': OTHER}],
                      [{'server_id': 'x', 'on_blocked': 'cold'}],
                      [{'server_id': OTHER, 'on_blocked': 'x'}]):
            self.create(status=400, servers=wrong)

    def test_one_for_each_host(self):
        self.create()
        self.create(status=409, id=OTHER)
        self.create(id=OTHER, host='compute2')
        self.end()
        self.create(id='0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f')

    def test_update(self):
        tag = self.create().headers['ETag']
        changed = self.call('PATCH', PATH, {'drain': {'max_parallel': 3}},
                            headers={'If-Match': tag}, status=200)
        self.assertEqual(3, changed.json['drain']['max_parallel'])
        self.call('PATCH', PATH, {'drain': {'max_parallel': 4}},
                  headers={'If-Match': tag}, status=412)
        self.call('PATCH', PATH, {'drain': {'max_parallel': None}},
                  headers={'If-Match': changed.headers['ETag']}, status=200)
        for body in ({}, {'max_parallel': 0}, {'host': 'b'},
                     {'deadline': 'x'}, {'link_rate': 0}):
            self.call('PATCH', PATH, {'drain': body}, status=400)
        self.call('PATCH', PATH, {'drain': {'link_rate': 1e6}},
                  headers={'If-Match': 'x'}, status=400)

    def test_actions(self):
        self.create()
        for body, wish in (({'pause': None}, 'pause'),
                           ({'resume': None}, 'run'),
                           ({'cancel': {'in_flight': 'abort'}}, 'cancel')):
            found = self.call('POST', PATH + '/action', body,
                              status=202).json['drain']
            self.assertEqual(wish, found['requested'])
        self.assertEqual('abort', found['cancel'])
        self.call('POST', PATH + '/action', {'resume': None}, status=409)
        self.call('POST', PATH + '/action',
                  {'pause': None, 'resume': None}, status=400)
        self.call('POST', PATH + '/action', {'cancel': {}}, status=400)

    def test_retry(self):
        self.create()
        self.end()
        self.call('POST', PATH + '/action', {'pause': None}, status=409)
        self.create(id=OTHER)
        self.call('POST', PATH + '/action', {'retry': None}, status=409)
        self.end()
        self.call('POST', PATH + '/action', {'retry': None}, status=202)
        self.create(status=409, id='0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f')

    def test_retry_of_a_dry_run(self):
        self.create(dry_run=True)
        self.end(drains.CHECKED)
        self.call('POST', PATH + '/action', {'retry': None}, status=409)

    def test_delete(self):
        self.create()
        self.call('DELETE', PATH, status=409)
        self.end()
        self.call('DELETE', PATH, status=204)
        self.call('GET', PATH, status=404)

    def test_servers(self):
        self.create()
        self.add_server()
        path = PATH + '/servers/' + OTHER
        self.assertEqual(1, self.call('GET', PATH).json['drain'][
            'counts']['queued'])
        self.assertEqual('<b>', self.call(
            'GET', PATH + '/servers', status=200).json[
                'servers'][0]['server_name'])
        self.call('PATCH', path, {'server': {'position': 7,
                                             'on_blocked': 'cold'}},
                  status=200)
        self.call('PATCH', path, {'server': {'skip': True, 'position': 1}},
                  status=400)
        found = self.call('PATCH', path, {'server': {'skip': True}},
                          status=200).json['server']
        self.assertEqual(('skipped', 'cold'),
                         (found['state'], found['on_blocked']))
        self.call('PATCH', path, {'server': {'skip': True}}, status=409)
        self.call('GET', PATH + '/servers/' + ID, status=404)
        self.call('GET', PATH + '/events', status=200)

    def test_what_moves_is_not_skipped(self):
        self.create()
        self.add_server(drains.MIGRATING)
        self.call('PATCH', PATH + '/servers/' + OTHER,
                  {'server': {'skip': True}}, status=409)


class EstimatesTest(controller.ApiTestCase):
    options = {'api_max_waiting_estimates': 2}

    def create(self, token, status=202, **fields):
        return self.call('POST', '/v1/estimates', {'estimate': fields},
                         token=token, status=status)

    def test_projects_see_their_own(self):
        made = self.create(controller.MANAGER, server_id=ID).json[
            'estimate']
        self.assertEqual('pending', made['state'])
        path = '/v1/estimates/' + made['id']
        self.call('GET', path, token=controller.MANAGER, status=200)
        self.call('GET', path, status=200)
        self.call('GET', path, token=controller.STRANGER, status=404)
        self.call('GET', path, token=controller.READER, status=403)
        self.assertEqual([], self.call(
            'GET', '/v1/estimates', token=controller.STRANGER
        ).json['estimates'])

    def test_hosts_are_for_admins(self):
        self.create(controller.MANAGER, status=403, host='compute1')
        self.create(controller.ADMIN, host='compute1')

    def test_too_many(self):
        for status in (202, 202, 409):
            self.create(controller.MANAGER, status=status, server_id=ID)
        self.create(controller.STRANGER, server_id=ID)

    def test_malformed(self):
        for fields in ({}, {'server_id': 'x'},
                       {'server_id': ID, 'host': 'compute1'}):
            self.create(controller.ADMIN, status=400, **fields)


class HostsTest(controller.ApiTestCase):

    def setUp(self):
        super().setUp()
        with self.database.write() as session:
            hosts.put(session, 'compute1', {
                'release': '1.0', 'patched': True, 'qemu_version': '10.0',
                'reason': '', 'max_outbound': 4,
                'guests': [{'tracked': True}, {'tracked': False}]})

    def test_show(self):
        found = self.call('GET', '/v1/hosts/compute1', status=200).json[
            'host']
        self.assertEqual('up', found['agent'])
        self.assertEqual((2, 1), (found['guests'],
                                  found['tracked_guests']))
        self.assertEqual({'nova': 4, 'limit': None, 'effective': 1,
                          'in_use': 0}, found['slots'])
        self.assertEqual([found], self.call(
            'GET', '/v1/hosts').json['hosts'])
        self.call('GET', '/v1/hosts/other', status=404)
        self.call('GET', '/v1/hosts/a%20b', status=400)

    def test_agent_down(self):
        with self.database.write() as session:
            session.execute(sa.update(models.hosts).values(seen_at=1.0))
        self.assertEqual('down', self.call(
            'GET', '/v1/hosts/compute1').json['host']['agent'])

    def test_limits(self):
        for wanted, effective in ((3, 3), (9, 4), (None, 1)):
            found = self.call('PATCH', '/v1/hosts/compute1',
                              {'host': {'max_outbound': wanted}},
                              status=200).json['host']
            self.assertEqual(effective, found['slots']['effective'])

    def test_states_of_replicas_are_those_of_agents(self):
        self.assertEqual(disk_objects.STATES, hosts.REPLICA_STATES)

    def test_replicas_are_those_of_agents(self):
        self.assertEqual([], self.call('GET', '/v1/replicas',
                                       status=200).json['replicas'])
        with self.database.write() as session:
            hosts.put(session, 'compute2', {'replicas': [
                samples.REPLICA, {**samples.REPLICA, 'refreshed': 0.0,
                                  'total': 0, 'target': 'vdb'}]})
        found = self.call('GET', '/v1/replicas').json['replicas']
        self.assertEqual({
            'server_id': samples.INSTANCE, 'host': 'compute2',
            'source': 'compute1', 'disk': 'vda', 'state': 'done',
            'reason': '', 'total_bytes': 1 << 30,
            'allocated_bytes': 1 << 20, 'share': 0.5,
            'refreshed_at': '2001-09-09T01:46:40.000+00:00',
            'expires_at': '2001-09-10T01:46:40.000+00:00'}, found[0])
        self.assertEqual((None, None), (found[1]['share'],
                                        found[1]['refreshed_at']))
        for query, count in (('host=compute1', 0), ('host=compute2', 2),
                             ('server=' + samples.INSTANCE, 2),
                             ('server=' + samples.MIGRATION, 0)):
            self.assertEqual(count, len(self.call(
                'GET', '/v1/replicas?' + query, status=200
                ).json['replicas']), query)
        self.call('GET', '/v1/replicas?host=other', status=404)
        self.call('GET', '/v1/replicas?server=x', status=400)

    def test_services(self):
        with self.database.write() as session:
            hosts.beat(session, {'id': ID, 'binary': 'engine',
                                 'host': 'control', 'release': '1'})
        found = self.call('GET', '/v1/services', status=200).json
        self.assertEqual('up', found['services'][0]['state'])
