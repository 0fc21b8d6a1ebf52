# SPDX-License-Identifier: Apache-2.0
"""A loop that settles operations, in a world that a test makes up."""

from unittest import mock

from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.recovery import loop
from nova_dedup_migrate.recovery import owners
from nova_dedup_migrate.recovery import rules
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.operations import samples

TIMEOUT = 1800
#: Seconds that have to be long enough for nothing to happen.
NEVER = 1e6
#: Of an observation: the guest never left.
STAYED = {'here': rules.PRESENT, 'there': rules.NONE}
_INTERVALS = ('INTERVAL_S', 'SOON_S', 'UNKNOWN_S', 'RETRY_S')


class World(loop.Observer, loop.Actions):
    """What the loop observes, and what it does about it.

    :ivar seen: {migration UUID: fields of its Observation}
    :ivar looks: the migration UUID of each observation
    :ivar acts: the action of each act
    :ivar ends: whether an act ends the operation
    :ivar error: raised by act(), None if it works
    :ivar blind: raised by observe(), None if it works
    """

    def __init__(self, held_by):
        self.seen = {}
        self.looks = []
        self.acts = []
        self.given = []
        self.ends = True
        self.error = None
        self.blind = None
        self._owners = held_by

    def observe(self, operation, quiet, loaded, owner=''):
        self.looks.append(operation.migration_uuid)
        self.given.append((quiet, loaded))
        if self.blind is not None:
            raise self.blind
        durable = operation.durable
        return rules.Observation(**{
            'owner': self._owners.owner(durable.subject, owner),
            'phase': durable.phase, 'failures': durable.failures,
            'quiet': quiet,
            **self.seen.get(operation.migration_uuid, {})})

    def act(self, operation, at, decision):
        self.acts.append(decision.action)
        if self.error is not None:
            raise self.error
        if decision.action == rules.FAIL:
            operation.enter(operations.STUCK)
            return False
        return self.ends


class LoopCase(base.TestCase):

    def setUp(self):
        super().setUp()
        self.queue = set()
        self.owners = owners.Owners(lambda uuid: uuid in self.queue)
        self.world = World(self.owners)
        self.store = store.OperationStore(
            self.temporary_dir() / 'operations', 10)
        self.intervals(NEVER)
        self.loop = loop.RecoveryLoop(self.world, self.world, self.owners,
                                      self.store, lambda: TIMEOUT)
        self.addCleanup(self.loop.stop)
        self.operation = self.make()

    def intervals(self, seconds, *names):
        """Set intervals of the loop, by default all of them."""
        for name in names or _INTERVALS:
            patch = mock.patch.object(loop, name, seconds)
            patch.start()
            self.addCleanup(patch.stop)

    def make(self, **fields):
        made = samples.make(self.store.write, **fields)
        made.save()
        return made

    def see(self, uuid=samples.MIGRATION, **fields):
        self.world.seen[uuid] = fields

    def looked(self, count=1):
        """Wait until it has been observed, and nothing is under way."""
        self.eventually(lambda: len(self.world.looks) >= count
                        and not self.owners._owners, 'a look')

    def ended(self, uuid=samples.INSTANCE):
        self.eventually(lambda: self.loop.held(uuid) is None, 'the end')

    def look(self, held=None):
        """Look once, without the loop's threads; return seconds."""
        return self.loop._look(held or self.hold())

    def hold(self, **given):
        """Hold the operation without starting the thread."""
        with mock.patch.object(self.loop, '_start', autospec=True):
            self.loop.hold(self.operation, **given)
        return self.loop._held[self.operation.migration_uuid]
