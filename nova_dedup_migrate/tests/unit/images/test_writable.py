# SPDX-License-Identifier: Apache-2.0
"""Volumes are opened with one capability, and only those of Nova."""

import errno
import os
from unittest import mock

from oslo_privsep import capabilities
from oslo_privsep import daemon

from nova_dedup_migrate.images import paths
from nova_dedup_migrate.images import writable
from nova_dedup_migrate.tests import base


class WritableTest(base.TestCase):
    """The helper's part runs in the process of the test."""

    def setUp(self):
        super().setUp()
        self.share = self.temporary_dir() / 'share'
        self.share.mkdir()
        self.path = str(self.share / 'volume')
        self.write(self.path)
        writable.context.set_client_mode(False)
        self.addCleanup(writable.context.set_client_mode, True)
        self.patch(writable.nova, 'register_opts')
        self.patch(writable.nova, 'volume_directories',
                   return_value=(str(self.share),))

    def write(self, path):
        with open(path, 'wb') as file:
            file.write(bytes(512))

    def patch(self, where, name, **kwargs):
        patcher = mock.patch.object(where, name, autospec=True, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def refused(self, times=1):
        """Have this process refused to open, that many times."""
        theirs, left = writable._reopen, [None] * times

        def reopen(path, handle):
            if left:
                left.pop()
                raise PermissionError(errno.EACCES, 'no')
            return theirs(path, handle)

        self.patch(writable, '_reopen', side_effect=reopen)

    def opened(self, path):
        fd = writable.open_volume(path)
        self.addCleanup(os.close, fd)
        return fd

    def test_without_privilege(self):
        send = self.patch(writable, 'send_volume')
        os.pwrite(self.opened(self.path), b'x', 0)
        send.assert_not_called()

    def test_with_privilege(self):
        self.refused()
        fd = self.opened(self.path)
        os.pwrite(fd, b'x', 0)
        self.assertTrue(os.path.samestat(os.fstat(fd), os.stat(self.path)))
        self.assertFalse(os.get_inheritable(fd))

    def test_refused_to_the_helper_as_well(self):
        self.refused(2)
        self.assertRaises(PermissionError, writable.open_volume, self.path)

    def test_no_helper(self):
        self.refused()
        self.patch(writable, 'send_volume',
                   side_effect=daemon.FailedToDropPrivileges('sudo'))
        error = self.assertRaises(PermissionError, writable.open_volume,
                                  self.path)
        self.assertIn('[dedup_migrate_writer]', str(error))

    def test_elsewhere(self):
        outside = str(self.share.parent / 'outside')
        self.write(outside)
        link = str(self.share / 'link')
        os.symlink(outside, link)
        self.refused(3)
        for path in outside, link, str(self.share / '..' / 'outside'):
            self.assertRaises(paths.PathRefused, writable.open_volume, path)

    def test_replaced_meanwhile(self):
        self.refused()
        theirs = writable._identity

        def identity(handle):
            found = theirs(handle)
            os.rename(self.path, self.path + '.old')
            self.write(self.path)
            return found

        self.patch(writable, '_identity', side_effect=identity)
        error = self.assertRaises(paths.PathRefused, writable.open_volume,
                                  self.path)
        self.assertIn('it is not the file', str(error))

    def test_what_is_no_volume(self):
        for path in str(self.share), '/dev/null':
            self.assertRaises(paths.PathRefused, writable.open_volume, path)

    def test_smallest_capability(self):
        self.assertEqual((capabilities.CAP_DAC_OVERRIDE,),
                         writable.CAPABILITIES)
        self.assertTrue(writable.context.is_entrypoint(writable.send_volume))
