# SPDX-License-Identifier: Apache-2.0
from oslo_config import cfg
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

    def _sent(self, outcome):
        _impl_test.reset()
        self.notifier.end(samples.make(outcome=outcome))
        (_, message, priority, _), = _impl_test.NOTIFICATIONS
        return message, priority

    def test_payload(self):
        message, priority = self._sent('completed')
        self.assertEqual('dedup_migrate.migration.end',
                         message['event_type'])
        self.assertEqual('dedup_migrate:compute1', message['publisher_id'])
        self.assertEqual(codec.plain(samples.make()), message['payload'])
        self.assertEqual('INFO', priority)

    def test_priorities(self):
        self.assertEqual('INFO', self._sent('cancelled')[1])
        self.assertEqual('ERROR', self._sent('failed')[1])
