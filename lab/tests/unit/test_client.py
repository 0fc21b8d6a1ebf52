# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from lab import client
from lab import cloud
from lab.settings import Settings
from nova_dedup_migrate.tests import base


class ConnectTest(base.TestCase):
    def test_a_lab_that_is_made_again(self):
        self.enterContext(mock.patch.object(
            cloud.Cloud, 'identity', 'http://127.0.0.1:5000'))
        connect = self.enterContext(mock.patch.object(
            client, 'new_connection', side_effect=lambda _: object()))
        first, again = (
            cloud.Cloud('any', self.temporary_dir(), Settings())
            for _ in range(2))
        one = client.connect(first)
        self.assertIs(one, client.connect(first))
        self.assertIsNot(one, client.connect(again))
        self.assertEqual([mock.call(first), mock.call(again)],
                         connect.mock_calls)
