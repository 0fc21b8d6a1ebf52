# SPDX-License-Identifier: Apache-2.0
import time
from unittest import mock

import libvirt
from nova import exception
from nova import objects
from nova.virt.libvirt import guest as libvirt_guest

from nova_dedup_migrate.compute import manager
from nova_dedup_migrate.compute import observer
from nova_dedup_migrate.hypervisor import peer
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.recovery import owners
from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes

RUNNING = (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED)
JOB, NO_JOB = (libvirt_guest.JobInfo(type=kind) for kind in (
    libvirt.VIR_DOMAIN_JOB_UNBOUNDED, libvirt.VIR_DOMAIN_JOB_NONE))


def paused(reason):
    return libvirt.VIR_DOMAIN_PAUSED, reason


class ObserverTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.operation = fakes.operation(phase=operations.RUNNING)
        self.instance = objects.Instance(uuid=fakes.UUID, host='here',
                                         task_state='migrating',
                                         vm_state='active')
        self.migration = objects.Migration(
            uuid=fakes.MIGRATION, status='running', dest_compute='there')
        self.manager = mock.create_autospec(manager.ManagerPort,
                                            instance=True)
        self.manager.instance.side_effect = lambda uuid: self.instance
        self.newest = fakes.MIGRATION
        self.manager.migration.side_effect = (
            lambda *args: (self.migration, self.newest))
        self.manager.destination = manager.ManagerPort.destination
        self.guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        self.guest._domain = mock.create_autospec(libvirt.virDomain,
                                                  instance=True)
        self.is_here()
        self.get_guest = mock.Mock(spec=[], return_value=self.guest)
        self.agents = mock.create_autospec(api.AgentAPI, instance=True)
        self.agents.guest_state.return_value = 'none'
        patch = mock.patch.object(peer, 'guest_state', autospec=True,
                                  return_value='none')
        self.peer = patch.start()
        self.addCleanup(patch.stop)
        self.queued = mock.Mock(spec=[], return_value=False)
        self.owners = owners.Owners(self.queued)
        self.observer = observer.Observer(
            self.manager, self.get_guest, self.agents, self.owners)

    def is_here(self, state=RUNNING, job=NO_JOB):
        self.guest.is_active.return_value = True
        self.guest._domain.state.return_value = list(state)
        self.guest.get_job_info.return_value = job

    def observe(self, quiet=0.0, loaded=False):
        return self.observer.observe(self.operation, quiet, loaded,
                                     owners.RECOVERY)

    def test_all_is_read(self):
        at = self.observe(7.0)
        self.assertEqual(rules.Observation(
            owner='', phase='running', instance=rules.AT_SOURCE, host='here',
            migrating=True, status='running', quiet=7.0,
            patience=observer.REQUEST_S, here=rules.PRESENT,
            there=rules.NONE), at)
        self.agents.guest_state.assert_called_once_with(
            self.manager.context.return_value, 'there', fakes.UUID)
        self.manager.libvirt_uri.assert_called_once_with(
            'there', self.operation.durable)

    def test_owned(self):
        with self.owners.claim(fakes.UUID, owners.SESSION):
            self.assertEqual(owners.SESSION, self.observe().owner)
        self.queued.return_value = True
        self.assertEqual(owners.NOVA, self.observe().owner)
        self.manager.instance.assert_not_called()

    def test_owned_by_the_caller(self):
        with self.owners.claim(fakes.UUID, owners.RECOVERY):
            self.assertEqual('', self.observe().owner)

    def test_where_the_instance_is(self):
        for host, expected in (('here', rules.AT_SOURCE),
                               ('there', rules.AT_DESTINATION),
                               ('third', rules.ELSEWHERE)):
            self.instance.host = host
            self.assertEqual(expected, self.observe().instance)
        self.instance = None
        self.assertEqual(rules.GONE, self.observe().instance)

    def test_a_destination_that_nova_chose_later(self):
        self.operation = fakes.operation(destination='',
                                         phase=operations.RUNNING)
        self.observe()
        self.assertEqual('there', self.operation.destination)
        self.agents.guest_state.assert_called_once()

    def test_no_destination_yet(self):
        self.operation = fakes.operation(destination='',
                                         phase=operations.RUNNING)
        self.migration.dest_compute = None
        self.assertEqual(rules.NONE, self.observe().there)
        self.agents.guest_state.assert_not_called()

    def test_task_state(self):
        self.instance.task_state = None
        at = self.observe()
        self.assertFalse(at.migrating)
        self.get_guest.assert_not_called()

    def test_nova_deletes_it(self):
        self.assertFalse(self.observe().deleting)
        self.instance.task_state = 'deleting'
        self.assertTrue(self.observe().deleting)
        self.instance.task_state = None
        self.instance.vm_state = 'deleted'
        self.assertTrue(self.observe().deleting)

    def test_a_newer_migration(self):
        self.newest = fakes.UUID
        self.assertTrue(self.observe().superseded)

    def test_migration_was_deleted(self):
        self.migration = self.newest = None
        at = self.observe()
        self.assertEqual(('', False), (at.status, at.superseded))

    def test_patience(self):
        """A request may wait in the queue while nova-compute is away."""
        self.assertEqual(observer.REQUEST_S, self.observe().patience)
        self.assertEqual(0.0, self.observe(loaded=True).patience)
        self.migration.status = 'accepted'
        self.assertEqual(observer.REQUEST_S,
                         self.observe(loaded=True).patience)

    def test_overdue(self):
        self.operation.durable.deadline = time.time() + 60
        self.assertFalse(self.observe().overdue)
        self.operation.durable.deadline = time.time() - 1
        self.assertTrue(self.observe().overdue)

    def test_the_guest_here(self):
        for state, job, expected in (
                (RUNNING, NO_JOB, rules.PRESENT),
                (RUNNING, JOB, rules.MIGRATING),
                (paused(libvirt.VIR_DOMAIN_PAUSED_USER), NO_JOB,
                 rules.PRESENT),
                (paused(libvirt.VIR_DOMAIN_PAUSED_MIGRATION), NO_JOB,
                 rules.LEAVING),
                (paused(libvirt.VIR_DOMAIN_PAUSED_MIGRATION), JOB,
                 rules.MIGRATING),
                (paused(libvirt.VIR_DOMAIN_PAUSED_POSTCOPY), JOB,
                 rules.POSTCOPY),
                (paused(libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED), NO_JOB,
                 rules.POSTCOPY_FAILED)):
            self.is_here(state, job)
            self.assertEqual(expected, self.observe().here)

    def test_no_guest_here(self):
        self.guest.is_active.return_value = False
        self.assertEqual(rules.SHUT_OFF, self.observe().here)
        self.get_guest.side_effect = exception.InstanceNotFound(
            instance_id=fakes.UUID)
        self.assertEqual(rules.ABSENT, self.observe().here)

    def test_libvirt_here_is_away(self):
        for error in (fakes.libvirt_error(libvirt.VIR_ERR_RPC),
                      exception.HypervisorUnavailable()):
            self.get_guest.side_effect = error
            at = self.observe()
            self.assertEqual(rules.UNKNOWN, at.here)
            self.assertIn('libvirt on the source', at.reason)

    def test_libvirt_was_not_called(self):
        """The destination cannot have the guest and is not called."""
        for phase in (operations.REQUESTED, operations.PREPARING):
            self.operation = fakes.operation(phase=phase)
            self.assertEqual(rules.NONE, self.observe().there)
        self.agents.guest_state.assert_not_called()
        self.get_guest.side_effect = exception.InstanceNotFound(
            instance_id=fakes.UUID)
        self.observe()
        self.agents.guest_state.assert_called_once()

    def test_a_job_of_somebody_else(self):
        """A snapshot's job is not a migration to abort."""
        for phase in (operations.REQUESTED, operations.PREPARING):
            self.operation = fakes.operation(phase=phase)
            self.is_here(job=JOB)
            at = self.observe()
            self.assertEqual((rules.PRESENT, rules.NONE),
                             (at.here, at.there))

    def test_the_guest_there(self):
        away = errors.AgentUnavailable('there', 'no answer')
        for agent, libvirtd, expected in (
                ('here', 'here', rules.RUNNING),
                ('arriving', 'arriving', rules.ARRIVING),
                ('none', 'none', rules.NONE),
                ('here', None, rules.CLAIMED), (away, 'here', rules.CLAIMED),
                ('none', None, rules.UNSEEN), (away, 'none', rules.UNSEEN),
                (away, 'arriving', rules.ARRIVING),
                ('here', 'none', rules.UNKNOWN),
                ('none', 'here', rules.UNKNOWN),
                ('here', 'arriving', rules.UNKNOWN),
                (away, None, rules.UNKNOWN)):
            self.agents.guest_state.side_effect = [agent]
            self.peer.return_value = libvirtd
            at = self.observe()
            self.assertEqual(expected, at.there, (agent, libvirtd))
            self.assertEqual(expected == rules.UNKNOWN, bool(at.reason))
