# SPDX-License-Identifier: Apache-2.0
"""One attempt to migrate an instance, as the driver's methods share it.

::

    preparing --> operating --> libvirt called --> job seen --> over
        |              |
        +-- abort: rolled back at once
                       +-- abort, force-complete: once there is a job
                       +-- an error before libvirt was called: rolled back

Nova says that a migration is running before libvirt has a job for it,
and facts are gathered in that time.  A request that comes then is kept
instead of being refused.

Nova's monitor takes a guest that has vanished here for one that has
arrived there.  It may as well have died.  Where libvirt's operation has
failed, the destination is asked, and what it says decides between Nova's
two methods: the wrong one would look for the instance where it is not,
and remove its disks.

A guest that has arrived runs, also where nova-compute of the destination
does not answer then, or where the message bus or a libvirtd is away.  Nova
would set ERROR on it.  So that error is kept here, and the migration is
settled when there is an answer (recovery.py).
"""

import threading
import time

import libvirt
from oslo_log import log as logging

from nova_dedup_migrate.compute import waiting
from nova_dedup_migrate.rpc import errors

LOG = logging.getLogger(__name__)

#: Seconds in which libvirt's operation ends after the guest has vanished.
OPERATION_S = 30.0
#: Seconds in which a destination decides what becomes of an arriving guest.
ARRIVAL_S = 60.0
#: Seconds in which it ends after Nova's monitor has seen the job fail.
_END_S = 5.0
_INTERVAL_S = 1.0


class Attempt:
    """What became of one attempt.

    :param record: tasks.record.MigrationRecord
    :param force_complete: callable that asks Nova's monitor to complete
    :param state_there: callable(context) -> one of
        rpc.objects.GUEST_STATES; raises rpc.errors.AgentUnavailable
    :param forget_there: callable(context) that has libvirt forget a guest
        that does not run there; never raises
    """

    def __init__(self, record, force_complete, state_there, forget_there):
        self.record = record
        self._force_complete = force_complete
        self._state_there = state_there
        self._forget_there = forget_there
        self._operated = threading.Event()
        self._lock = threading.Lock()
        self._begun = False
        self._entered = False
        self._seen = False
        self._over = False
        self._wishes = []
        self._cancelled = False
        self._unsaved = False
        self._unsettled = False
        self._failure = 'failed'

    @property
    def begun(self):
        """Whether Nova's operation has begun."""
        return self._begun

    @property
    def unsettled(self):
        """Whether Nova did not come to the end of its last steps."""
        return self._unsettled

    @property
    def failure(self):
        """The status of the migration, if the guest has stayed."""
        return self._failure

    def begin(self):
        """Return whether Nova's operation is still wanted.

        From then on a request waits for libvirt's job.
        """
        with self._lock:
            self._begun = 'abort' not in self._wishes
            if not self._begun:
                self._cancelled = True
            return self._begun

    def enter(self):
        """Return whether libvirt may still be told to migrate."""
        with self._lock:
            self._entered = not self._over
            return self._entered

    def give_up(self, error):
        """Return whether an error came before libvirt was told to migrate.

        Nova would set ERROR on the instance, which goes on as if nothing
        had been asked for.  Once given up, libvirt is not told any more.
        """
        with self._lock:
            if self._entered or self._over:
                return False
            self._over = True
        LOG.warning('The migration of instance %(uuid)s did not begin: '
                    '%(error)s', {'uuid': self.record.instance_uuid,
                                  'error': error})
        self.record.warn('beginning', error)
        return True

    def wish(self, what):
        """Keep a request for later: abort or force-complete.

        :returns: False if it is too late for that
        """
        with self._lock:
            if self._seen or self._over:
                return False
            self._wishes.append(what)
            return True

    def job_seen(self, guest):
        """Carry out what was wished for, now that libvirt has a job."""
        with self._lock:
            self._seen = True
            wishes, self._wishes = self._wishes, []
        if 'abort' in wishes:
            try:
                guest.abort_job()
            except libvirt.libvirtError as error:
                LOG.warning('Failed to cancel the migration of instance '
                            '%(uuid)s: %(error)s',
                            {'uuid': self.record.instance_uuid,
                             'error': error})
        elif wishes:
            self._force_complete()

    def goes_on(self, error):
        """Return whether Nova's monitor has to look on after an error.

        Not where it came of what Nova does when all is over.
        """
        with self._lock:
            if self._over:
                return False
            first, self._unsaved = not self._unsaved, True
        LOG.warning('Figures of the migration of instance %(uuid)s could '
                    'not be saved: %(error)s',
                    {'uuid': self.record.instance_uuid, 'error': error})
        if first:
            self.record.warn("saving Nova's figures", error)
        time.sleep(_INTERVAL_S)
        return True

    def operation_failed(self, error):
        """Take note of the libvirtError that libvirt's operation gave."""
        self.record.failure = error
        if error.get_error_code() == libvirt.VIR_ERR_OPERATION_ABORTED:
            self._cancelled = True

    def operation_ended(self):
        """Take note that libvirt's operation is over, however."""
        self._operated.set()

    def recovering(self, recover_method):
        """Return Nova's recover_method with the status that is true.

        Nova's monitor knows that a migration was cancelled only if it
        happens to look in the right moment.
        """
        def recover(context, *args, **kwargs):
            if self._cancelled:
                kwargs['migration_status'] = 'cancelled'
            self._failure = kwargs.get('migration_status', self._failure)
            self.over(self._failure)
            if self._entered:
                # It is done there when libvirt says so here.
                self._operated.wait(_END_S)
                self._forget_there(context)
            self._last_steps(recover_method, context, *args, **kwargs)
        return recover

    def completing(self, post_method, recover_method):
        """Return what to call for Nova's post_method.

        :param recover_method: as recovering() returned it
        """
        def complete(context, instance, dest, block_migration, migrate_data):
            if self._came_to_nothing(context):
                LOG.error('The migration has failed: the guest is not at '
                          '%(dest)s, whatever became of it here: %(error)s',
                          {'dest': dest, 'error': self.record.failure},
                          instance=instance)
                recover_method(context, instance, dest, migrate_data)
                return
            self.over('completed')
            self._last_steps(post_method, context, instance, dest,
                             block_migration, migrate_data)
        return complete

    def _last_steps(self, method, context, *args, **kwargs):
        """Do what Nova does last, as far as there are answers."""
        try:
            method(context, *args, **kwargs)
        except waiting.AWAY as error:
            self._unsettled = True
            LOG.error('The migration of instance %(uuid)s is over, and Nova '
                      'could not take note of it: %(error)s',
                      {'uuid': self.record.instance_uuid, 'error': error})
            self.record.warn('having Nova take note', error)

    def _came_to_nothing(self, context):
        """Whether the guest is certainly not at the destination."""
        self._operated.wait(OPERATION_S)
        if self.record.failure is None:
            return False
        deadline = time.monotonic() + ARRIVAL_S
        try:
            while (state := self._state_there(context)) == 'arriving':
                if time.monotonic() > deadline:
                    return False
                time.sleep(_INTERVAL_S)
        except errors.AgentUnavailable as error:
            self.record.warn('asking whether the guest has arrived',
                                error)
            return False
        return state == 'none'

    def over(self, outcome):
        """Take note of the outcome; nothing is wished for any more."""
        with self._lock:
            self._over = True
        self.record.finish(outcome)
