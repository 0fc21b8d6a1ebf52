# SPDX-License-Identifier: Apache-2.0
"""What happens to an instance, or its hosts, while a migration is settled."""

import dataclasses
import logging

import libvirt
from nova import objects
from nova.compute import task_states
from nova.tests.fixtures import libvirt as fakelibvirt

from nova_dedup_migrate.tests.nova_functional import boundary
from nova_dedup_migrate.tests.nova_functional import boundary_steps
from nova_dedup_migrate.tests.nova_functional import faults

#: Seconds in which something does not happen.
_QUIET_S = 3.0


class _Critical(logging.Handler):
    """Keeps what is logged for an operator to act on."""

    def __init__(self):
        super().__init__(logging.CRITICAL)
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


class BoundaryCase(boundary.Boundary):

    def setUp(self):
        super().setUp()
        self.critical = _Critical()
        logger = logging.getLogger('nova_dedup_migrate')
        logger.addHandler(self.critical)
        self.addCleanup(logger.removeHandler, self.critical)

    def begin(self, server, host='dest'):
        """Migrate; return when libvirt has begun to."""
        begun, _may_end = self.hold(server)
        self.migrate(server, host)
        self.assertTrue(self.until(begun.is_set), self.said(server))
        self.assertTrue(self.until(
            lambda: self.status(server) == 'running'))

    def instance(self, server):
        return objects.Instance.get_by_uuid(self.admin(), server['id'])

    def stays_so(self, condition):
        """Return whether a condition does not change for a while."""
        return not self.until(lambda: not condition(), _QUIET_S)


class PostCopyTest(BoundaryCase):
    """nova-compute dies when the guest runs on both sides' memory."""

    def test_it_arrives(self):
        self.row('post-copy, process death', 'process death at src while '
                 'the guest runs at dest', self._arrives)

    def _arrives(self):
        server = self.ready()
        self.begin(server)
        domain = self.domain('src', server['id'])
        self.arrive(server['id'], domain)
        domain._state, domain.reason = (fakelibvirt.VIR_DOMAIN_PAUSED,
                                        libvirt.VIR_DOMAIN_PAUSED_POSTCOPY)
        migration = self.migration(server)
        migration.status = 'running (post-copy)'
        migration.save()
        self.die('src')
        self.start_again('src')
        left = []
        if not self.stays_so(lambda: self.instance(server).task_state
                             == task_states.MIGRATING):
            left.append('the task state of a guest that runs elsewhere was '
                        'cleared')
        # libvirt goes on without nova-compute
        self._held.pop(server['id'])
        self.leave(domain)
        said, more = self.arrived(server)
        return said, left + more

    def test_step_fails(self):
        self.row('post-copy, finishing fails once', 'message bus at src',
                 self._step_fails)

    def _step_fails(self):
        server = self.ready()
        self.begin(server)
        migration = self.migration(server)
        fault = self.fail(boundary_steps.TOLD, faults.BUS, server)
        migration.status = 'running (post-copy)'
        migration.save()
        self.release(server)
        self.until(fault.met.is_set)
        return self.arrived(server)


class ChangedTest(BoundaryCase):
    """The instance is changed while recovery waits: it keeps its hands off.

    nova-compute of the source dies, the guest leaves, and the destination
    does not answer whether it has arrived.
    """

    def names(self):
        return ['third', 'src', 'dest']

    def _wait_for_destination(self):
        server = self.ready()
        self.begin(server)
        domain = self.domain('src', server['id'])
        self.die('src')
        self.unreachable.add('dest')
        # stopped, and not confirmed by the destination yet
        domain._state, domain.reason = (fakelibvirt.VIR_DOMAIN_PAUSED,
                                        libvirt.VIR_DOMAIN_PAUSED_MIGRATION)
        domain._job_type = fakelibvirt.VIR_DOMAIN_JOB_NONE
        self.start_again('src')
        self.assertTrue(self.until(lambda: self.kept('src')))
        return server

    def _check(self, server, change, keeps):
        """Change it, have the destination answer; nothing else happens."""
        change()
        before = keeps()
        self.unreachable.discard('dest')
        self.arrive(server['id'], self.domain('src', server['id']))
        left = []
        if not self.until(lambda: not self.kept('src')):
            left.append('recovery does not end')
        if not self.stays_so(lambda: keeps() == before):
            left.append('it was changed: %s instead of %s' % (
                keeps(), before))
        return left

    def _state(self, server):
        now = self.instance(server)
        return (now.host, now.vm_state, now.task_state,
                sorted(self.neutron._port_bindings[
                    self.neutron.port_1['id']]))

    def _is_critical(self, server):
        return ([] if any(server['id'] in line
                          for line in self.critical.lines)
                else ['nothing critical is logged about the instance'])

    def test_reset(self):
        self.row('reset-state while recovery waits',
                 'process death at src, dest unreachable', self._is_reset)

    def _is_reset(self):
        server = self._wait_for_destination()
        left = self._check(
            server, lambda: self.api.post_server_action(
                server['id'], {'os-resetState': {'state': 'active'}}),
            lambda: self._state(server))
        return self.said(server), left + self._is_critical(server)

    def test_rebuilt(self):
        self.row('rebuild while recovery waits',
                 'process death at src, dest unreachable', self._rebuilt)

    def _rebuilt(self):
        server = self._wait_for_destination()

        def rebuild():
            now = self.instance(server)
            now.task_state = task_states.REBUILDING
            now.save()

        left = self._check(server, rebuild, lambda: self._state(server))
        return self.said(server), left + self._is_critical(server)

    def test_evacuated(self):
        self.row('evacuation to a third host while recovery waits',
                 'process death at src, dest unreachable', self._evacuated)

    def _evacuated(self):
        server = self._wait_for_destination()

        def evacuate():
            now = self.instance(server)
            node = objects.ComputeNode.get_first_node_by_host_for_old_compat(
                self.admin(), 'third')
            now.host, now.node, now.compute_id = 'third', 'third', node.id
            now.task_state = None
            now.save()

        left = self._check(server, evacuate, lambda: self._state(server))
        return self.said(server), left + self._is_critical(server)

    def test_deleted(self):
        self.row('deletion while recovery waits',
                 'process death at src, dest unreachable', self._deleted)

    def _deleted(self):
        server = self._wait_for_destination()
        consumer = self.migration(server).uuid
        self.api.delete_server(server['id'])
        self._wait_until_deleted(server)
        self.unreachable.discard('dest')
        left = []
        if not self.until(lambda: not self.kept('src')):
            left.append('recovery does not end')
        allocations = self.placement.get(
            '/allocations/' + consumer).body['allocations']
        if allocations:
            left.append('allocations of the migration: %s' % allocations)
        return 'deleted', left


class DeadDestinationTest(BoundaryCase):
    """A rollback that cannot succeed keeps nobody from migrating."""

    ADDITIONAL_FILTERS = ['NUMATopologyFilter']

    def names(self):
        return ['third', 'src', 'dest']

    def setUp(self):
        self.flags(cpu_dedicated_set='0-3', group='compute')
        super().setUp()

    def test_it_blocks_nobody(self):
        self.row('rollback with claims, destination dead',
                 "dest's nova-compute does not answer", self._blocks_nobody)

    def _blocks_nobody(self):
        # A migration with claims asks it to drop them, and needs an answer.
        flavor = self._create_flavor(
            ephemeral=0, extra_spec={'hw:cpu_policy': 'dedicated'})
        server = self.boot(flavor_id=flavor)
        other = self.boot(flavor_id=flavor, networks='none',
                          volume=self.cinder.IMAGE_BACKED_VOL_QUIESCE)
        self.stays.add(server['id'])
        self.begin(server)
        self.flags(rpc_response_timeout=2, long_rpc_timeout=2)
        self.die('dest')
        self.unreachable.add('dest')
        self.release(server)
        self.migrate(other, 'third')
        left = []
        if not self.until(lambda: self.status(other) == 'completed'):
            left.append('another live migration does not go on: %s'
                        % self.said(other))
        if not self.until(lambda: self.instance(server).vm_state == 'error',
                          90):
            left.append('it is repeated without end: %s'
                        % self.said(server))
        else:
            fault = self.api.get_server(server['id']).get('fault', {})
            if self.migration(server).uuid not in fault.get('message', ''):
                left.append('the fault has no exact reason: %s' % fault)
        return self.said(server), left


class StoppedGuestTest(BoundaryCase):
    """A guest that was stopped to let its migration end runs again."""

    def _stopped(self):
        server = self.ready(stays=True)
        self.begin(server)
        migration = self.migration(server)
        self.api.force_complete_migration(server['id'], migration.id)
        domain = self.domain('src', server['id'])
        self.assertTrue(self.until(
            lambda: domain._state == fakelibvirt.VIR_DOMAIN_PAUSED))
        return server, domain

    def _runs(self, server, domain):
        if not self.settled(server):
            return self.said(server), ['it has not come to an end']
        left = ([] if domain._state == fakelibvirt.VIR_DOMAIN_RUNNING
                else ['the guest is still stopped'])
        said, more = self.rolled_back(server)
        return said, left + more

    def test_monitor_fails(self):
        self.row('force-completed, saving figures fails once, stays',
                 'message bus at src', self._monitor_fails)

    def _monitor_fails(self):
        server, domain = self._stopped()
        fault = faults.Fault(faults.BUS)
        self.faults.inject(
            objects.Instance, 'save', fault,
            lambda instance, *args, **kwargs: not kwargs)
        self.until(fault.met.is_set, 30)
        self.release(server)
        return self._runs(server, domain)

    def test_process_dies(self):
        self.row('force-completed, process death, stays',
                 'process death at src', self._process_dies)

    def _process_dies(self):
        server, domain = self._stopped()
        self.die('src')
        domain._job_type = fakelibvirt.VIR_DOMAIN_JOB_NONE
        self._held.pop(server['id'])
        self.start_again('src')
        return self._runs(server, domain)


class BeforeTest(BoundaryCase):
    """Nova's manager gives up, or dies, before the driver is called."""

    def compare(self, server, wanted):
        # Nova has other words for one that has not begun.
        return [line for line in super().compare(server, wanted)
                if not line.startswith(('migration: error',
                                        'migration: cancelled'))]


for _name, _method in boundary.rows(
        boundary_steps.BEFORE, arrives=False, variant='before').items():
    setattr(BeforeTest, _name, _method)


class UncalledTest(BoundaryCase):
    """Nova's thread fails before it calls libvirt."""

    def test_guest_ends(self):
        self.row('libvirt not called, guest ends', 'libvirt at src',
                 self._guest_ends)

    def _guest_ends(self):
        server = self.ready()
        domain = self.domain('src', server['id'])

        def end(*args):
            domain._state = fakelibvirt.VIR_DOMAIN_SHUTOFF
            return True

        step, = boundary_steps.UNCALLED
        self.fail(dataclasses.replace(step, when=end), faults.LIBVIRT,
                  server)
        self.migrate(server, 'dest')
        if not self.settled(server):
            return self.said(server), ['it has not come to an end']
        # as after a start by the user
        domain._state = fakelibvirt.VIR_DOMAIN_RUNNING
        return self.rolled_back(server)


for _name, _method in boundary.rows(
        boundary_steps.UNCALLED, arrives=False,
        variant='libvirt not called').items():
    setattr(UncalledTest, _name, _method)


class MultiattachTest(BoundaryCase):
    """Two instances of a host share a volume, and one leaves."""

    def test_volume_stays_connected(self):
        self.row('a multiattach volume, the destination told',
                 'message bus at src', self._volume_stays_connected)

    def _volume_stays_connected(self):
        volume = self.cinder.MULTIATTACH_VOL
        server = self.boot()
        other = self._create_server(
            host='src', networks='none', image_uuid=
            '155d900f-4e14-4e4c-a73d-069cbf4541e6')
        for one in (server, other):
            self.attach(one, volume)
        fault = self.fail(boundary_steps.TOLD, faults.BUS, server)
        self.migrate(server, 'dest')
        self.until(fault.met.is_set)
        left = []
        for host in ('dest', 'src'):
            if not self.settled(server):
                left.append('it has not come to an end')
            at = self.instance(server).host
            if at != host:
                left.append('the instance is at %s' % at)
            found = {one['instance_uuid']: one['connector']['host']
                     for one in
                     self.cinder.volume_to_attachment[volume].values()}
            if (len(self.cinder.volume_to_attachment[volume]) != 2
                    or found != {server['id']: host, other['id']: 'src'}):
                left.append('attachments when it is at %s: %s'
                            % (host, found))
            if host == 'dest' and not left:
                self.migrate(server, 'src')
        return self.said(server), left
