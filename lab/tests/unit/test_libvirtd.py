# SPDX-License-Identifier: Apache-2.0
import os
from unittest import mock

from lab.services import libvirtd
from nova_dedup_migrate.tests import base


class ProgramTest(base.TestCase):
    def program(self, **env):
        with mock.patch.dict(os.environ, env):
            return libvirtd._program()

    def test_the_machines_own(self):
        self.assertEqual((['libvirtd'], {}),
                         self.program(DEDUP_LIBVIRT_ROOT=''))

    def test_of_another_system(self):
        argv, env = self.program(DEDUP_LIBVIRT_ROOT='/other')
        self.assertEqual(
            ['/other/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2',
             '--library-path', '/other/usr/lib/x86_64-linux-gnu',
             '/other/usr/sbin/libvirtd'], [str(each) for each in argv])
        self.assertEqual('/other/usr/lib/x86_64-linux-gnu/libvirt/'
                         'connection-driver', env['LIBVIRT_DRIVER_DIR'])
        # Whatever libvirtd starts would use the other libraries.
        self.assertNotIn('LD_LIBRARY_PATH', env)
