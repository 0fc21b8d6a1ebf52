# SPDX-License-Identifier: Apache-2.0
"""All that the tests here have to do with how the product is made inside."""

import json
import os
from unittest import mock

from nova_dedup_migrate.compute import guests
from nova_dedup_migrate.compute import migrations
from nova_dedup_migrate.compute import monitored_guest
from nova_dedup_migrate.compute import observer
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.hypervisor import peer
from nova_dedup_migrate.operations import operation
from nova_dedup_migrate.operations import session
from nova_dedup_migrate.recovery import loop
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import errors
from nova_dedup_migrate.rpc import survey_objects
from nova_dedup_migrate.rpc import watch_objects

_GROUP = 'dedup_migrate'
_OPERATIONS = 'dedup_migrate/operations'
#: Seconds until recovery gives up on a guest that cannot be found.
RECOVERY_TIMEOUT = 4


def options(state_path):
    """Return {(group, option): value} of a host."""
    return {(_GROUP, 'operations_path'):
            os.path.join(state_path, _OPERATIONS),
            (_GROUP, 'recovery_timeout'): RECOVERY_TIMEOUT}


def hurry(replace):
    """Have what waits for tens of seconds wait for a moment.

    :param replace: callable(object, name of its attribute, new value)
    """
    replace(loop, 'INTERVAL_S', 0.5)
    replace(loop, 'SOON_S', 0.2)
    replace(loop, 'UNKNOWN_S', 0.5)
    replace(loop, 'RETRY_S', 0.2)
    replace(observer, 'REQUEST_S', 3.0)
    replace(session, 'OPERATION_S', 3.0)
    replace(session, '_END_S', 1.0)
    replace(monitored_guest, 'QEMU_S', 1.0)


class Agents:
    """The agents of all hosts, as rpc.api.AgentAPI shows them.

    :param state_of: callable(host, instance UUID) -> one of
        rpc.objects.GUEST_STATES, None if it does not answer
    :param forget: callable(host, instance UUID)
    """

    def __init__(self, state_of, forget):
        self._state_of = state_of
        self._forget = forget

    def guest_state(self, ctxt, host, instance_uuid):
        return self._answer(host, self._state_of(host, instance_uuid))

    def forget_guest(self, ctxt, host, instance_uuid, *migration_uuid):
        self._answer(host, self._state_of(host, instance_uuid))
        self._forget(host, instance_uuid)
        return True

    def __getattr__(self, name):
        def unavailable(ctxt, host, *args, **kwargs):
            self._answer(host, None)
        return unavailable

    @staticmethod
    def _answer(host, answer):
        if answer is None:
            raise errors.AgentUnavailable(host=host,
                                          reason='it does not answer')
        return answer


class DiskAgents(Agents):
    """Those that also build disks, each in one step.

    :param seen: list to which (method, host) is appended
    :ivar down: hosts whose agent does not answer
    :ivar state: of a disk that is built; 'done' is preceded by 'running'
    """

    def __init__(self, state_of, forget, seen):
        super().__init__(state_of, forget)
        self._seen = seen
        self.down = set()
        self.state = 'done'
        self._asked = 0

    def _see(self, method, host):
        self._answer(host, None if host in self.down else True)
        self._seen.append((method, host))

    def hello(self, ctxt, host):
        self._see('hello', host)

    def take_replica(self, ctxt, host, request):
        self._see('take_replica', host)
        return ''

    def watch_disk(self, ctxt, host, request):
        self._see('watch_disk', host)
        return self._watch('watching', data=1 << 29,
                           sample=['%064x' % n for n in range(100)])

    def have_blocks(self, ctxt, host, request):
        self._see('have_blocks', host)
        return len(request.digests)

    def survey(self, ctxt, host, request):
        self._see('survey', host)
        return survey_objects.DedupSurveyReply(known=False)

    def fill_disk(self, ctxt, host, request, store=None):
        self._see('fill_disk', host)
        self.filled = request

    def filling(self, ctxt, host, migration_uuid, target, wait):
        self._see('filling', host)
        self._asked += 1
        return disk_objects.DedupFillingReply(
            state='running' if self._asked == 1 else self.state,
            done=1, total=2, sources=[
                disk_objects.DedupSourceBytes(name='local', bytes=77)])

    def arm_disk(self, ctxt, host, migration_uuid, target):
        self._see('arm_disk', host)
        return self._watch('armed', proven=1 << 29)

    def abort_filling(self, ctxt, host, migration_uuid):
        self._see('abort_filling', host)

    def forget_disks(self, ctxt, host, migration_uuid):
        self._see('forget_disks', host)

    @staticmethod
    def _watch(state, **values):
        return watch_objects.DedupWatchReply(
            state=state, size=1 << 30, granularity=32768, watch='ab' * 32,
            **values)


def replace_disk_agents(replace, state_of, forget, seen):
    """Have agents that build disks, and guests that are watched.

    :param replace, state_of, forget: as of replace_agents
    :param seen: as of DiskAgents
    :returns: DiskAgents
    """
    agents = DiskAgents(state_of, forget, seen)
    replace(migrations.LiveMigrations, '_agents',
            property(lambda migrations: agents))

    def open_guest(host, instance):
        guest = mock.create_autospec(guests.InstanceGuest, instance=True)
        guest.is_patched.return_value = True
        guest.disk_watches.return_value = ()
        guest.events = events.EventLog()
        guest.progress.side_effect = hypervisor_errors.GuestNotRunning(
            name=instance.uuid)
        # with the aliases that libvirt gives
        xml = host.get_guest(instance).get_xml_desc()
        guest.domain.return_value.XMLDesc.side_effect = lambda flags: (
            xml.replace('</disk>', '<alias name="virtio-disk0"/></disk>'))
        return guest

    replace(guests, 'open_guest', open_guest)
    return agents


def reports(state_path):
    """Return the reports of the operations of a host, as JSON has them."""
    found = []
    path = os.path.join(state_path, _OPERATIONS)
    for name in os.listdir(path):
        with open(os.path.join(path, name)) as file:
            found.append(json.load(file)['report'])
    return found


def replace_agents(replace, state_of, forget):
    """Have hosts' agents, and their libvirt, replaced by callables.

    :param replace: as above
    :param state_of: as of Agents
    :param forget: as of Agents
    """
    agents = Agents(state_of, forget)
    replace(migrations.LiveMigrations, '_agents',
            property(lambda migrations: agents))
    # qemu+tcp://dest/system
    replace(peer, 'guest_state', lambda uri, uuid: state_of(
        uri.split('://')[1].split('/')[0], uuid))


def remove_monitors(replace):
    """Have guests without a QEMU, as those of Nova's fixture are.

    :param replace: as above
    """
    def open_guest(host, instance):
        raise LookupError('instance %s has no QEMU here' % instance.uuid)

    replace(guests, 'open_guest', open_guest)


def kept(state_path):
    """Return phases of what a host still has to settle."""
    path = os.path.join(state_path, _OPERATIONS)
    phases = []
    for name in sorted(os.listdir(path)) if os.path.isdir(path) else ():
        try:
            with open(os.path.join(path, name)) as file:
                phase = json.load(file)['operation']['phase']
        except FileNotFoundError:
            # written aside, and renamed meanwhile
            continue
        except ValueError:
            phase = 'damaged'
        if phase != operation.ENDED and not name.startswith('.'):
            phases.append(phase)
    return phases


def end_threads(driver):
    """End the threads that a driver has started, as its process would."""
    driver.dedup.stop()
