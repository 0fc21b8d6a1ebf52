# SPDX-License-Identifier: Apache-2.0
"""The list of public images: from Glance, by an engine, to the agents."""

import json
import threading
import time
from unittest import mock
import uuid

import fixtures
from oslo_config import cfg
from oslo_config import fixture as config_fixture
import oslo_messaging as messaging
from oslo_messaging import conffixture
import sqlalchemy as sa
import webob

from nova_dedup_migrate.db import models
from nova_dedup_migrate.engine import cloud
from nova_dedup_migrate.engine import errors
from nova_dedup_migrate.engine import public_images
from nova_dedup_migrate.engine import service
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import transport
from nova_dedup_migrate.tests import base as tests_base
from nova_dedup_migrate.tests import controller
from nova_dedup_migrate.tests.unit.engine import base
from testkit import openstack

HOSTS = ['compute%d' % number for number in range(1, 5)]
PAGE = 3


def ids(number):
    return [str(uuid.uuid4()) for _ in range(number)]


class Images(openstack.OpenStack):
    """With Glance; an administrator sees the images of all projects.

    :ivar images: as Glance shows them
    :ivar pages: the queries of the pages that were requested
    :ivar lost: number of the page for which there is no answer
    """

    def __init__(self):
        super().__init__()
        self.images = []
        self.pages = []
        self.lost = None

    def start(self):
        super().start()
        self.catalog['image'] = self.url + '/image'

    def add(self, number=1, visibility='public', **fields):
        made = [{'id': image, 'visibility': visibility, 'status': 'active',
                 'os_hidden': False, **fields} for image in ids(number)]
        self.images += made
        return [image['id'] for image in made]

    def routes(self):
        return [('/image', self._versions), ('/image/v2/images', self._list),
                *super().routes()]

    def _versions(self, request):
        return _json({'versions': [{
            'id': 'v2.16', 'status': 'CURRENT', 'links': [
                {'rel': 'self', 'href': self.url + '/image/v2/'}]}]}, 300)

    def _list(self, request):
        query = dict(request.GET)
        self.pages.append(query)
        if self.lost == len(self.pages):
            return _json({}, 500)
        hidden = query.get('os_hidden', 'False') == 'True'
        found = [image for image in self.images
                 if image['os_hidden'] == hidden
                 and query['visibility'] == image['visibility']
                 and query['status'] == image['status']]
        begin = 0
        if 'marker' in query:
            begin = 1 + [image['id'] for image in found].index(
                query['marker'])
        page = found[begin:begin + PAGE]
        answer = {'images': page, 'schema': '/v2/schemas/images'}
        if len(found) > begin + PAGE:
            answer['next'] = ('/v2/images?marker=%s&visibility=public&'
                              'status=active&os_hidden=%s&limit=%s'
                              % (page[-1]['id'], hidden, query['limit']))
        return _json(answer)


def _json(value, status=200):
    return webob.Response(status=status, content_type='application/json',
                          charset=None, body=json.dumps(value).encode())


class ListTest(controller.ControllerTestCase):
    """What the engine reads of Glance."""

    def setUp(self):
        super().setUp()
        self.openstack = Images()
        self.openstack.start()
        self.addCleanup(self.openstack.stop)
        base.log_in(self.conf, self.openstack.url)
        self.cloud = cloud.Cloud.from_conf(self.conf)

    def test_all_pages(self):
        public = self.openstack.add(7)
        hidden = self.openstack.add(4, os_hidden=True)
        for visibility in ('private', 'shared', 'community'):
            self.openstack.add(2, visibility)
        self.openstack.add(2, status='deactivated')
        self.assertEqual(public + hidden, self.cloud.public_images(4097))
        self.assertEqual('created_at:desc', self.openstack.pages[0]['sort'])

    def test_none(self):
        self.assertEqual([], self.cloud.public_images(10))

    def test_capped(self):
        public = self.openstack.add(20)
        self.assertEqual(public[:5], self.cloud.public_images(5))
        self.assertEqual(2, len(self.openstack.pages))

    def test_a_page_is_lost(self):
        self.openstack.add(7)
        self.openstack.add(7, os_hidden=True)
        for lost in range(1, 7):
            self.openstack.lost = lost
            self.openstack.pages.clear()
            error = self.assertRaises(errors.CloudUnavailable,
                                      self.cloud.public_images, 4097)
            self.assertIn('list the public images', str(error))

    def test_no_glance(self):
        del self.openstack.catalog['image']
        self.assertRaises(errors.CloudUnavailable, self.cloud.public_images,
                          10)


class SendTest(tests_base.TestCase):
    def setUp(self):
        super().setUp()
        self.cloud = mock.create_autospec(cloud.Cloud, instance=True)
        self.agents = mock.create_autospec(api.AgentAPI, instance=True)
        self.stopping = mock.Mock(return_value=False)
        self.images = public_images.PublicImages(
            self.cloud, self.agents, lambda: list(HOSTS), 60.0,
            self.stopping)
        self.logged = self.useFixture(fixtures.FakeLogger())

    def called(self):
        return sorted(call.args[1] for call in
                      self.agents.set_public_images.call_args_list)

    def test_every_host(self):
        listed = self.cloud.public_images.return_value = ids(3)
        self.images.send()
        self.assertEqual(HOSTS, self.called())
        for call in self.agents.set_public_images.call_args_list:
            self.assertEqual(listed, call.args[2])
        self.assertEqual('', self.logged.output)

    def test_nothing_is_public(self):
        self.cloud.public_images.return_value = []
        self.images.send()
        self.agents.set_public_images.assert_called_with({}, mock.ANY, [])

    def test_no_complete_list(self):
        self.cloud.public_images.side_effect = errors.CloudUnavailable(
            doing='list the public images', reason='no answer')
        self.assertRaises(errors.CloudUnavailable, self.images.send)
        self.assertEqual([], self.called())

    def test_too_many(self):
        listed = ids(disk_objects.MAX_PUBLIC + 1)
        self.cloud.public_images.return_value = list(listed)
        self.images.send()
        self.agents.set_public_images.assert_called_with({}, mock.ANY,
                                                         listed[:-1])
        self.assertIn('more than 4096', self.logged.output)

    def test_hosts_that_fail(self):
        def lost(ctxt, host, images):
            if host == HOSTS[1]:
                raise rpc_errors.AgentUnavailable(host, 'no answer')

        self.cloud.public_images.return_value = ids(1)
        self.agents.set_public_images.side_effect = lost
        self.images.send()
        self.assertEqual(HOSTS, self.called())
        self.assertIn('1 of 4 hosts', self.logged.output)
        self.assertIn('compute2 is not available: no answer',
                      self.logged.output)

    def test_engine_stops(self):
        self.cloud.public_images.return_value = ids(1)
        self.stopping.return_value = True
        self.images.send()
        self.assertEqual([], self.called())

    def test_list_becomes_old(self):
        """As if the process had been stopped for a while."""
        now = self.useFixture(fixtures.MockPatchObject(
            time, 'monotonic', autospec=True)).mock
        now.return_value = 10.0

        def slowly(most):
            now.return_value = 71.0
            return ids(1)

        self.cloud.public_images.side_effect = slowly
        self.images.send()
        self.assertEqual([], self.called())
        self.assertIn('4 of 4 hosts', self.logged.output)


class Agent:
    """Its one method that an engine calls."""

    target = messaging.Target(version='1.1')

    def __init__(self):
        self.lists = []

    @messaging.expose
    def set_public_images(self, ctxt, request):
        self.lists.append(request.images)
        return True


class EngineTest(controller.ControllerTestCase):
    """Two engines, three agents of which one is down."""

    options = {**base.OPTIONS, 'engine_public_images_interval': 0.2}

    def setUp(self):
        super().setUp()
        conf = self.useFixture(config_fixture.Config(cfg.ConfigOpts())).conf
        self.useFixture(conffixture.ConfFixture(conf, 'fake://'))
        self.bus = transport.get_transport(conf)
        self.addCleanup(self.bus.cleanup)
        self.agents = {}
        for host in HOSTS[:3]:
            self.agents[host] = Agent()
            server = transport.get_server(self.bus, host,
                                          [self.agents[host]])
            server.start()
            self.addCleanup(server.wait)
            self.addCleanup(server.stop)
        with self.database.write() as session:
            session.execute(sa.insert(models.hosts), [
                {'name': host, 'revision': 1, 'facts': {}, 'seen_at': seen}
                for host, seen in zip(HOSTS[:3], (
                    time.time(), time.time(), time.time() - 3600),
                    strict=True)])
        self.cloud = mock.create_autospec(cloud.Cloud, instance=True)
        self.cloud.migrations.return_value = []
        self.listing = set()
        self.listed = ids(2)

        def list_(most):
            self.listing.add(threading.current_thread())
            return list(self.listed)

        self.cloud.public_images.side_effect = list_

    def start(self, **options):
        for name, value in options.items():
            self.conf.set_override(name, value, 'engine')
        engine = service.Engine(self.conf, self.database, self.cloud,
                                'control', '1', self.bus)
        engine.start()
        self.addCleanup(engine.stop)
        return engine

    def have(self, images):
        agents = [self.agents[host] for host in HOSTS[:2]]
        self.eventually(
            lambda: all(agent.lists[-1:] == [images] for agent in agents),
            'the list of both')

    def test_sent_and_withdrawn(self):
        engines = [self.start(), self.start()]
        self.have(self.listed)
        self.listed = self.listed[:1]
        self.have(self.listed)
        # An agent that is down is not called, and one engine lists.
        self.assertEqual([], self.agents[HOSTS[2]].lists)
        self.assertEqual(1, len(self.listing))
        held = [engine for engine in engines if 'images' in engine._held]
        self.assertEqual(1, len(held))
        # The other one goes on.
        held[0].stop()
        self.listed = ids(1)
        self.have(self.listed)

    def test_glance_is_away(self):
        self.start()
        self.have(self.listed)
        self.cloud.public_images.side_effect = errors.CloudUnavailable(
            doing='list the public images', reason='no answer')
        calls = self.cloud.public_images.call_count
        self.eventually(lambda: self.cloud.public_images.call_count
                        > calls + 2, 'more attempts')
        self.assertEqual(self.listed, self.agents[HOSTS[0]].lists[-1])

    def test_off(self):
        engine = self.start(public_images_interval=0.0)
        self.assertNotIn('images', [thread.name
                                    for thread in engine._threads])
