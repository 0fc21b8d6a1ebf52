# SPDX-License-Identifier: Apache-2.0
"""All that the tests here have to do with how compute/ is made inside."""

import os

from nova_dedup_migrate.compute import overdue
from nova_dedup_migrate.compute import peer
from nova_dedup_migrate.compute import service
from nova_dedup_migrate.compute import stranded
from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.rpc import errors


def hurry(replace):
    """Have what waits for tens of seconds wait for a moment.

    :param replace: callable(object, name of its attribute, new value)
    """
    replace(overdue, 'LOOK_S', 0.2)
    replace(overdue, 'PATIENCE_S', 1.0)
    replace(stranded, 'PREPARED_S', 0.1)
    replace(stranded, 'WAIT_S', 3.0)
    replace(waiting, 'RETRY_S', 0.2)


def replace_agents(replace, state_of, forget):
    """Have a host's agent, and its libvirt, replaced by callables.

    :param replace: as above
    :param state_of: callable(host, instance UUID) -> one of
        rpc.objects.GUEST_STATES, None if it does not answer
    :param forget: callable(host, instance UUID)
    """
    def state_at(ours, host, uuid, context):
        state = state_of(host, uuid)
        if state is None:
            raise errors.AgentUnavailable(
                host=host, reason='it does not answer')
        return state

    replace(service.DedupMigrate, '_state_at', state_at)
    replace(service.DedupMigrate, '_forget_at',
            lambda ours, host, uuid, context: forget(host, uuid))
    replace(peer, 'guest_state', lambda uri, uuid: None)


def kept(state_path):
    """Return paths of what a host still keeps about migrations."""
    path = os.path.join(state_path, 'dedup_migrate', 'under-way')
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def end_threads(driver):
    """End the threads that a driver has started, as its process would."""
    driver.dedup.stop()
