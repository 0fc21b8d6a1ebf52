# SPDX-License-Identifier: Apache-2.0
"""Operations for tests."""

from nova_dedup_migrate.operations import operation as operations

MIGRATION = '6f0f5d0e-2c5c-4d9c-8d5e-0c7f2f4f9a11'
INSTANCE = 'c0a9f1f7-1d33-4d2a-9a3e-1f0b7f1e6d10'
STARTED = 1800000000.0
#: Fields of Operation that are not of its Durable.
_OWN = ('facts', 'plan', 'page_cache', 'failure', 'error', 'outcome',
        'finished_at', 'warnings')


class Disk:
    """What an Operation writes to, in place of the store.

    :ivar written: the phase and the undo log, each time it was written
    :ivar error: raised instead, None if it works
    """

    def __init__(self):
        self.written = []
        self.error = None

    def save(self, operation):
        if self.error is not None:
            raise self.error
        self.written.append((operation.phase, *operation.durable.undo))


def durable(**fields):
    """Return the Durable of a migration that runs since STARTED."""
    return operations.Durable(**{
        'id': MIGRATION, 'kind': operations.LIVE_MIGRATION,
        'subject': INSTANCE, 'source': 'compute1',
        'destination': 'compute2', 'strategy': 'auto',
        'strategy_source': 'flavor', 'phase': operations.RUNNING,
        'phase_since': STARTED, 'started_at': STARTED, **fields})


def make(save=None, earlier=None, **fields):
    """Return an Operation that runs since STARTED.

    :param save: callable(Operation); by default it does nothing
    :param earlier: the Report of an earlier process
    :param fields: of the Operation or its Durable
    """
    own = {name: fields.pop(name) for name in _OWN if name in fields}
    made = operations.Operation(durable(**fields),
                                save or Disk().save, earlier)
    for name, value in own.items():
        setattr(made, name, value)
    return made
