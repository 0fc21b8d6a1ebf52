# SPDX-License-Identifier: Apache-2.0
from unittest import mock

import libvirt
from nova import exception

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
