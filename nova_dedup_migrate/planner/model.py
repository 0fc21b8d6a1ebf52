# SPDX-License-Identifier: Apache-2.0
"""How a migration goes, calculated.

Iterative pre-copy over a link, and beside it storage that the destination
reads.  The rules are those of QEMU 10.0 (migration/migration.c, ram.c) and
of our part of it (qemu/src/migration/dedup/pace.c):

* A round sends what was dirty when it began.  Meanwhile the guest dirties
  pages: many different ones at first, then more and more often the same,
  W * (1 - exp(-rate * t / W)) for a working set of W bytes.
* The guest is stopped as soon as what is left takes no longer than the
  downtime limit, so a part of the last round is sent in the
  downtime.
* Content and storage are read at the same time.  If the link is done
  first, and is the faster of the two, it takes over from storage so that
  both end together; if storage is the faster one, the link waits.
* If a round has not left less than 90 % of the one before, and the
  downtime limit is adapted (downtime_limit), the guest may be stopped for
  extra_downtime longer than Nova's limit.
* Auto-converge slows the guest from the second round on in which it
  dirties more than half of what was sent, by 20 %, then 10 % more each
  round.
* Nova switches to post-copy, if permitted, when a round has not left
  less than 90 % of the one before (nova.virt.libvirt.migration).
* libvirt mirrors disks before memory, and what the guest writes to them
  later takes its share of the link.

Bytes, seconds and bytes per second.
"""

import dataclasses
import math

from nova_dedup_migrate.planner import downtime_limit

#: In the stream: be64 address and flags of a page; and a zero page.
PAGE_HEADER = 8
ZERO_PAGE = 9
#: Of a record in a batch, mean: digest and its share of the run's header.
RECORD = 17
#: Until the first page is sent: connecting, the peer's answer.
SETUP = 0.1
#: Downtime in which libvirt ends the disks' mirrors.
MIRROR_END = 0.05
#: The source makes digests, and sends nothing meanwhile.
DIGEST = 6e9
#: QEMU looks whether it may stop the guest after so many seconds.
LOOK = 0.05
#: The least share of the link that is left to memory beside mirrors.
LEAST_SHARE = 0.1
_ROUNDS = 2000
_SLOWEST = 0.01

# How a migration ends.
PRECOPY = 'pre-copy'
POSTCOPY = 'post-copy'
ABORTED = 'aborted'
FORCED = 'forced'
NEVER = 'never'


@dataclasses.dataclass(frozen=True)
class Case:
    """What is assumed.

    :ivar unique: memory that only the source has
    :ivar duplicate: memory that is left to storage
    :ivar zero: memory that is zero
    :ivar link: while the guest runs
    :ivar final_link: during the downtime: QEMU keeps no limit then
    :ivar storage: at which the destination reads and verifies
    :ivar dirty_rate: of the guest while it is migrated
    :ivar working_set: the most the guest dirties between two looks
    :ivar dirty_duplicate: share of what gets dirty that is on the disk
        soon, 0 to 1
    :ivar downtime: ((since, limit), ...) in seconds, ascending
    :ivar extra_downtime: seconds by which the limits of downtime may be
        exceeded when rounds no longer leave less
    :ivar max_downtime: seconds, the most that this may lead to
    :ivar left: of the downtime limit's worth of memory, what is left
        when QEMU looks and decides to stop the guest
    :ivar devices: part of the downtime: device state, starting the guest
    :ivar begun: whether it is under way already: without a set-up, and
        unique and duplicate are not all of the memory in use
    :ivar disk_bytes: what is mirrored first
    :ivar disk_write_rate: of the guest, to the disks that are mirrored
    :ivar share: bytes on the link for a byte of page content, 1: as it is
    :ivar compressed_rate: bytes/s of page content that threads compress;
        what exceeds it goes as it is
    """

    unique: float
    duplicate: float
    zero: float
    link: float
    final_link: float
    storage: float
    dirty_rate: float
    working_set: float = math.inf
    page_size: int = 4096
    dirty_duplicate: float = 0.0
    downtime: tuple[tuple[float, float], ...] = ((0.0, 0.3),)
    extra_downtime: float = 0.0
    max_downtime: float = math.inf
    left: float = 0.5
    devices: float = 0.02
    postcopy: bool = False
    auto_converge: bool = False
    timeout: float | None = None
    force_complete: bool = False
    begun: bool = False
    disk_bytes: float = 0.0
    disk_write_rate: float = 0.0
    share: float = 1.0
    compressed_rate: float = math.inf

    def wire(self, link: float) -> float:
        """Return bytes on the link for a byte of page content.

        :param link: its rate
        """
        header = PAGE_HEADER / self.page_size
        if self.share >= 1.0:
            return 1 + header
        if self.compressed_rate * self.share >= link:
            return self.share + header
        # Compressed pages, and beside them so many more as there is room.
        pages = link + self.compressed_rate * (1 - self.share)
        return link / pages + header


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What follows from a Case.

    :ivar bytes: through the link, disks included
    :ivar time: disks included, infinite if it does not end
    :ivar downtime: infinite likewise
    :ivar end: PRECOPY, POSTCOPY, ABORTED, FORCED or NEVER
    :ivar storage_bytes: read by the destination
    """

    bytes: float
    time: float
    downtime: float
    end: str
    storage_bytes: float = 0.0
    disk_bytes: float = 0.0
    disk_time: float = 0.0
    rounds: int = 0


@dataclasses.dataclass(frozen=True)
class _Pass:
    """time, bytes on the link, bytes read from storage."""

    time: float
    bytes: float
    read: float


def migrate(case: Case) -> Outcome:
    """Return the Outcome of a Case."""
    disk_time, disk_bytes, link = _disks(case)
    outcome = _Memory(dataclasses.replace(
        case, link=link, final_link=max(case.final_link, link),
        timeout=(None if case.timeout is None
                 else max(0.0, case.timeout - disk_time)))).run()
    written = (case.disk_write_rate * outcome.time
               if case.disk_bytes and math.isfinite(outcome.time) else 0.0)
    return dataclasses.replace(
        outcome, bytes=outcome.bytes + disk_bytes + written,
        time=outcome.time + disk_time, disk_bytes=disk_bytes + written,
        disk_time=disk_time)


def pass_over(case: Case, unique: float, duplicate: float) -> _Pass:
    """Return time, link bytes and storage bytes for so much memory.

    :param unique: bytes of pages that go through the link
    :param duplicate: bytes of pages that go as records
    """
    page = case.page_size
    wire = case.wire(case.link)
    records = duplicate / page * RECORD
    content = unique * wire + records
    time = content / case.link + duplicate / DIGEST
    if not duplicate:
        return _Pass(time, content, 0.0)
    if duplicate <= case.storage * time:
        return _Pass(time, content, duplicate)
    # Link and storage as rates of memory.
    link = case.link / wire
    if case.storage >= link:
        return _Pass(duplicate / case.storage, content, duplicate)
    both = ((duplicate - case.storage * time) / (link + case.storage))
    resent = link * both
    return _Pass(time + both, content + resent * wire, duplicate - resent)


def _disks(case: Case) -> tuple[float, float, float]:
    """Return time, bytes and what is left of the link for memory."""
    if not case.disk_bytes:
        return 0.0, 0.0, case.link
    left = max(case.link - case.disk_write_rate, LEAST_SHARE * case.link)
    time = case.disk_bytes / left
    return time, time * case.link, left


class _Memory:
    """The rounds over memory."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._time = 0.0 if case.begun else SETUP
        self._bytes = case.zero / case.page_size * ZERO_PAGE
        self._read = 0.0
        self._rounds = 0
        self._hot = 0
        self._wanted = 0.0
        # What remains later on says nothing about how much gets dirty.
        most = math.inf if case.begun else case.unique + case.duplicate
        self._working_set = max(min(most, case.working_set), case.page_size)

    def run(self) -> Outcome:
        """Return the Outcome."""
        case = self._case
        unique, duplicate = case.unique, case.duplicate
        before = math.inf
        while self._rounds < _ROUNDS:
            limit = self._limit()
            # An adapted limit ends rounds; it does not make them longer.
            left = min(unique, limit * case.link * case.left)
            allowed = self._adapted(limit) * case.link
            this = pass_over(case, unique - left, duplicate)
            if self._late(this.time):
                return self._timed_out(unique, duplicate, this)
            self._add(this)
            dirtied = self._dirtied(this)
            pending = left + dirtied
            if pending <= allowed + LOOK * self._dirty_rate():
                return self._end(PRECOPY, pending)
            if (case.postcopy and self._rounds > 1
                    and pending > 0.9 * before):
                return self._end(POSTCOPY, pending)
            if pending > 0.9 * before:
                self._wanted = downtime_limit.MARGIN * pending / case.link
            before = pending
            duplicate = dirtied * case.dirty_duplicate
            unique = pending - duplicate
        return self._endless(before)

    def _add(self, this: _Pass) -> None:
        self._rounds += 1
        self._time += this.time
        self._bytes += this.bytes
        self._read += this.read

    def _limit(self) -> float:
        """Return the downtime limit that Nova has set by now."""
        return max((limit for since, limit in self._case.downtime
                    if since <= self._time), default=0.0)

    def _adapted(self, limit: float) -> float:
        """Return the downtime limit in force, given Nova's."""
        case = self._case
        return max(limit, min(self._wanted, limit + case.extra_downtime,
                              case.max_downtime))

    def _throttle(self) -> float:
        if not self._case.auto_converge or self._hot < 2:
            return 1.0
        return max(0.8 - 0.1 * (self._hot - 2), _SLOWEST)

    def _dirty_rate(self) -> float:
        return self._case.dirty_rate * self._throttle()

    def _dirtied(self, this: _Pass) -> float:
        size = self._working_set
        dirtied = size * -math.expm1(-self._dirty_rate() * this.time / size)
        if dirtied > 0.5 * this.bytes:
            self._hot += 1
        return dirtied

    def _late(self, more: float) -> bool:
        timeout = self._case.timeout
        return timeout is not None and self._time + more > timeout

    def _timed_out(self, unique: float, duplicate: float,
                   this: _Pass) -> Outcome:
        """Nova's completion timeout comes during a pass."""
        case = self._case
        time = max(0.0, (case.timeout or 0.0) - self._time)
        done = time / this.time if this.time else 1.0
        self._add(_Pass(time, this.bytes * done, this.read * done))
        pending = (min(self._working_set,
                       (unique + duplicate) * (1 - done)
                       + self._dirty_rate() * time))
        if not case.force_complete:
            return self._outcome(ABORTED, 0.0, math.inf)
        return self._end(POSTCOPY if case.postcopy else FORCED, pending)

    def _endless(self, pending: float) -> Outcome:
        case = self._case
        if case.timeout is None:
            return Outcome(math.inf, math.inf, math.inf, NEVER, self._read,
                           rounds=self._rounds)
        rest = max(0.0, case.timeout - self._time)
        self._add(_Pass(rest, rest * case.link, 0.0))
        if not case.force_complete:
            return self._outcome(ABORTED, 0.0, math.inf)
        return self._end(POSTCOPY if case.postcopy else FORCED, pending)

    def _end(self, how: str, pending: float) -> Outcome:
        """Send the pending pages, with the guest stopped or moved."""
        case = self._case
        wire = pending * case.wire(case.final_link)
        rest = wire / case.final_link
        stopped = case.devices + (MIRROR_END if case.disk_bytes else 0.0)
        self._bytes += wire
        return self._outcome(
            how, stopped + rest,
            stopped + (0.0 if how == POSTCOPY else rest))

    def _outcome(self, how: str, more: float, downtime: float) -> Outcome:
        return Outcome(self._bytes, self._time + more, downtime, how,
                       self._read, rounds=self._rounds)
