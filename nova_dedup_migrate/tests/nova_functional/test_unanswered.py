# SPDX-License-Identifier: Apache-2.0
"""A step of Nova's that gets no answer leaves nothing behind.

With Nova's own services and database; libvirt, the networks and the message
bus are those of Nova's tests.
"""

import inspect
import time
from unittest import mock

from nova import exception
from nova.compute import manager as compute_manager
from nova.tests.fixtures import libvirt as fakelibvirt
from nova.tests.functional.libvirt import base as libvirt_base
import oslo_messaging

from nova_dedup_migrate.compute import observer
from nova_dedup_migrate.recovery import loop
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.tests.nova_functional import adopt

_LATE = oslo_messaging.MessagingTimeout('late')


class UnansweredTest(adopt.WithOurDriver,
                     libvirt_base.LibvirtMigrationMixin,
                     libvirt_base.ServersTestBase):

    microversion = '2.74'
    ADMIN_API = True
    #: Whether the guest arrives.
    arrives = True

    def setUp(self):
        super().setUp()
        if adopt.STOCK:
            self.skipTest("Nova's own driver settles nothing")
        for owner, name, value in (
                (loop, 'INTERVAL_S', 0.2), (loop, 'SOON_S', 0.1),
                (loop, 'UNKNOWN_S', 0.2), (loop, 'RETRY_S', 0.1),
                (observer, 'REQUEST_S', 1.0)):
            self._patch(mock.patch.object(owner, name, value))
        # what the agent of the destination would answer and do
        self._patch(mock.patch.object(
            api.AgentAPI, 'guest_state',
            new=lambda agents, context, host, uuid: self._state_there(uuid)))
        self._patch(mock.patch.object(
            api.AgentAPI, 'forget_guest',
            new=lambda agents, context, host, uuid, migration: False))
        # which Nova itself does not ask for
        self._patch(mock.patch.object(
            fakelibvirt.Domain, 'state', create=True,
            new=lambda domain, flags=0: [domain._state, 0]))
        self.start_compute(hostname='src')
        self.start_compute(hostname='dest')
        self.src, self.dest = (self.computes[name] for name in
                               ('src', 'dest'))
        self.server = self._create_server(host='src', networks='none')

    def _patch(self, patcher):
        self.addCleanup(patcher.stop)
        return patcher.start()

    def _state_there(self, uuid):
        connection = self.dest.driver._host.get_connection()
        try:
            connection.lookupByUUIDString(uuid)
        except fakelibvirt.libvirtError:
            return 'none'
        return 'here'

    def _migrate_stub(self, domain, destination, params, flags):
        """As libvirt leaves it: the guest is at one of the hosts."""
        there = self.dest.driver._host.get_connection()
        here = self.src.driver._host.get_connection()
        leaving = here.lookupByUUIDString(self.server['id'])
        if self.arrives:
            there.createXML(params['destination_xml'], 0)
            leaving.complete_job()
            leaving.destroy()
            leaving.undefine()
        else:
            leaving.fail_job()
        self.migrate_stub_ran = True

    def _fail_once(self, name, error=_LATE, when=lambda *args: True):
        """Have a method of the manager raise the first time.

        :param when: callable(arguments of the method) -> whether it is that
        :returns: the error, until it was raised
        """
        method = getattr(compute_manager.ComputeManager, name)
        errors = [error]

        def step(*args, **kwargs):
            if errors and when(*args):
                raise errors.pop()
            return method(*args, **kwargs)

        static = isinstance(inspect.getattr_static(
            compute_manager.ComputeManager, name), staticmethod)
        self._patch(mock.patch.object(
            compute_manager.ComputeManager, name,
            new=staticmethod(step) if static else step))
        return errors

    def _eventually(self, look):
        """Look until it is true: Nova's own tests give up after 5 s."""
        deadline = time.monotonic() + 60
        while not look() and time.monotonic() < deadline:
            time.sleep(0.1)

    def _status(self):
        migration, = self.api.api_get(
            '/os-migrations?instance_uuid=' + self.server['id']
        ).body['migrations']
        return migration['status']

    def _check(self, host, status):
        """Migrate; it ends with the instance on a host as before."""
        self.api.post_server_action(
            self.server['id'],
            {'os-migrateLive': {'host': None, 'block_migration': 'auto'}})
        self._eventually(lambda: self._status() == status)
        self.assertEqual(status, self._status())
        server = self._wait_for_server_parameter(
            self.server, {'OS-EXT-STS:task_state': None}, max_retries=60)
        self.assertEqual('ACTIVE', server['status'])
        self.assertEqual(host, server['OS-EXT-SRV-ATTR:host'])
        used = self._get_provider_usages(
            self._get_provider_uuid_by_host(host))
        other = 'dest' if host == 'src' else 'src'
        self.assertEqual(1, used['VCPU'] + used.get('PCPU', 0))
        self.assertEqual(0, self._get_provider_usages(
            self._get_provider_uuid_by_host(other))['VCPU'])
        # ended a moment after all else is done
        self._eventually(lambda: not self._unfinished())
        self.assertEqual([], self._unfinished())

    def _unfinished(self):
        return [one for compute in (self.src, self.dest)
                for one in compute.driver.dedup._store.unfinished()[0]]

    def test_it_has_arrived(self):
        """All that Nova does about it is done again."""
        failed = self._fail_once('_post_live_migration_update_host')
        self._check('dest', 'completed')
        self.assertEqual([], failed)

    def test_it_has_arrived_and_nova_says_so(self):
        failed = self._fail_once('_post_live_migration')
        self._check('dest', 'completed')
        self.assertEqual([], failed)

    def test_libvirt_is_away(self):
        failed = self._fail_once('_post_live_migration',
                                 exception.HypervisorUnavailable())
        self._check('dest', 'completed')
        self.assertEqual([], failed)

    def test_it_has_stayed(self):
        self.arrives = False
        failed = self._fail_once('_revert_allocation')
        self._check('src', 'failed')
        self.assertEqual([], failed)

    def test_it_was_not_begun(self):
        """Nova's manager gives up before it comes to the driver."""
        failed = self._fail_once(
            '_set_migration_status',
            when=lambda migration, status: status == 'preparing')
        self._check('src', 'failed')
        self.assertEqual([], failed)
        self.assertFalse(self.migrate_stub_ran)
