# SPDX-License-Identifier: Apache-2.0
"""Migration between two libvirtds, peer to peer.

virDomainMigrateToURI3 lasts as long as the migration, so a thread waits
for it; what it ends with decides the outcome, whatever QEMU says.  When
the guest has arrived its source is gone at once.  So another thread looks
at the source whenever QEMU reports a new status: the last look is what
the final Progress is made of, together with what libvirt hands over to
the destination (virDomainGetJobStats).
"""

import concurrent.futures
import dataclasses
import logging
import threading
import time

import libvirt

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.hypervisor import progress
from testkit import libvirt_job
from testkit import libvirt_options
from testkit import polling

LOG = logging.getLogger(__name__)

#: Seconds libvirt has to start the destination's QEMU and to connect.
_BEGIN_S = 120.0
#: Seconds from the end of the source's QEMU to what libvirt reports.
_OUTCOME_S = 60.0
#: Seconds from the end of the source's QEMU until libvirt at the
#: destination knows that all is there.
_ARRIVAL_S = 10.0
#: What a source is said to do while libvirt has not decided, by what its
#: QEMU says.  libvirt itself ends the stop before the switch-over.
_UNDECIDED = {'completed': 'device', 'failed': 'cancelling',
              'cancelled': 'cancelling', 'pre-switchover': 'device'}


def begin(source, destination, options):
    """Begin to migrate; see Guest.migrate."""
    version = source.host.connection.getLibVersion()
    libvirt_options.check(options, version)
    if destination.is_alive():
        raise errors.InvalidMigrationState(
            action='migrate to a guest that is '
            + destination.run_state(), status='not begun')
    destination.become(source)
    armed = False
    if source.is_patched():
        now = source.dedup_statistics().source
        armed = now is not None and now.state == 'armed'
    migration = LibvirtMigration(source, destination, options, armed)
    migration.begin()
    return migration


class LibvirtMigration(polling.PolledMigration):
    """A migration that was begun.

    :param armed: whether dedup is armed
    """

    def __init__(self, source, destination, options, armed):
        super().__init__(source)
        self._destination = destination
        self._options = options
        self._armed = armed
        self._domain = source.domain()
        self._call = None
        self._mark = 0
        self._cancelled = False
        self._last = progress.Progress()
        self._end = None
        self._given_up = False
        self._lock = threading.Lock()

    def begin(self):
        """Return when QEMU has begun.

        :raises HypervisorRefused: it did not come to that
        """
        with libvirt_monitor.converting(self._source.name, 'prepare'):
            self._domain.migrateSetMaxDowntime(
                self._options.downtime_limit_ms)
        self._run(libvirt_options.flags(self._options,
                                        self._source.unsafe))

    def _run(self, flags):
        events = self._source.events
        self._mark = events.mark()
        self._call = concurrent.futures.Future()
        self._end = None
        self._given_up = False
        arguments = libvirt_options.parameters(
            self._options, self._destination.host.peer_uri)
        arguments.update(self._destination.migration_parameters(
            self._source))
        for target in (lambda: self._migrate(flags, arguments),
                       self._look):
            threading.Thread(target=target, name='migration',
                             daemon=True).start()
        deadline = time.monotonic() + _BEGIN_S
        while not self._has_begun():
            if self._call.done():
                self._call.result()
            if time.monotonic() > deadline:
                self.cancel()
                raise errors.WaitTimeout(what='begin of the migration',
                                         seconds=_BEGIN_S)
            self._sleep(events.mark(), 0.05)

    def _migrate(self, flags, arguments):
        try:
            self._domain.migrateToURI3(self._destination.host.peer_uri,
                                       arguments, flags)
            self._call.set_result(None)
        except libvirt.libvirtError as error:
            # which of the two hosts it speaks of it does not say
            self._call.set_exception(errors.HypervisorRefused(
                action='migrate', name=self._source.name,
                reason=error.get_error_message() or str(error),
                code=error.get_error_code()))
        except BaseException as error:
            self._call.set_exception(error)

    def _has_begun(self):
        return any(event.name == 'MIGRATION'
                   for event in self._source.events.since(self._mark))

    def _look(self):
        """Look at the source at each of its events, until it is over."""
        call = self._call
        while not call.done():
            mark = self._source.events.mark()
            try:
                self._ask()
            except errors.HypervisorError:
                # there is nothing to be seen any more
                return
            self._sleep(mark, 1.0)

    def _ask(self):
        now = self._source.progress(dedup=self._armed)
        if not self._has_begun():
            # these are the figures of an earlier migration
            now = progress.Progress(status='setup')
        with self._lock:
            self._last = now
        return now

    def progress(self):
        if self._call.done():
            return self._final()
        try:
            now = self._ask()
        except (errors.QmpDisconnected, errors.GuestNotRunning,
                errors.HypervisorUnavailable) as error:
            # the call ends as well, but maybe not in the same moment
            try:
                self._outcome(_OUTCOME_S)
            except errors.WaitTimeout:
                raise errors.MigrationFailed(
                    name=self._source.name, status='source lost',
                    reason=error) from error
            return self._final()
        return dataclasses.replace(
            self._with_eta(now),
            status=_UNDECIDED.get(now.status, now.status))

    def _outcome(self, timeout):
        """Wait until libvirt knows how it ended."""
        try:
            self._call.exception(timeout)
        except concurrent.futures.TimeoutError as error:
            raise errors.WaitTimeout(what='the end that libvirt sees',
                                     seconds=timeout) from error

    def _final(self):
        """Return the Progress that follows from the call's outcome."""
        error = self._call.exception()
        with self._lock:
            if self._end is not None:
                return self._end
            last = self._last
        if error is None:
            end = self._completed(last)
        elif self._given_up or self._is_paused_postcopy():
            self._given_up = True
            end = self._unattended(last, error)
            if not end.finished:
                return end
        else:
            end = _ended(last, 'cancelled' if self._cancelled else 'failed',
                         error)
        with self._lock:
            self._end = end
        return end

    def _unattended(self, last, error):
        """Return the Progress of a post-copy that libvirt has given up.

        QEMU may go on all the same: a libvirt that does not know the
        status postcopy-recover-setup may take a recovery for failed.  It
        takes note of the end when QEMU has completed.
        """
        try:
            now = self._ask()
        except (errors.QmpDisconnected, errors.GuestNotRunning):
            if self._has_arrived():
                return self._completed(last)
            return _ended(last, 'failed', error)
        if now.status == 'postcopy-paused':
            return dataclasses.replace(now, error=str(error))
        return dataclasses.replace(
            self._with_eta(now),
            status=_UNDECIDED.get(now.status, now.status))

    def _has_arrived(self):
        """Whether the destination has all of the guest, not just runs it."""
        deadline = time.monotonic() + _ARRIVAL_S
        while time.monotonic() < deadline:
            try:
                return (self._destination.progress(dedup=False).status
                        == 'completed')
            except errors.InvalidMigrationState:
                # libvirt still takes it for incoming
                time.sleep(0.1)
            except errors.HypervisorError:
                return False
        return False

    def _completed(self, last):
        try:
            return libvirt_job.complete(
                last, self._destination.job_statistics())
        except errors.HypervisorError as error:
            # nothing that could make it less completed
            LOG.info('No statistics of the migration of %s: %s',
                     self._source.name, error)
            return libvirt_job.complete(last, {})

    def _is_paused_postcopy(self):
        try:
            return self._domain.state() == [
                libvirt.VIR_DOMAIN_PAUSED,
                libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED]
        except libvirt.libvirtError:
            return False

    def _settle(self, now, deadline):
        # libvirt has done it
        pass

    def _failed(self, now):
        return errors.MigrationFailed(name=self._source.name,
                                      status=now.status, reason=now.error)

    def set_rate(self, bytes_per_second):
        with libvirt_monitor.converting(self._source.name, 'set the rate'):
            self._domain.migrateSetMaxSpeed(
                libvirt_options.mib_per_s(bytes_per_second))

    def cancel(self, timeout=60.0):
        status = self.progress().status
        if status in progress.POSTCOPY:
            raise errors.InvalidMigrationState(action='cancel',
                                               status=status)
        self._cancelled = True
        try:
            self._domain.abortJob()
        except libvirt.libvirtError as error:
            if error.get_error_code() not in (
                    libvirt.VIR_ERR_OPERATION_INVALID,
                    libvirt.VIR_ERR_NO_DOMAIN):
                raise libvirt_monitor.convert(
                    error, self._source.name, 'cancel') from error
            # it is over, or will be in a moment
        return self.wait_status(progress.FINAL, timeout)

    def start_postcopy(self, timeout=60.0):
        self.wait_status(('active', *progress.FINAL), timeout)
        mark = self._destination.events.mark()
        with libvirt_monitor.converting(self._source.name,
                                        'start post-copy'):
            self._domain.migrateStartPostCopy()
        self.wait_status(('postcopy-active', 'completed'), timeout)
        if not self._options.paused:
            # The destination survives a broken link only once it has
            # loaded all devices.
            self._destination.events.wait('RESUME', mark, timeout)
        return self.progress()

    def proceed(self):
        raise errors.NotOffered(
            option='pause_before_switchover', value=True,
            reason='libvirt keeps this stop for itself')

    def interrupt(self, timeout=60.0):
        guests = self._source, self._destination
        marks = [guest.events.mark() for guest in guests]
        with libvirt_monitor.converting(self._source.name, 'interrupt'):
            self._domain.abortJobFlags(
                libvirt.VIR_DOMAIN_ABORT_JOB_POSTCOPY)
        self._wait_interrupted(guests, marks, timeout)
        self._outcome(timeout)

    def recover(self, timeout=60.0):
        self._run(libvirt_options.flags(self._options, self._source.unsafe)
                  | libvirt.VIR_MIGRATE_POSTCOPY_RESUME)
        return self.wait_status(('postcopy-active', 'completed'), timeout)


def _ended(last, status, error):
    return dataclasses.replace(last, status=status, eta_s=None,
                               error=str(error))
