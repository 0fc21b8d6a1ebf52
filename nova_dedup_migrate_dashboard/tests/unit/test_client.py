# SPDX-License-Identifier: Apache-2.0
"""The client with the real API, over HTTP."""

import socket
import threading
import uuid

from openstack import exceptions

from nova_dedup_migrate.cmd import serve
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.engine import records
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate_dashboard import client

ID = '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11'


class ClientTest(controller.ApiTestCase):
    def setUp(self):
        super().setUp()
        self.server = serve.make_server('127.0.0.1', 0, self.application)
        thread = threading.Thread(target=self.server.serve_forever,
                                  args=(0.05,))
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.server.server_close)
        self.addCleanup(self.server.shutdown)
        self.url = 'http://127.0.0.1:%d' % self.server.server_port

    def proxy(self, token=controller.ADMIN, suffix=''):
        return client.proxy(self.url + suffix, token)

    def test_endpoint_with_and_without_version(self):
        for suffix in ('', '/', '/v1', '/v1/'):
            made = self.proxy(suffix=suffix)
            self.assertEqual(([], False), client.first(made.drains), suffix)

    def test_rows_are_as_the_api_has_them(self):
        proxy = self.proxy()
        proxy.create_drain(id=ID, host='compute1')
        row, = client.first(proxy.drains)[0]
        shown = self.call('GET', '/v1/drains/' + ID).json['drain']
        self.assertEqual(shown, {name: row[name] for name in shown})
        self.assertEqual(shown, {
            name: value for name, value
            in client.plain(proxy.get_drain(ID)).items() if name in shown})

    def test_lists_end_and_tell_of_more(self):
        with self.database.write() as session:
            for number in range(4):
                hosts.put(session, 'compute%d' % number, {'guests': []})
        proxy = self.proxy()
        for number, more in ((3, True), (4, False), (5, False)):
            rows, found = client.first(proxy.hosts, number=number)
            self.assertEqual((min(4, number), more), (len(rows), found))
        self.assertEqual('compute0', rows[0]['name'])
        self.assertEqual([], [client.plain(one)
                              for one in proxy.services()])

    def test_lists_of_several_pages(self):
        proxy = self.proxy()
        proxy.create_drain(id=ID, host='compute1')
        with self.database.write() as session:
            writer = records.Writer(session, ID)
            for number in range(250):
                writer.event('event %d' % number)
                writer.add_server(
                    server_id=str(uuid.UUID(int=number)), name='x',
                    project_id='p', position=number, on_blocked='wait',
                    prediction=None, blockers=[], state='queued', reason='')
        for function in (proxy.drain_servers, proxy.drain_events):
            for wanted in (30, 99, 150, 1000):
                rows, more = client.first(function, ID, number=wanted)
                self.assertEqual((min(250, wanted), wanted < 250),
                                 (len(rows), more))

    def test_a_refusal_has_the_sentence_of_the_controller(self):
        proxy = self.proxy(controller.READER)
        error = self.assertRaises(client.Refused,
                                  client.answers(client.first),
                                  proxy.drains)
        self.assertEqual(403, error.status)
        self.assertIn('dedup_migrate:drains:list', str(error))
        self.assertNotIn('http', str(error))
        proxy = self.proxy()
        proxy.create_drain(id=ID, host='compute1')
        error = self.assertRaises(client.Refused,
                                  client.answers(proxy.create_drain),
                                  host='compute1')
        self.assertEqual(409, error.status)
        self.assertIn(ID, str(error))
        error = self.assertRaises(client.Refused,
                                  client.answers(proxy.get_drain),
                                  ID.replace('6', '7'))
        self.assertEqual(404, error.status)
        error = self.assertRaises(client.Refused, client.answers(
            client.first), self.proxy('none').drains)
        self.assertEqual(401, error.status)

    def test_a_refusal_without_a_sentence(self):
        def refuse():
            raise exceptions.HttpException('no', http_status=418)

        error = self.assertRaises(client.Refused, client.answers(refuse))
        self.assertEqual((418, 'no'), (error.status, str(error)))

    def test_an_error_of_the_server_is_an_absence(self):
        def fail():
            raise exceptions.HttpException('no', http_status=500)

        self.assertRaises(client.Unavailable, client.answers(fail))

    def test_nobody_listens(self):
        with socket.socket() as one:
            one.bind(('127.0.0.1', 0))
            url = 'http://127.0.0.1:%d' % one.getsockname()[1]
            self.assertRaises(client.Unavailable, client.answers(
                client.first), client.proxy(url, 't').drains)
