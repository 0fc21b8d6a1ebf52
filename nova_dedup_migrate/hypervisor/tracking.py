# SPDX-License-Identifier: Apache-2.0
"""Switching the recording of guest I/O on and off.

Guests start, resume and arrive in many of Nova's paths, and some are
started by others.  All of them end in a lifecycle event of libvirt, so
that is what tracking follows.  It is done in threads of its own: neither
Nova's operation nor its event loop waits for QEMU.

One instance is worked on by one thread at a time; an event that comes
meanwhile makes it look again.
"""

from collections.abc import Callable
from collections.abc import Iterable
import concurrent.futures
import threading
import typing

from oslo_log import log as logging

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors

LOG = logging.getLogger(__name__)

_THREADS = 4
#: Gone again, not Nova's, a stock QEMU, or still arriving, and then another
#: event comes when it has.
_EXPECTED = (LookupError, errors.QmpDisconnected, errors.GuestNotRunning,
             errors.DedupNotSupported, errors.InvalidMigrationState)


class Resolve(typing.Protocol):
    """How an instance is found."""

    def __call__(self, uuid: str, wanted: bool | None) -> tuple[
            hypervisor.Guest, bool]:
        """Return (guest, whether to track it).

        :param wanted: None if that is not known yet
        :raises LookupError: this host has no such guest
        """


class Tracker:
    """Keeps tracking as it is wanted.

    :param resolve: Resolve
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._pool = concurrent.futures.ThreadPoolExecutor(
            _THREADS, thread_name_prefix='dedup-track')
        self._lock = threading.Lock()
        self._again: dict[str, bool] = {}
        self._complained: set[str] = set()

    def stop(self) -> None:
        """Begin nothing more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def look(self, uuid: str, wanted: bool | None = None) -> None:
        """Have tracking of an instance put right soon; never raises.

        :param wanted: whether to track it, None if that is not known yet
        """
        with self._lock:
            if uuid in self._again:
                self._again[uuid] = True
                return
            self._again[uuid] = False
        try:
            self._pool.submit(self._work, uuid, wanted)
        except RuntimeError:
            # the service is stopping
            with self._lock:
                self._again.pop(uuid, None)

    def look_at_all(self, uuids: Iterable[str],
                    wanted: Callable[[], dict[str, bool]]) -> None:
        """Put all guests of this host right soon; never waits.

        :param wanted: callable that returns {instance UUID: whether to
            track it}; what it does not name is not tracked
        """
        self._pool.submit(self._work_on_all, list(uuids), wanted)

    def _work_on_all(self, uuids: list[str],
                     wanted: Callable[[], dict[str, bool]]) -> None:
        try:
            known = wanted()
        except Exception as error:
            LOG.warning('Recording of guest I/O is not switched for the %d '
                        'guests that run already: %s', len(uuids), error)
            return
        for uuid in uuids:
            self.look(uuid, known.get(uuid, False))

    def _work(self, uuid: str, wanted: bool | None) -> None:
        while True:
            try:
                self.apply(uuid, wanted)
                self._complained.discard(uuid)
            except _EXPECTED:
                pass
            except Exception as error:
                self._complain(uuid, error)
            wanted = None
            with self._lock:
                if not self._again[uuid]:
                    del self._again[uuid]
                    return
                self._again[uuid] = False

    def apply(self, uuid: str, wanted: bool | None = None) -> None:
        """Switch tracking of an instance as it is wanted."""
        guest, wanted = self._resolve(uuid, wanted)
        if guest.dedup_statistics().tracking != wanted:
            guest.track_dedup(wanted)
            LOG.info('Recording of guest I/O is %(state)s for instance '
                     '%(uuid)s', {'state': 'on' if wanted else 'off',
                                  'uuid': uuid})

    def _complain(self, uuid: str, error: Exception) -> None:
        # once, until it has worked again: guests are paused often
        if uuid not in self._complained:
            self._complained.add(uuid)
            LOG.warning('Recording of guest I/O could not be switched for '
                        'instance %(uuid)s: %(error)s',
                        {'uuid': uuid, 'error': error})
