# SPDX-License-Identifier: Apache-2.0
"""All that the tests here have to do with how the product is made inside."""

import json
import os

from nova_dedup_migrate.compute import migrations
from nova_dedup_migrate.compute import monitored_guest
from nova_dedup_migrate.compute import observer
from nova_dedup_migrate.hypervisor import peer
from nova_dedup_migrate.operations import operation
from nova_dedup_migrate.operations import session
from nova_dedup_migrate.recovery import loop
from nova_dedup_migrate.rpc import errors

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
