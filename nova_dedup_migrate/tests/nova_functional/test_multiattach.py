# SPDX-License-Identifier: Apache-2.0
"""Nova's test of multiattach volumes, on hosts with libvirt.

Nova has none that migrates; test_boundary_cases.MultiattachTest does.
"""

from nova.tests.functional import test_multiattach
from nova.tests.functional.libvirt import base as libvirt_base

from nova_dedup_migrate.tests.nova_functional import adopt


class MultiattachTest(adopt.WithOurDriver, libvirt_base.ServersTestBase):

    microversion = '2.60'
    test_boot_from_volume_and_attach_to_second_server = (
        test_multiattach.TestMultiattachVolumes.
        test_boot_from_volume_and_attach_to_second_server)

    def setUp(self):
        super().setUp()
        self.start_compute()
