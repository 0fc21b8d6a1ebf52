# SPDX-License-Identifier: Apache-2.0
"""A live migration while a thread of this process runs it.

::

    preparing --> operating --> libvirt called --> job seen --> over
        |              |
        +-- abort: rolled back at once
                       +-- abort, force-complete: once there is a job

Nova's status is running before libvirt has a job for the migration, and
facts are collected in that time.  A request that comes then is deferred
instead of being refused.

The session ends a migration itself only if it is certain how it went:
libvirt's operation has succeeded, or libvirt has the guest on the source.
In all other cases, and if one of Nova's last steps fails, it leaves the
operation to recovery, which observes and decides (recovery/rules.py).
Nova's thread, and its slot for live migrations, are free then.
"""

from collections.abc import Callable
import threading
import typing

import libvirt
from oslo_log import log as logging

from nova_dedup_migrate.operations import operation as operations

LOG = logging.getLogger(__name__)

#: Seconds in which libvirt's operation ends after the guest has vanished.
OPERATION_S = 30.0
#: Seconds in which it ends after Nova's monitor has seen the job fail.
_END_S = 5.0


class Session:
    """What the driver's methods share while they migrate an instance.

    :param operation: the Operation
    :param instance: nova.objects.Instance, as Nova's thread has it
    :param migrate_data: nova.objects.LibvirtLiveMigrateData, likewise
    :param post_method: Nova's steps after a guest has arrived
    :param recover_method: Nova's steps after a guest has stayed
    :param force_complete: callable that has Nova's monitor complete it
    :param forget_guest: callable(Operation): the destination forgets a
        guest that has not arrived
    """

    def __init__(self, operation: operations.Operation,
                 instance: typing.Any, migrate_data: typing.Any,
                 post_method: Callable[..., None],
                 recover_method: Callable[..., None],
                 force_complete: Callable[[], None],
                 forget_guest: Callable[[operations.Operation], None]
                 ) -> None:
        self.operation = operation
        self._instance = instance
        self._migrate_data = migrate_data
        self._post_method = post_method
        self._recover_method = recover_method
        self._force_complete = force_complete
        self._forget_guest = forget_guest
        self._operated = threading.Event()
        self._lock = threading.Lock()
        self._begun = False
        self._called = False
        self._job_seen = False
        self._over = False
        self._cancelled = False
        self._settled = False

    @property
    def settled(self) -> bool:
        """Whether Nova has come to the end of its last steps."""
        return self._settled

    # Requests

    @property
    def begun(self) -> bool:
        """Whether Nova's operation has begun."""
        return self._begun

    def begin(self) -> bool:
        """Return whether Nova's operation is still wanted.

        From then on a request waits for libvirt's job.
        """
        with self._lock:
            self._begun = (operations.ABORT
                           not in self.operation.durable.requests)
            if self._begun:
                self.operation.enter(operations.RUNNING)
            else:
                self._cancelled = True
            return self._begun

    def defer(self, request: str) -> bool:
        """Keep a request for later: ABORT or FORCE_COMPLETE.

        :returns: False if it is too late for that
        """
        with self._lock:
            if self._job_seen or self._over:
                return False
            operation = self.operation
            operation.enter(operation.phase, requests=[
                *operation.durable.requests, request])
            return True

    def see_job(self, guest: typing.Any) -> None:
        """Carry out what was deferred, now that libvirt has a job.

        :param guest: nova.virt.libvirt.guest.Guest
        """
        with self._lock:
            if self._job_seen:
                return
            self._job_seen = True
            requests = list(self.operation.durable.requests)
        if operations.ABORT in requests:
            try:
                guest.abort_job()
            except libvirt.libvirtError as error:
                LOG.warning('Live migration %(migration)s of instance '
                            '%(uuid)s could not be aborted: %(error)s',
                            {'migration': self.operation.migration_uuid,
                             'uuid': self.operation.instance_uuid,
                             'error': error})
        elif requests:
            self._force_complete()

    # libvirt's operation

    def call(self) -> bool:
        """Return whether libvirt may be called to migrate."""
        with self._lock:
            self._called = not self._over
            return self._called

    def operation_failed(self, error: Exception) -> None:
        """Take note of the error of libvirt's operation.

        :param error: libvirt's, or Nova's own before or after the call
        """
        self.operation.failure = error
        if (isinstance(error, libvirt.libvirtError)
                and error.get_error_code()
                == libvirt.VIR_ERR_OPERATION_ABORTED):
            self._cancelled = True

    def operation_ended(self) -> None:
        """Take note that libvirt's operation is over, however."""
        self._operated.set()

    # Nova's last steps

    def recover(self, context: typing.Any, _instance: typing.Any, dest: str,
                _migrate_data: typing.Any,
                migration_status: str = 'failed') -> None:
        """Nova's recover_method, with the status that is true.

        Nova's monitor sees that a migration was cancelled only if it
        happens to look in the right moment.
        """
        if self._cancelled:
            migration_status = 'cancelled'
        self._end(migration_status)
        self.operation.enter(operations.ROLLING_BACK)
        if self._called:
            # The destination is done when libvirt's call returns.
            self._operated.wait(_END_S)
            self._forget_guest(self.operation)
        self._last_steps(self._recover_method, context, self._instance, dest,
                         self._migrate_data,
                         migration_status=migration_status)

    def complete(self, context: typing.Any, _instance: typing.Any, dest: str,
                 block_migration: bool, _migrate_data: typing.Any) -> None:
        """Nova's post_method, if libvirt has confirmed the migration.

        Nova's monitor takes a guest that has vanished for one that has
        arrived.  Its QEMU may as well have died.
        """
        ended = self._operated.wait(OPERATION_S)
        if not ended or self.operation.failure is not None:
            LOG.warning(
                'Live migration %(migration)s: the guest has left %(source)s '
                'but libvirt has not confirmed that it runs on %(dest)s: '
                '%(error)s. Recovery decides.',
                {'migration': self.operation.migration_uuid,
                 'source': self.operation.source, 'dest': dest,
                 'error': self.operation.failure or
                 'its call has not returned in %d s' % OPERATION_S},
                instance=self._instance)
            return
        self._end('completed')
        self.operation.enter(operations.FINISHING)
        self._last_steps(self._post_method, context, self._instance, dest,
                         block_migration, self._migrate_data)

    def _last_steps(self, method: Callable[..., None],
                    *args: typing.Any, **kwargs: typing.Any) -> None:
        """Do what Nova does last; if it fails, recovery repeats it."""
        try:
            method(*args, **kwargs)
        except Exception as error:
            self.operation.warn("Nova's last steps", error)
            self.operation.durable.failures += 1
            return
        self._settled = True

    def _end(self, outcome: str) -> None:
        """Take note of the outcome; requests come too late now."""
        with self._lock:
            self._over = True
        self.operation.finish(outcome)

    def fail(self, error: Exception) -> None:
        """Take note of an error in Nova's own thread: recovery decides."""
        with self._lock:
            self._over = True
        self.operation.warn("running Nova's live migration", error)
