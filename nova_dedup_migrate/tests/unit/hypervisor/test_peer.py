# SPDX-License-Identifier: Apache-2.0
import threading
from unittest import mock

import libvirt

from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.hypervisor import peer
from nova_dedup_migrate.tests import base


def libvirt_error(code):
    error = libvirt.libvirtError('test')
    error.err = (code, libvirt.VIR_FROM_QEMU, 'test', 2, '', '', '', -1, -1)
    return error


class GuestStateTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.connection = mock.create_autospec(libvirt.virConnect,
                                               instance=True)
        self.open = self.patch(libvirt, 'openReadOnly',
                               return_value=self.connection)
        self.state = self.patch(libvirt_monitor, 'guest_state',
                                return_value='here')

    def patch(self, owner, name, **kwargs):
        patch = mock.patch.object(owner, name, autospec=True, **kwargs)
        self.addCleanup(patch.stop)
        return patch.start()

    def ask(self):
        return peer.guest_state('qemu+tcp://there/system', 'uuid')

    def test_it_says(self):
        self.assertEqual('here', self.ask())
        self.open.assert_called_once_with('qemu+tcp://there/system')
        self.state.assert_called_once_with(
            self.connection.lookupByUUIDString.return_value)
        self.connection.close.assert_called_once_with()

    def test_it_knows_no_such_guest(self):
        self.connection.lookupByUUIDString.side_effect = libvirt_error(
            libvirt.VIR_ERR_NO_DOMAIN)
        self.assertEqual('none', self.ask())

    def test_it_cannot_be_reached(self):
        self.open.side_effect = libvirt_error(libvirt.VIR_ERR_AUTH_FAILED)
        self.assertIsNone(self.ask())

    def test_it_fails(self):
        self.connection.lookupByUUIDString.side_effect = libvirt_error(
            libvirt.VIR_ERR_RPC)
        self.assertIsNone(self.ask())
        self.connection.close.assert_called_once_with()

    def test_it_hangs(self):
        over = threading.Event()
        self.addCleanup(over.set)
        self.open.side_effect = lambda uri: over.wait()
        with mock.patch.object(peer, 'TIMEOUT', 0.01):
            self.assertIsNone(self.ask())
