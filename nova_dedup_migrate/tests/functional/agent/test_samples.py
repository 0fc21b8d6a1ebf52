# SPDX-License-Identifier: Apache-2.0
"""The rate that a migration is planned with, while windows are measured.

Only QEMU is real: libvirt answers that there is one guest and that it runs.
"""

import time
import unittest
from unittest import mock

try:
    import libvirt
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

from nova_dedup_migrate.agent import guest_samples
from nova_dedup_migrate.agent import link_rates
from nova_dedup_migrate.agent import surveys
from nova_dedup_migrate.hypervisor import libvirt as libvirt_guest
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.tests import base
from testkit import bootsector
from testkit import direct
from testkit import qemus
from testkit import spec

UUID = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
_MIB = 1 << 20


class SamplesTest(base.TestCase):

    timeout = 180

    def setUp(self):
        binary = qemus.require(self, 'patched')
        super().setUp()
        directory = self.temporary_dir()
        # It writes to 16 MiB all the time.
        image = bootsector.BootSector(pages=4096).write_image(
            directory / 'disk.img')
        self.guest = direct.DirectGuest(spec.GuestSpec(
            binary=binary, memory_mib=64, disks=(spec.Disk(path=image),)),
            directory)
        self.addCleanup(self.guest.destroy)
        self.guest.start()
        self.guest.track_dedup()
        self.samples = guest_samples.GuestSamples(self.host(), lambda: False)
        self.surveys = surveys.Surveys(
            self.samples, mock.create_autospec(link_rates.LinkRates,
                                               instance=True), 0.5)
        self.addCleanup(self.surveys.stop)

    def host(self):
        domain = mock.create_autospec(libvirt.virDomain, instance=True)
        domain.UUIDString.return_value = UUID
        domain.ID.return_value = 1
        domain.isActive.return_value = 1
        domain.state.return_value = [libvirt.VIR_DOMAIN_RUNNING, 1]
        domain.messages.return_value = ['tainted: custom monitor']
        host = mock.create_autospec(libvirt_host.LibvirtHost, instance=True)
        host.connection = mock.create_autospec(libvirt.virConnect,
                                               instance=True)
        host.connection.listAllDomains.return_value = [domain]
        host.domain.return_value = domain
        patcher = mock.patch.object(
            libvirt_guest.LibvirtGuest, 'from_domain', autospec=True,
            side_effect=lambda domain, host: self.guest)
        patcher.start()
        self.addCleanup(patcher.stop)
        return host

    def sample(self):
        """Return the dirty rate of now, in MiB/s, and what that took."""
        begun = time.monotonic()
        found, reason = self.samples.sample(UUID, 0.0, 60.0)
        self.assertEqual('', reason)
        return found.found.dirty_rate / _MIB, time.monotonic() - begun

    def measured(self):
        """Return bytes written to by seconds, of the windows that ended."""
        return {round(one.seconds): one.bytes
                for one in self.samples.windows(UUID)}

    def test_a_guest_falls_silent_while_a_window_is_measured(self):
        self.eventually(lambda: self.sample()[0] > 10, 'it writes', 60)
        _, usual = self.sample()
        self.surveys.start()
        self.eventually(lambda: 1 in self.measured(), 'windows begin', 60)
        self.guest.pause()
        rate, took = self.sample()
        self.assertLess(rate, 1)
        # One that had begun before may have to end first.
        self.assertLess(took, 2 * usual + 1)
        self.assertNotIn(10, self.measured())
        self.assertLess(self.samples.last(UUID).found.dirty_rate, _MIB)
        # The window was under way all the time, and saw what was before.
        self.eventually(lambda: 10 in self.measured(), 'a window ends', 60)
        self.assertGreater(self.measured()[10], 10 * _MIB)
