# SPDX-License-Identifier: Apache-2.0
import threading
from unittest import mock

import libvirt
from nova import exception
import oslo_messaging

from nova_dedup_migrate.compute import figures
from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute.test_attempt import libvirt_error


class AwaitLibvirtTest(base.TestCase):

    def wait(self, *found):
        open_guest = mock.Mock(spec=[], side_effect=found)
        with mock.patch.object(waiting, '_INTERVAL_S', 0):
            waiting.await_libvirt(open_guest)
        self.assertEqual(len(found), open_guest.call_count)

    def test_it_answers(self):
        self.wait('guest')

    def test_it_has_no_such_guest(self):
        self.wait(exception.InstanceNotFound(instance_id='x'))

    def test_it_is_started_again(self):
        self.wait(libvirt_error(libvirt.VIR_ERR_RPC),
                  exception.HypervisorUnavailable(), 'guest')

    def test_it_stays_away(self):
        with mock.patch.object(figures, 'LIBVIRT_S', 0):
            self.wait()


class UntilAnsweredTest(base.TestCase):

    def test_answered(self):
        act = mock.Mock(spec=[], side_effect=[
            oslo_messaging.MessagingTimeout('late'),
            oslo_messaging.MessageDeliveryFailure('away'),
            exception.HypervisorUnavailable(), 'done'])
        with mock.patch.object(waiting, 'RETRY_S', 0):
            self.assertEqual('done', waiting.until_answered(
                act, threading.Event(), 'this'))
        self.assertEqual(4, act.call_count)

    def test_stopped(self):
        stopping = threading.Event()
        stopping.set()
        act = mock.Mock(spec=[], side_effect=(
            oslo_messaging.MessagingTimeout('late')))
        self.assertIsNone(waiting.until_answered(act, stopping, 'this'))
        act.assert_called_once_with()

    def test_other_errors_pass(self):
        self.assertRaises(KeyError, waiting.until_answered,
                          lambda: {}['x'], threading.Event(), 'this')
