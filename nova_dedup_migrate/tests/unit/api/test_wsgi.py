# SPDX-License-Identifier: Apache-2.0
"""What a WSGI server loads."""

from unittest import mock

import fixtures

from nova_dedup_migrate.api import deploy
from nova_dedup_migrate.api import wsgi
from nova_dedup_migrate.cmd import controller as programs
from nova_dedup_migrate.tests import controller


class WsgiTest(controller.ControllerTestCase):

    def setUp(self):
        super().setUp()
        self.useFixture(fixtures.MonkeyPatch(
            'nova_dedup_migrate.api.wsgi._application', None))
        self.deploy = self.useFixture(fixtures.MockPatchObject(
            deploy, 'deploy', autospec=True)).mock
        self.configure = self.useFixture(fixtures.MockPatchObject(
            programs, 'configure', autospec=True,
            return_value=self.conf)).mock

    def test_made_once_and_not_on_import(self):
        self.deploy.assert_not_called()
        self.assertIs(self.deploy.return_value, wsgi.application)
        self.assertIs(wsgi.application, wsgi.application)
        self.deploy.assert_called_once_with(self.conf, mock.ANY)

    def test_no_other_name(self):
        self.assertRaises(AttributeError, getattr, wsgi, 'app')
        self.deploy.assert_not_called()

    def test_directory(self):
        for directory, arguments in (
                ('/x', ['--config-file', '/x/nova-dedup-migrate.conf']),
                ('', []), (None, [])):
            with fixtures.EnvironmentVariable('OS_DEDUP_MIGRATE_CONFIG_DIR',
                                              directory):
                wsgi.init_application()
            self.configure.assert_called_with(mock.ANY, arguments,
                                              'nova-dedup-migrate-api')

    def test_configuration_that_is_read(self):
        wsgi.init_application(self.conf)
        self.configure.assert_not_called()
