# SPDX-License-Identifier: Apache-2.0
"""Settling migrations that no thread runs: observe, decide, act.

One loop, level-triggered::

    at start-up      what an earlier nova-compute has left in the store
    each 30 s        whatever has no owner
    after a failure  at once, when a live migration hands its operation over

It holds every operation of this host that has not ended.  An operation
whose owner is a thread of this process costs a look at the map of owners,
and nothing else; with no operations the loop does nothing at all.
"""

from collections.abc import Callable
from concurrent import futures
import dataclasses
import math
import threading
import time
import typing

from oslo_log import log as logging

from nova_dedup_migrate.operations import errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.recovery import owners
from nova_dedup_migrate.recovery import rules

LOG = logging.getLogger(__name__)

#: Seconds between two looks at operations that wait for nothing special.
INTERVAL_S = 30.0
#: Seconds until a guest is observed again that leaves or arrives, or until
#: an action that does not end the operation is followed up.
SOON_S = 1.0
#: Seconds until something UNKNOWN is observed again.
UNKNOWN_S = 10.0
#: Seconds until Nova's last steps are repeated, doubled each time.
RETRY_S = 5.0
#: Actions that repeat Nova's last steps, of which failures are counted.
_LAST_STEPS = (rules.FINISH, rules.CLOSE, rules.ROLL_BACK)
#: Operations settled at the same time.
_THREADS = 4


class Observer(typing.Protocol):
    """Reads Nova's database and libvirt: compute.observer.Observer."""

    def observe(self, operation: operations.Operation, quiet: float,
                loaded: bool, owner: str = '') -> rules.Observation:
        """Return what is known now.

        :param quiet: seconds without a change of phase and status
        :param loaded: whether an earlier process began it
        :param owner: as whom the caller has claimed it
        :raises: what Nova's database does
        """


class Actions(typing.Protocol):
    """Calls Nova and libvirt: compute.actions.Actions."""

    def act(self, operation: operations.Operation, at: rules.Observation,
            decision: rules.Decision) -> bool:
        """Carry out a Decision.

        :returns: whether the operation has ended
        :raises: what Nova's steps do; the decision can be carried out again
        """


@dataclasses.dataclass
class _Held:
    """An operation that has not ended.

    :ivar loaded: whether an earlier process began it
    :ivar due: monotonic seconds, when it is looked at next
    :ivar state: phase and status at the last look
    :ivar since: monotonic seconds, since when they are so
    :ivar said: the last decision that was logged
    :ivar failures: actions that have failed in a row
    """

    operation: operations.Operation
    loaded: bool
    due: float = 0.0
    state: tuple[str, str] | None = None
    since: float = dataclasses.field(default_factory=time.monotonic)
    said: str = ''
    failures: int = 0


class RecoveryLoop:
    """:param observer: Observer
    :param actions: Actions
    :param held_by: owners.Owners
    :param kept: store.OperationStore
    :param timeout: callable() -> seconds until an unknown guest makes the
        instance go to ERROR
    """

    def __init__(self, observer: Observer, actions: Actions,
                 held_by: owners.Owners, kept: store.OperationStore,
                 timeout: Callable[[], float]) -> None:
        self._observer = observer
        self._actions = actions
        self._owners = held_by
        self._store = kept
        self._timeout = timeout
        self._held: dict[str, _Held] = {}
        self._lock = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None
        self._pool = futures.ThreadPoolExecutor(
            _THREADS, thread_name_prefix='dedup-recovery')

    # Holding

    def hold(self, operation: operations.Operation,
             loaded: bool = False) -> None:
        """Look after an operation until it ends.

        An older one on the same instance is superseded: it is settled as
        the table says.
        """
        with self._lock:
            due = 0.0 if loaded else time.monotonic() + INTERVAL_S
            self._held[operation.migration_uuid] = _Held(operation, loaded,
                                                         due)
            self._start()
            self._lock.notify_all()

    def held(self, instance_uuid: str) -> operations.Operation | None:
        """Return the newest operation on an instance, None if all ended."""
        with self._lock:
            found = self._newest(instance_uuid)
            return found.operation if found is not None else None

    def _newest(self, instance_uuid: str) -> _Held | None:
        return max((one for one in self._held.values()
                    if one.operation.instance_uuid == instance_uuid),
                   key=lambda one: one.operation.durable.started_at,
                   default=None)

    def settle_soon(self, instance_uuid: str) -> None:
        """Look at an operation at once, when it has no owner."""
        with self._lock:
            found = self._newest(instance_uuid)
            if found is not None:
                found.due = 0.0
                operation = found.operation
                if operation.durable.deadline is None:
                    operation.durable.deadline = (time.time()
                                                  + self._timeout())
            self._lock.notify_all()

    def release(self, operation: operations.Operation) -> None:
        """End an operation: write it a last time, hold it no longer."""
        with self._lock:
            found = self._held.get(operation.migration_uuid)
            if found is not None and found.operation is operation:
                del self._held[operation.migration_uuid]
        operation.finish('failed')
        if operation.phase != operations.REQUESTED:
            operation.enter(operations.ENDED)
            return
        try:
            # Nova never began: there is nothing to report.
            self._store.remove(operation.migration_uuid)
        except errors.StoreError as error:
            # The next start-up settles it once more.
            operation.warn('removing the operation', error)

    # The loop

    def stop(self) -> None:
        """Begin nothing more."""
        with self._lock:
            self._stopping = True
            self._lock.notify_all()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> None:
        if self._thread is None and not self._stopping:
            self._thread = threading.Thread(
                target=self._run, daemon=True, name='dedup-recovery')
            self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if self._stopping:
                    return
                now = time.monotonic()
                due = [one for one in self._held.values() if one.due <= now]
                if not due:
                    next_due = min((one.due for one in self._held.values()),
                                   default=math.inf)
                    self._lock.wait(None if next_due == math.inf
                                    else next_due - now)
                    continue
                for one in due:
                    one.due = math.inf
            for one in due:
                try:
                    self._pool.submit(self._settle, one)
                except RuntimeError:
                    # the service is stopping
                    return

    def _settle(self, held: _Held) -> None:
        """Observe, decide and act once; never raises."""
        uuid = held.operation.instance_uuid
        with self._owners.claim(uuid, owners.RECOVERY) as mine:
            if self._held.get(held.operation.migration_uuid) is not held:
                # It has ended since.
                return
            try:
                again = self._look(held) if mine else INTERVAL_S
            except Exception as error:
                LOG.warning(
                    'Live migration %(migration)s of instance %(uuid)s is '
                    'not settled yet: %(error)s',
                    {'migration': held.operation.migration_uuid,
                     'uuid': uuid, 'error': error})
                LOG.debug('Traceback of the error', exc_info=error)
                again = UNKNOWN_S
        with self._lock:
            # settle_soon() may have made it due meanwhile
            held.due = min(held.due, time.monotonic() + again)
            self._lock.notify_all()

    def _look(self, held: _Held) -> float:
        """Return seconds until the next look."""
        operation = held.operation
        at = self._observer.observe(
            operation, time.monotonic() - held.since, held.loaded,
            owners.RECOVERY)
        if at.owner:
            return INTERVAL_S
        if held.state != (at.phase, at.status):
            held.state = at.phase, at.status
            held.since = time.monotonic()
            at = dataclasses.replace(at, quiet=0.0)
        decision = rules.decide(at)
        self._log(held, at, decision)
        if decision.action == rules.LEAVE:
            return INTERVAL_S
        if decision.action == rules.WAIT:
            return self._wait(operation, at)
        if decision.action == rules.ABORT_JOB:
            self._set_deadline(operation)
        try:
            ended = self._actions.act(operation, at, decision)
        except Exception as error:
            return self._failed(held, decision, error)
        held.failures = 0
        if ended:
            self.release(operation)
        return SOON_S

    def _wait(self, operation: operations.Operation,
              at: rules.Observation) -> float:
        if at.phase == operations.REQUESTED and at.quiet < at.patience:
            # The request is waited for, and not an answer.
            return UNKNOWN_S
        self._set_deadline(operation)
        if operation.phase == operations.STUCK:
            return INTERVAL_S
        return (UNKNOWN_S if rules.UNKNOWN in (at.here, at.there)
                else SOON_S)

    def _set_deadline(self, operation: operations.Operation) -> None:
        if operation.durable.deadline is None:
            operation.enter(operation.phase,
                            deadline=time.time() + self._timeout())

    def _failed(self, held: _Held, decision: rules.Decision,
                error: Exception) -> float:
        operation = held.operation
        held.failures += 1
        if decision.action in _LAST_STEPS:
            operation.enter(operation.phase,
                            failures=operation.durable.failures + 1)
        operation.warn('trying to %s' % decision.action, error)
        return typing.cast(float, RETRY_S * 2 ** min(held.failures - 1, 5))

    @staticmethod
    def _log(held: _Held, at: rules.Observation,
             decision: rules.Decision) -> None:
        said = '%s: %s' % (decision.action, decision.why)
        if said == held.said or decision.action == rules.LEAVE:
            return
        held.said = said
        LOG.info('Live migration %(migration)s of instance %(uuid)s '
                 '(%(phase)s, %(status)s) has no thread that runs it. Guest '
                 'on the source: %(here)s, on the destination: %(there)s. '
                 'Decision: %(said)s%(reason)s',
                 {'migration': held.operation.migration_uuid,
                  'uuid': held.operation.instance_uuid, 'phase': at.phase,
                  'status': at.status, 'here': at.here, 'there': at.there,
                  'said': said,
                  'reason': '; ' + at.reason if at.reason else ''})
