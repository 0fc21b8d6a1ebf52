# SPDX-License-Identifier: Apache-2.0
"""Privilege is used where it is needed, and only there."""

from unittest import mock

from oslo_privsep import capabilities
from oslo_privsep import daemon

from nova_dedup_migrate.images import access
from nova_dedup_migrate.images import operations
from nova_dedup_migrate.images import privileged
from nova_dedup_migrate.tests import base

ARGS = ('/disk', ['/'], 'key', False)


class AccessTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.plain = self.patch(operations, 'sample')
        self.helper = self.patch(privileged, 'sample')
        self.uid = self.patch(access.os, 'geteuid', return_value=1000)
        self.patch_value(access, '_not_before', 0.0)

    def patch(self, where, name, **kwargs):
        patcher = mock.patch.object(where, name, autospec=True, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def patch_value(self, where, name, value):
        patcher = mock.patch.object(where, name, value)
        self.addCleanup(patcher.stop)
        patcher.start()

    def test_without_privilege(self):
        self.plain.return_value = 'digest'
        self.assertEqual('digest', access.sample(*ARGS))
        self.helper.assert_not_called()

    def test_with_privilege(self):
        self.plain.side_effect = PermissionError
        self.helper.return_value = 'digest'
        self.assertEqual('digest', access.sample(*ARGS))
        self.helper.assert_called_once_with(*ARGS)

    def test_root_has_no_more_privilege(self):
        self.uid.return_value = 0
        self.plain.side_effect = PermissionError
        self.assertRaises(PermissionError, access.sample, *ARGS)
        self.helper.assert_not_called()

    def test_other_errors_are_not_of_privilege(self):
        self.plain.side_effect = FileNotFoundError
        self.assertRaises(FileNotFoundError, access.sample, *ARGS)
        self.helper.assert_not_called()

    def test_no_helper(self):
        self.plain.side_effect = PermissionError
        self.helper.side_effect = daemon.FailedToDropPrivileges('sudo')
        self.assertRaises(PermissionError, access.sample, *ARGS)
        self.assertRaises(PermissionError, access.sample, *ARGS)
        # It is not started again and again.
        self.helper.assert_called_once_with(*ARGS)

    def test_lock_is_released_where_it_is_held(self):
        for module, error in ((operations, None),
                              (privileged, PermissionError)):
            with mock.patch.object(operations, 'hold_lock', autospec=True,
                                   side_effect=error, return_value=5), \
                    mock.patch.object(privileged, 'hold_lock',
                                      autospec=True, return_value=5), \
                    mock.patch.object(module, 'release_lock',
                                      autospec=True) as release:
                access.hold_lock('/disk', None, 1)()
            release.assert_called_once_with(5)


class PrivilegedTest(base.TestCase):
    def test_every_operation_is_there(self):
        self.addCleanup(privileged.context.set_client_mode, True)
        privileged.context.set_client_mode(False)
        for name in ('hold_lock', 'release_lock', 'is_locked', 'sample',
                     'read_rates'):
            entrypoint = getattr(privileged, name)
            self.assertTrue(privileged.context.is_entrypoint(entrypoint))
            arguments = range(entrypoint.args[0].__code__.co_argcount)
            with mock.patch.object(operations, name,
                                   autospec=True) as operation:
                entrypoint(*arguments)
            operation.assert_called_once_with(*arguments)

    def test_smallest_capability(self):
        self.assertEqual((capabilities.CAP_DAC_READ_SEARCH,),
                         privileged.CAPABILITIES)
