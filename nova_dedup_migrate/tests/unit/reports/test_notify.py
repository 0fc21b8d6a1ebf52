# SPDX-License-Identifier: Apache-2.0
import json

from oslo_config import cfg
from oslo_context import context as oslo_context
import oslo_messaging
from oslo_messaging.notify import _impl_test

from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import notify
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.reports import samples


class NotifyTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.conf = cfg.ConfigOpts()
        oslo_messaging.set_transport_defaults('nova')
        transport = oslo_messaging.get_notification_transport(
            self.conf, 'fake://')
        self.addCleanup(transport.cleanup)
        self.conf.set_override('driver', ['test'],
                               group='oslo_messaging_notifications')
        self.conf.set_override('transport_url', 'fake://',
                               group='oslo_messaging_notifications')
        self.conf([])
        self.addCleanup(_impl_test.reset)
        self.notifier = notify.ReportNotifier(self.conf, 'compute1')

    def _sent(self, outcome, context=None):
        _impl_test.reset()
        self.notifier.end(samples.make(outcome=outcome), context)
        (self.context, message, priority, _), = _impl_test.NOTIFICATIONS
        return message, priority

    def test_payload(self):
        message, priority = self._sent('completed')
        self.assertEqual('dedup_migrate.migration.end',
                         message['event_type'])
        self.assertEqual('dedup_migrate:compute1', message['publisher_id'])
        self.assertEqual({
            'nova_dedup_migrate_object.name': 'MigrationReportPayload',
            'nova_dedup_migrate_object.namespace': 'nova_dedup_migrate',
            'nova_dedup_migrate_object.version': '1.0',
            'nova_dedup_migrate_object.data': codec.plain(samples.make()),
        }, message['payload'])
        self.assertEqual('INFO', priority)

    def test_payload_is_json(self):
        json.dumps(self._sent('completed')[0], allow_nan=False)

    def test_context(self):
        own = oslo_context.RequestContext()
        self._sent('completed')
        self.assertRegex(self.context['request_id'], '^req-')
        self.assertNotEqual(own.request_id, self.context['request_id'])
        # what the thread logs with
        self.assertIs(own, oslo_context.get_current())

    def test_context_of_the_request(self):
        """Who asked for it is sent, what would let one log in is not."""
        self._sent('completed', oslo_context.RequestContext(
            user_id='alice', auth_token='secret', overwrite=False,
            request_id='req-1'))
        self.assertEqual(('req-1', 'alice'), (self.context['request_id'],
                                              self.context['user']))
        self.assertNotIn('secret', repr(self.context))

    def test_priorities(self):
        self.assertEqual('INFO', self._sent('cancelled')[1])
        self.assertEqual('ERROR', self._sent('failed')[1])
