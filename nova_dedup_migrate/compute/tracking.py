# SPDX-License-Identifier: Apache-2.0
"""Switching the recording of guest I/O on and off.

Guests start, resume and arrive in many of Nova's paths, and some are
started by others.  All of them end in a lifecycle event of libvirt, so
that is what tracking follows.  It is done in threads of its own: neither
Nova's operation nor its event loop waits for QEMU.

One instance is worked on by one thread at a time; an event that comes
meanwhile makes it look again.
"""

import concurrent.futures
import threading

from oslo_log import log as logging

from nova_dedup_migrate.hypervisor import errors

LOG = logging.getLogger(__name__)

_THREADS = 4


class Tracker:
    """Keeps tracking as it is wanted.

    :param resolve: callable(instance UUID) -> (hypervisor.base.Guest,
        whether to track it); raises LookupError for what is no instance
        of this host
    :param busy: callable(instance UUID) -> whether it is being migrated
    """

    def __init__(self, resolve, busy):
        self._resolve = resolve
        self._busy = busy
        self._pool = concurrent.futures.ThreadPoolExecutor(
            _THREADS, thread_name_prefix='dedup-track')
        self._lock = threading.Lock()
        self._again = {}
        self._complained = set()

    def stop(self):
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def look(self, uuid):
        """Have tracking of an instance put right soon; never raises."""
        with self._lock:
            if uuid in self._again:
                self._again[uuid] = True
                return
            self._again[uuid] = False
        try:
            self._pool.submit(self._work, uuid)
        except RuntimeError:
            # the service is stopping
            with self._lock:
                self._again.pop(uuid, None)

    def _work(self, uuid):
        while True:
            try:
                self.apply(uuid)
                self._complained.discard(uuid)
            except (LookupError, errors.QmpDisconnected,
                    errors.GuestNotRunning, errors.DedupNotSupported,
                    errors.InvalidMigrationState):
                # Gone again, not Nova's, a stock QEMU, or still arriving,
                # and then another event will tell when it has.
                pass
            except Exception as error:
                self._complain(uuid, error)
            with self._lock:
                if not self._again[uuid]:
                    del self._again[uuid]
                    return
                self._again[uuid] = False

    def apply(self, uuid):
        """Put an instance right now: tracking, and nothing left armed."""
        guest, wanted = self._resolve(uuid)
        now = guest.dedup_statistics()
        if now.tracking != wanted:
            guest.track_dedup(wanted)
            LOG.info('Recording of guest I/O is %(state)s for instance '
                     '%(uuid)s', {'state': 'on' if wanted else 'off',
                                  'uuid': uuid})
        if (now.source is not None and now.source.state == 'armed'
                and not self._busy(uuid)):
            # by a nova-compute that was killed before the migration began
            guest.disarm_dedup()

    def _complain(self, uuid, error):
        # once, until it has worked again: guests are paused often
        if uuid not in self._complained:
            self._complained.add(uuid)
            LOG.warning('Recording of guest I/O could not be switched for '
                        'instance %(uuid)s: %(error)s',
                        {'uuid': uuid, 'error': error})
