# SPDX-License-Identifier: Apache-2.0
"""Client and server over the fake:// transport."""

import threading
from unittest import mock

from oslo_config import cfg
from oslo_config import fixture as config_fixture
import oslo_messaging as messaging
from oslo_messaging import conffixture

from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import image_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.rpc import transport
from nova_dedup_migrate.tests import base

UUID = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
HOST = 'compute2'


class Endpoint:
    """An agent whose answers a test chooses."""

    target = messaging.Target(version='1.0')

    def __init__(self, answer):
        self._answer = answer
        self.contexts = []

    @messaging.expose
    def hello(self, ctxt):
        return self._answer(None)

    @messaging.expose
    def facts(self, ctxt, request):
        self.contexts.append(ctxt)
        return self._answer(request)

    @messaging.expose
    def link_probe(self, ctxt, request):
        return self._answer(request)

    @messaging.expose
    def incoming(self, ctxt, request):
        return self._answer(request)

    @messaging.expose
    def survey(self, ctxt, request):
        return self._answer(request)

    @messaging.expose
    def guest_state(self, ctxt, request):
        return self._answer(request)

    @messaging.expose
    def forget_guest(self, ctxt, request):
        return self._answer(request)

    def secret(self, ctxt):
        """Not exposed."""


class DiskEndpoint:
    """An agent of version 1.1, which knows no image store."""

    target = messaging.Target(version='1.1')

    def __init__(self, answer):
        self.seen = []

    @messaging.expose
    def fill_disk(self, ctxt, request):
        self.seen.append((request, None))
        return disk_objects.DedupFillingReply(state='running')


class StoreEndpoint(DiskEndpoint):
    target = messaging.Target(version='1.2')

    @messaging.expose
    def fill_disk(self, ctxt, request, store=None):
        self.seen.append((request, store))
        return disk_objects.DedupFillingReply(state='running')


class OldEndpoint(Endpoint):
    target = messaging.Target(version='0.9')


def reply(request, **kwargs):
    return objects.DedupFactsReply(
        host=HOST, patched=True, disks=[
            objects.DedupDiskAnswer(target=disk.target, copy='shared',
                                    reason='same')
            for disk in request.disks], **kwargs)


class ApiTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.conf = self.useFixture(
            config_fixture.Config(cfg.ConfigOpts())).conf
        self.useFixture(conffixture.ConfFixture(self.conf, 'fake://'))
        self.transport = transport.get_transport(self.conf)
        self.addCleanup(self.transport.cleanup)
        self.api = api.AgentAPI(self.transport, 10.0)
        self.request = objects.DedupFactsRequest(
            instance_uuid=UUID, migration_uuid=UUID, disks=[
                objects.DedupDiskQuery(target='vda', chain=[
                    objects.DedupNodeClaim(kind='file', path='/x')])])

    def serve(self, answer, endpoint=Endpoint):
        made = endpoint(answer)
        server = transport.get_server(self.transport, HOST, [made])
        server.start()
        self.addCleanup(server.wait)
        self.addCleanup(server.stop)
        return made

    def unavailable(self, match, function, *args, **kwargs):
        error = self.assertRaises(errors.AgentUnavailable, function, *args,
                                  **kwargs)
        self.assertRegex(error.reason, match)
        return error

    def test_facts(self):
        self.serve(reply)
        answer = self.api.facts({}, HOST, self.request)
        self.assertTrue(answer.patched)
        self.assertEqual('shared', answer.disks[0].copy)

    def test_the_agent_learns_how_long_it_may_take(self):
        self.serve(lambda request: reply(request,
                                         reason='%g' % request.budget))
        self.assertEqual('8', self.api.facts({}, HOST, self.request).reason)

    def test_only_the_request_id_of_the_context_is_sent(self):
        class Context:
            request_id = 'req-1'
            global_request_id = None
            auth_token = 'secret'

        agent = self.serve(reply)
        self.api.facts(Context(), HOST, self.request)
        self.assertEqual('req-1', agent.contexts[0].request_id)
        self.assertIsNone(agent.contexts[0].auth_token)

    def test_hello(self):
        self.serve(lambda request: True)
        self.api.hello({}, HOST)

    def test_hello_of_an_agent_that_hangs(self):
        done = threading.Event()
        self.serve(lambda request: done.wait(30))
        # before the server's end, which waits for it
        self.addCleanup(done.set)
        with mock.patch.object(api, 'PROMPT', 0.1):
            self.unavailable('no answer within 0.1 s',
                             api.AgentAPI(self.transport, 60.0).hello, {},
                             HOST)

    def test_waiting_for_an_answer(self):
        """A migration waits as long for an agent that hangs."""
        slow = api.AgentAPI(self.transport, 60.0)
        probe = objects.DedupLinkRequest(source='x', seconds=0.5, bytes=1)
        survey = survey_objects.DedupSurveyRequest(
            instance_uuid=UUID, max_age=1.0)
        for seconds, call in (
                (2.0, lambda: slow.hello({}, HOST)),
                (60.0, lambda: slow.facts({}, HOST, self.request)),
                (5.0, lambda: slow.link_probe({}, HOST, probe)),
                (0.5, lambda: api.AgentAPI(self.transport, 0.5).link_probe(
                    {}, HOST, probe)),
                (9.0, lambda: slow.incoming({}, HOST, UUID, UUID, 7.0)),
                (60.0, lambda: slow.survey({}, HOST, survey)),
                (60.0, lambda: slow.guest_state({}, HOST, UUID)),
                (2.0, lambda: slow.forget_guest({}, HOST, UUID, UUID))):
            with mock.patch.object(messaging.rpc.client._CallContext, 'call',
                                   autospec=True) as asked:
                asked.side_effect = messaging.MessagingTimeout()
                self.unavailable('within %g s' % seconds, call)
            self.assertEqual(seconds, asked.call_args.args[0].timeout)

    def test_no_agent(self):
        error = self.unavailable(
            'no answer within 0.1 s',
            api.AgentAPI(self.transport, 0.1).facts, {}, HOST, self.request)
        self.assertEqual(HOST, error.host)
        self.assertIn(HOST, str(error))

    def test_slow_agent(self):
        done = threading.Event()
        self.serve(lambda request: done.wait(30) and reply(request))
        # before the server's end, which waits for it
        self.addCleanup(done.set)
        self.unavailable('no answer within 0.1 s',
                         api.AgentAPI(self.transport, 0.1).facts, {}, HOST,
                         self.request)

    def test_bus_is_away(self):
        """The drivers wait for it whatever the time-out is."""
        done = threading.Event()
        self.addCleanup(done.set)
        with mock.patch.object(messaging.rpc.client._CallContext, 'call',
                               autospec=True) as call, \
                mock.patch.object(api, 'MARGIN', 0.0):
            call.side_effect = lambda *args, **kwargs: done.wait(30)
            self.unavailable('the message bus did not answer',
                             api.AgentAPI(self.transport, 0.1).facts, {},
                             HOST, self.request)

    def test_agent_of_another_version(self):
        self.serve(reply, OldEndpoint)
        self.unavailable('it is of another version: .*1.0', self.api.facts,
                         {}, HOST, self.request)

    def test_version_is_capped(self):
        self.serve(reply)
        capped = api.AgentAPI(self.transport, 10.0, version_cap='0.9')
        self.unavailable('needs version 1.0', capped.facts, {}, HOST,
                         self.request)

    def fill(self, client):
        return client.fill_disk({}, HOST, disk_objects.DedupFillRequest(
            instance_uuid=UUID, migration_uuid=UUID, project_id='p1',
            target='vda', size=1 << 30, watch='0' * 64, source='compute1',
            image=disk_objects.DedupImageFile(path='/x', format='raw')),
            image_objects.DedupImageStore(
                endpoint='https://glance', token='secret', images=[
                    image_objects.DedupStoredImage(image=UUID, size=7)]))

    def test_image_store(self):
        made = self.serve(None, StoreEndpoint)
        self.assertEqual('running', self.fill(self.api).state)
        (request, store), = made.seen
        self.assertEqual(('vda', 'secret', 7), (
            request.target, store.token, store.images[0].size))

    def test_older_agents_do_not_get_the_image_store(self):
        made = self.serve(None, DiskEndpoint)
        self.assertEqual('running', self.fill(self.api).state)
        (request, _), = made.seen
        self.assertEqual('vda', request.target)

    def test_nor_do_those_that_may_be_older(self):
        made = self.serve(None, StoreEndpoint)
        self.assertEqual('running', self.fill(api.AgentAPI(
            self.transport, 10.0, version_cap='1.1')).state)
        self.assertEqual([None], [store for _, store in made.seen])

    def test_agent_knows_older_objects_only(self):
        self.serve(reply)
        primitive = self.request.obj_to_primitive()
        primitive['nova_dedup_migrate_object.version'] = '1.7'
        with mock.patch.object(objects.DedupFactsRequest, 'obj_to_primitive',
                               autospec=True, return_value=primitive):
            self.unavailable('it is of another version: .*1.7',
                             self.api.facts, {}, HOST, self.request)

    def test_agent_fails(self):
        def fail(request):
            raise OSError('disk on fire')

        self.serve(fail)
        self.unavailable('it failed with OSError: disk on fire',
                         self.api.facts, {}, HOST, self.request)

    def test_malformed_answers(self):
        for answer in (None, 7, 'yes', ['x'], {'patched': True},
                       objects.DedupNodeAnswer(same=True),
                       {'nova_dedup_migrate_object.name': 'DedupNodeAnswer'},
                       {'nova_dedup_migrate_object.name': 'Nonesuch',
                        'nova_dedup_migrate_object.namespace':
                            'nova_dedup_migrate',
                        'nova_dedup_migrate_object.version': '1.0',
                        'nova_dedup_migrate_object.data': {}}):
            with self.subTest(answer=answer):
                self._malformed(answer)

    def test_incomplete_answer(self):
        answer = reply(self.request).obj_to_primitive()
        del answer['nova_dedup_migrate_object.data']['patched']
        self._malformed(answer)

    def test_answer_without_end(self):
        answer = reply(self.request).obj_to_primitive()
        answer['nova_dedup_migrate_object.data']['disks'] *= 1000
        self._malformed(answer)

    def _malformed(self, answer):
        with mock.patch.object(messaging.rpc.client._CallContext, 'call',
                               autospec=True) as call:
            call.side_effect = lambda client, ctxt, method, **kwargs: (
                client.serializer.deserialize_entity(ctxt, answer))
            self.unavailable('its answer is malformed', self.api.facts, {},
                             HOST, self.request)

    def test_answer_about_other_disks(self):
        def swap(request):
            answer = reply(request)
            answer.disks[0].target = 'vdb'
            return answer

        self.serve(swap)
        self.unavailable('about other disks', self.api.facts, {}, HOST,
                         self.request)

    def test_method_that_is_not_exposed(self):
        self.serve(reply)
        self.unavailable('another version', self.api._call, {}, HOST,
                         'secret', objects.DedupFactsReply, 10.0)

    def test_errors_of_the_bus(self):
        for raised, match in (
                (messaging.MessageDeliveryFailure('refused'),
                 'the message bus failed: refused'),
                (messaging.MessageUndeliverable(None, None, None, None),
                 'no agent has been started there'),
                (type('OSError_Remote', (OSError,), {})('on fire'),
                 'it failed with OSError: on fire'),
                (messaging.RemoteError('NoSuchMethod', 'x'),
                 'it is of another version: x'),
                (messaging.RemoteError('HypervisorUnavailable', 'gone'),
                 'it failed with HypervisorUnavailable: gone'),
                (ValueError('path\nTraceback\n  File'),
                 'it failed with ValueError: path$'),
                (RuntimeError('surprise'),
                 'it failed with RuntimeError: surprise')):
            with mock.patch.object(messaging.rpc.client._CallContext, 'call',
                                   autospec=True, side_effect=raised):
                self.unavailable(match, self.api.facts, {}, HOST,
                                 self.request)

    def test_link_probe(self):
        self.serve(lambda request: objects.DedupLinkOffer(
            address='192.0.2.1', port=49152, token='0' * 64,
            seconds=request.seconds, bytes=request.bytes))
        offer = self.api.link_probe({}, HOST, objects.DedupLinkRequest(
            source='compute1', seconds=0.5, bytes=1 << 20))
        self.assertEqual(49152, offer.port)

    def test_incoming(self):
        self.serve(lambda request: objects.DedupIncomingReply(
            known=True, fetched_pages=int(request.wait)))
        answer = self.api.incoming({}, HOST, UUID, UUID, wait=3.0)
        self.assertEqual(3, answer.fetched_pages)

    def test_refusals(self):
        for name in ('ProbeRefused', 'LinkInUse', 'ForgetRefused'):
            with mock.patch.object(
                    messaging.rpc.client._CallContext, 'call', autospec=True,
                    side_effect=messaging.RemoteError(name, 'it runs\nx')):
                error = self.assertRaises(
                    errors.AgentRefused, self.api.forget_guest, {}, HOST,
                    UUID, UUID)
            self.assertEqual(name, error.kind)
            self.assertEqual('the dedup agent of compute2 refuses the '
                             'request: it runs', str(error))

    def test_survey(self):
        seen = []

        def answer(request):
            seen.append(request)
            return survey_objects.DedupSurveyReply(
                known=True, age=3.0, dirty_rate=1e6, link_rate=2e6,
                link_age=1.0, hints=[survey_objects.DedupDiskHints(
                    device='/machine/peripheral/virtio-disk0', pages=5)])

        self.serve(answer)
        reply = self.api.survey({}, HOST, survey_objects.DedupSurveyRequest(
            instance_uuid=UUID, destination='compute3', max_age=60.0))
        self.assertEqual((3.0, 1e6, None, 5, 2e6),
                         (reply.age, reply.dirty_rate, reply.in_use,
                          reply.hints[0].pages, reply.link_rate))
        self.assertEqual((8.0, 'compute3'),
                         (seen[0].budget, seen[0].destination))

    def test_guest(self):
        self.serve(lambda request: objects.DedupGuestReply(
            uuid=request.instance_uuid, state='here', domain_id=7,
            reason='running (booted)'))
        self.assertEqual('here', self.api.guest_state({}, HOST, UUID))
        self.assertEqual(7, self.api.guest({}, HOST, UUID).domain_id)

    def test_answer_about_another_guest(self):
        other = UUID.replace('0a', '0b')
        self.serve(lambda request: objects.DedupGuestReply(
            uuid=other, state='here'))
        self.unavailable('about instance ' + other, self.api.guest_state,
                         {}, HOST, UUID)

    def test_forget_guest(self):
        seen = []
        self.serve(lambda request: not seen.append(request))
        migration = UUID.replace('0a', '1a')
        self.assertTrue(self.api.forget_guest({}, HOST, UUID, migration))
        self.assertEqual((UUID, migration), (seen[0].instance_uuid,
                                             seen[0].migration_uuid))

    def test_from_conf(self):
        options.register_opts(self.conf)
        made = api.AgentAPI.from_conf(self.conf, self.transport)
        self.assertTrue(made._client.can_send_version('1.9'))
        self.conf.set_override('dedup_migrate_agent', '0.9',
                               group='upgrade_levels')
        capped = api.AgentAPI.from_conf(self.conf, self.transport)
        self.unavailable('dedup_migrate_agent allows none', capped.hello,
                         {}, HOST)

    def test_from_conf_beside_nova(self):
        """Nova has options of its own in the group."""
        options.register_opts(self.conf)
        self.conf.register_opt(cfg.StrOpt('compute', default='auto'),
                               group='upgrade_levels')
        api.AgentAPI.from_conf(self.conf, self.transport)
        self.assertEqual('auto', self.conf.upgrade_levels.compute)
