# SPDX-License-Identifier: Apache-2.0
"""Waiting, though the controller is started again meanwhile."""

from unittest import mock

from keystoneauth1 import exceptions as ksa_exceptions
from openstack import exceptions

from nova_dedup_migrate.osc import waiting
from nova_dedup_migrate.tests import base


class WaitTest(base.TestCase):

    def wait(self, *answers):
        """Return what waiting.wait() does if looks end like this."""
        look = mock.Mock(side_effect=answers)
        with mock.patch.object(waiting.sys, 'stderr'):
            return waiting.wait(look, lambda one: one == 'over',
                                str, interval=0.001)

    def test_controller_that_is_away(self):
        self.assertEqual(('over', True), self.wait(
            'begun', ksa_exceptions.ConnectFailure('x'),
            exceptions.HttpException('x', http_status=503), 'on', 'over'))

    def test_not_for_ever(self):
        with mock.patch.object(waiting, 'PATIENCE', 0.0):
            self.assertRaises(
                ksa_exceptions.ConnectFailure, self.wait, 'begun',
                *[ksa_exceptions.ConnectFailure('x')] * 99)

    def test_not_at_the_beginning(self):
        self.assertRaises(ksa_exceptions.ConnectFailure, self.wait,
                          ksa_exceptions.ConnectFailure('x'))

    def test_what_is_refused(self):
        self.assertRaises(
            exceptions.NotFoundException, self.wait, 'begun',
            exceptions.NotFoundException('x', http_status=404))
