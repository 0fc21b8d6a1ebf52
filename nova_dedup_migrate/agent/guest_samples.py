# SPDX-License-Identifier: Apache-2.0
"""Figures of the guests of this host, kept for their next migration.

Guests whose QEMU records their I/O are sampled now and then, one at a
time.  To the others nothing is done, so that an instance with strategy
off, or with a stock QEMU, costs nothing:

* libvirt counts a guest as tainted from its first QMP command on.  One
  that is not has never been told to record its I/O and gets no command.
* QEMU itself says whether it records.  If it did not in two sweeps, it
  gets no command any more, until somebody requests its figures.

Their working sets are measured as well, when working_sets says so.  That takes
minutes and must not delay a sample, nor take its place: a sample's dirty rate
decides how a migration goes.  So it has nothing in common with samples but the
guest: no lock, no thread, and no measurement of QEMU's.

Nothing is sampled now and then while a migration of or to this host is
under way: each would slow the other down.  A request is always served.
"""

from __future__ import annotations

from collections.abc import Callable
import dataclasses
import functools
import logging
import threading
import time

import libvirt

from nova_dedup_migrate import deadline
from nova_dedup_migrate.agent import written
from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt as libvirt_guest
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.hypervisor import survey
from nova_dedup_migrate.planner import working_set

LOG = logging.getLogger(__name__)

#: Seconds for which a guest is measured.
SECONDS = 1
#: Seconds for all of a sample that nobody waits for.
_PATIENCE = 10.0
#: Sweeps after which a QEMU that does not record I/O is left alone.
_SWEEPS = 2
#: Samples that run at a time if they are requested.
_QEMU = deadline.Runner('QEMU', 8)
#: Looks at the memory that run at a time; never in the way of samples.
_LOOKS = deadline.Runner('QEMU', 8)


@dataclasses.dataclass(frozen=True)
class Sample:
    """:ivar taken: time.monotonic()
    :ivar found: survey.Survey
    """

    taken: float
    found: survey.Survey


class _Guest:
    """What is known of one QEMU process.

    :ivar turn: held while it is sampled
    :ivar sweeps: in which it did not record I/O
    :ivar records: whether it recorded I/O in the last sweep
    :ivar history: written.History
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.turn = threading.Lock()
        self.sweeps = 0
        self.records = False
        self.sample: Sample | None = None
        self.history = written.History()


class GuestSamples:
    """Samples by instance.

    :param host: LibvirtHost of this host
    :param is_busy: callable, whether a migration is under way here
    """

    def __init__(self, host: libvirt_host.LibvirtHost,
                 is_busy: Callable[[], bool]) -> None:
        self._host = host
        self._is_busy = is_busy
        self._guests: dict[str, _Guest] = {}
        self._guard = threading.Lock()

    def sample(self, uuid: str, max_age: float, patience: float
               ) -> tuple[Sample | None, str]:
        """Return the Sample of a guest, or None and why.

        :param max_age: seconds; an older one is not returned
        :param patience: seconds it may take to make a new one
        """
        try:
            return _QEMU.run(patience, self._sample, uuid, max_age), ''
        except (errors.HypervisorError, deadline.Late) as error:
            return None, str(error)

    def last(self, uuid: str) -> Sample | None:
        """Return the newest Sample of a guest, however old; None: none."""
        with self._guard:
            known = self._guests.get(uuid)
        return None if known is None else known.sample

    def sweep(self, is_over: Callable[[], bool]) -> None:
        """Sample all guests that record I/O, unless a migration runs.

        :param is_over: whether to stop
        :raises HypervisorError: libvirt does not answer
        """
        with libvirt_monitor.converting('of this host', 'list'):
            domains = self._host.connection.listAllDomains(
                libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
        self._prune(domains)
        for domain in domains:
            if is_over():
                return
            try:
                known = self._known(domain.UUIDString(), domain.ID())
                known.records = self._records(domain, known)
                if known.records:
                    if self._is_busy():
                        return
                    _QEMU.run(_PATIENCE, self._sample, domain.UUIDString(),
                              0.0)
            except (libvirt.libvirtError, errors.HypervisorError,
                    deadline.Late) as error:
                # It may have ended; the next sweep is soon.
                LOG.debug('Instance %s was not sampled: %s',
                          domain.UUIDString(), error)

    def recording(self) -> list[str]:
        """Return the guests that recorded I/O in the last sweep."""
        with self._guard:
            return [uuid for uuid, known in self._guests.items()
                    if known.records]

    def windows(self, uuid: str) -> tuple[working_set.Window, ...]:
        """Return what is known of the working set of a guest."""
        with self._guard:
            known = self._guests.get(uuid)
        return () if known is None else known.history.windows()

    def measure(self, uuid: str, wait: Callable[[float], object]) -> None:
        """Measure the working set of a guest, unless a migration runs.

        :param wait: waits so many seconds; true: measure no longer
        :raises HypervisorError, deadline.Late: QEMU does not do it
        """
        if self._is_busy():
            return
        domain, known, running = self._here(uuid)
        if not running:
            return
        guest = libvirt_guest.LibvirtGuest.from_domain(domain, self._host)
        for found in digests.measure(
                functools.partial(_LOOKS.run, _PATIENCE, guest.page_digests,
                                  known.history.seed),
                working_set.WINDOWS,
                lambda seconds: wait(seconds) or self._is_busy()):
            known.history.add(found)

    def _here(self, uuid: str) -> tuple[libvirt.virDomain, _Guest, bool]:
        """Return a guest that runs on this host, and whether its CPUs run.

        :raises HypervisorError: it does not
        """
        domain = self._host.domain(uuid, uuid)
        with libvirt_monitor.converting(uuid, 'sample'):
            state = libvirt_monitor.guest_state(domain)
            number = domain.ID()
            running = domain.state()[0] == libvirt.VIR_DOMAIN_RUNNING
        if state != 'here' or number < 0:
            raise errors.GuestNotRunning(name=uuid)
        return domain, self._known(uuid, number), running

    def _sample(self, uuid: str, max_age: float) -> Sample:
        domain, known, running = self._here(uuid)
        with known.turn:
            if known.sample is not None and (
                    time.monotonic() - known.sample.taken <= max_age):
                return known.sample
            guest = libvirt_guest.LibvirtGuest.from_domain(domain,
                                                           self._host)
            # A stock QEMU gets no command but this one.
            guest.dedup_statistics()
            known.sweeps = 0
            found = survey.survey(guest, SECONDS, running)
            for what, error in found.warnings:
                LOG.info('Instance %s: %s failed: %s', uuid, what, error)
            known.sample = Sample(time.monotonic(), found)
            return known.sample

    def _known(self, uuid: str, number: int) -> _Guest:
        """Return the _Guest of a domain; of an earlier QEMU all is void."""
        with self._guard:
            known = self._guests.get(uuid)
            if known is None or known.number != number:
                known = self._guests[uuid] = _Guest(number)
            return known

    def _prune(self, domains: list[libvirt.virDomain]) -> None:
        there = {domain.UUIDString() for domain in domains}
        with self._guard:
            for uuid in set(self._guests) - there:
                del self._guests[uuid]

    def _records(self, domain: libvirt.virDomain, known: _Guest) -> bool:
        """Whether the QEMU of a domain records I/O.

        :raises libvirtError, HypervisorError:
        """
        if known.sweeps >= _SWEEPS:
            return False
        known.sweeps += 1
        if not domain.messages(libvirt.VIR_DOMAIN_MESSAGE_TAINTING):
            return False
        if libvirt_monitor.is_incoming(domain):
            return False
        guest = libvirt_guest.LibvirtGuest.from_domain(domain, self._host)
        try:
            records = guest.dedup_statistics().tracking
        except errors.DedupNotSupported:
            # This process will never do it.
            known.sweeps = _SWEEPS
            return False
        if records:
            known.sweeps = 0
        return records
