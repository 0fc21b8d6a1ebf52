# SPDX-License-Identifier: Apache-2.0
"""One long piece of work on an instance, from its request to its end.

An Operation is the only place in which anybody notes anything about a
live migration: the tasks and the watch write to it, Nova's monitor reads
its figures, recovery reads its phase after a crash, and the report is
made of it.

::

    requested --> preparing --> running --> finishing --> ended
        |             |            |            |
        +-------------+------------+--> rolling back --> ended
                                   |            |
                                   +--> stuck <-+

requested
    The source has agreed to a migration.  Nova prepares the destination.
preparing
    Nova has begun.  Facts are collected, the source's QEMU is armed.
running
    libvirt may have been told to migrate.
finishing, rolling back
    Nova's last steps; they can be repeated from their beginning.
stuck
    The instance is in ERROR with the reason in its fault.  Recovery still
    observes it.

The undo log names what has to be undone on the source if the guest stays.
An entry is written to disk before its side effect.
"""

from collections.abc import Callable
import dataclasses
import threading
import time
import typing

from oslo_log import log as logging

from nova_dedup_migrate.reports import report

LOG = logging.getLogger(__name__)

#: Kinds of operations.
LIVE_MIGRATION = 'live-migration'

REQUESTED = 'requested'
PREPARING = 'preparing'
RUNNING = 'running'
FINISHING = 'finishing'
ROLLING_BACK = 'rolling back'
STUCK = 'stuck'
ENDED = 'ended'
PHASES = (REQUESTED, PREPARING, RUNNING, FINISHING, ROLLING_BACK, STUCK,
          ENDED)

# Entries of the undo log.
#: QEMU keeps the order to leave out pages until a migration starts.
UNDO_ARM = 'disarm QEMU'
#: QEMU keeps the hints that the guest has listed.
UNDO_MAP = 'drop the page-cache map'
#: QEMU records the writes to disks that the destination builds.
UNDO_DISKS = 'forget the watched disks'
#: Nova pauses a guest to complete its migration without post-copy.
UNDO_PAUSE = 'resume the guest'

# Requests that an operator may send before libvirt has a job.
ABORT = 'abort'
FORCE_COMPLETE = 'force-complete'

#: Rounds that are kept one by one; a guest that never converges makes
#: thousands, and then only the newest one is brought up to date.
MAX_ROUNDS = 200
MAX_WARNINGS = 20
#: Seconds between two times that progress alone is written to disk.
SAVE_INTERVAL = 5.0


@dataclasses.dataclass
class Durable:
    """The part of an Operation that outlives the process.

    :ivar id: of a live migration: the UUID of Nova's migration
    :ivar kind: LIVE_MIGRATION
    :ivar subject: UUID of the instance
    :ivar source: host, as Nova names it
    :ivar destination: likewise; '' while Nova has not said
    :ivar strategy: what was asked for
    :ivar strategy_source: by whom: flavor, image, nova.conf
    :ivar phase: one of PHASES
    :ivar phase_since: seconds since the epoch
    :ivar undo: entries of the undo log, the oldest first
    :ivar requests: deferred requests, the oldest first
    :ivar started_at: seconds since the epoch
    :ivar deadline: seconds since the epoch, after which recovery stops
        waiting; None if nothing is waited for
    :ivar failures: how often Nova's last steps have failed
    :ivar progress: how far it is, None if that is not known yet
    :ivar data: what only the kind's owner understands, JSON
    """

    id: str
    kind: str
    subject: str
    source: str
    destination: str
    strategy: str
    strategy_source: str
    phase: str = REQUESTED
    phase_since: float = dataclasses.field(default_factory=time.time)
    undo: list[str] = dataclasses.field(default_factory=list)
    requests: list[str] = dataclasses.field(default_factory=list)
    started_at: float = dataclasses.field(default_factory=time.time)
    deadline: float | None = None
    failures: int = 0
    progress: report.Progress | None = None
    data: dict[str, typing.Any] = dataclasses.field(default_factory=dict)


class Operation:
    """Shared by the thread that runs it, the watch and recovery.

    Attributes are assigned whole, and lists only grow, under the lock.

    :param durable: Durable
    :param save: callable(Operation) that writes it to disk; raises
        operations.errors.StoreUnusable

    :ivar facts: planner.facts.Facts or None
    :ivar page_cache: pagecache.answer.Answer or None
    :ivar content_index: report.ContentIndex or None
    :ivar working_set: report.WorkingSet or None
    :ivar plan: planner.plan.Plan or None
    :ivar operating: whether Nova's own operation has begun
    :ivar latest: the newest hypervisor Progress, None before the first
    :ivar rounds: the last Progress of each round, the oldest first
    :ivar data_remaining: bytes of memory and disks that libvirt's job has
        left, None before the job begins
    :ivar downtime: seconds the guest was stopped, as its events tell; None
        if they did not
    :ivar disks: list of report.Disk, of disks the destination was to build
    :ivar incoming: what the destination's QEMU counted, or None
    :ivar reason: why it is, or became, an ordinary migration; '' if not
    :ivar outcome: completed, cancelled, failed; None while it goes on
    :ivar finished_at: seconds since the epoch, None while it goes on
    :ivar error: the exception that Nova's operation ended with, or None
    :ivar failure: the error of libvirt that Nova has dealt with, or None
    :ivar warnings: sentences about what went wrong in our own part
    :ivar earlier: the report.Report that a process which has ended had
        written last, or None
    """

    def __init__(self, durable: Durable,
                 save: 'Callable[[Operation], None]',
                 earlier: report.Report | None = None) -> None:
        self.durable = durable
        self.earlier = earlier
        self._save = save
        self._saved_at = 0.0
        self._lock = threading.RLock()
        self.facts: typing.Any = None
        self.page_cache: typing.Any = None
        self.content_index: report.ContentIndex | None = None
        self.working_set: report.WorkingSet | None = None
        self.plan: typing.Any = None
        self.operating = False
        self.latest: typing.Any = None
        self.rounds: list[typing.Any] = []
        self.data_remaining: int | None = None
        self.downtime: float | None = None
        self.disks: list[report.Disk] = []
        self.incoming: typing.Any = None
        self.reason = ''
        self.outcome: str | None = None
        self.finished_at: float | None = None
        self.error: Exception | None = None
        self.failure: Exception | None = None
        self.warnings: list[str] = []

    # What it is about

    @property
    def migration_uuid(self) -> str:
        return self.durable.id

    @property
    def instance_uuid(self) -> str:
        return self.durable.subject

    @property
    def source(self) -> str:
        return self.durable.source

    @property
    def destination(self) -> str:
        return self.durable.destination

    @property
    def strategy(self) -> str:
        return self.durable.strategy

    @property
    def strategy_source(self) -> str:
        return self.durable.strategy_source

    @property
    def phase(self) -> str:
        return self.durable.phase

    # What must be on disk

    def save(self) -> None:
        """Write it to disk.

        :raises StoreUnusable:
        """
        with self._lock:
            self._saved_at = time.monotonic()
            self._save(self)

    def enter(self, phase: str, **values: typing.Any) -> None:
        """Write that a phase begins; a disk that fails is a warning.

        :param values: fields of Durable that change with it
        """
        with self._lock:
            if phase != self.durable.phase:
                self.durable.phase_since = time.time()
            self.durable.phase = phase
            for name, value in values.items():
                setattr(self.durable, name, value)
            self._try_to_save()

    def will(self, undo: str) -> None:
        """Write an entry of the undo log, before the side effect.

        :raises StoreUnusable: then the side effect must not happen
        """
        with self._lock:
            if undo not in self.durable.undo:
                self.durable.undo.append(undo)
                try:
                    self.save()
                except Exception:
                    self.durable.undo.remove(undo)
                    raise

    def undone(self, undo: str) -> None:
        """Remove an entry of the undo log: there is nothing to undo."""
        with self._lock:
            if undo in self.durable.undo:
                self.durable.undo.remove(undo)
                self._try_to_save()

    def show(self, progress: report.Progress) -> None:
        """Keep the progress; it is written to disk now and then.

        Its share never falls, whoever has calculated it.
        """
        with self._lock:
            before = self.durable.progress
            if before is not None and before.share > progress.share:
                progress = dataclasses.replace(progress, share=before.share)
            self.durable.progress = progress
            if time.monotonic() - self._saved_at >= SAVE_INTERVAL:
                self._try_to_save()

    def _try_to_save(self) -> None:
        try:
            self.save()
        except Exception as error:
            self.warn('writing the operation to disk', error)

    # What the report is made of

    def see(self, progress: typing.Any) -> None:
        """Take note of a hypervisor Progress."""
        if not progress.rounds:
            # QEMU has not begun: these figures may be an earlier attempt's
            return
        with self._lock:
            self.latest = progress
            if self.rounds and (self.rounds[-1].rounds == progress.rounds
                                or len(self.rounds) >= MAX_ROUNDS):
                self.rounds[-1] = progress
            else:
                self.rounds.append(progress)

    def explain(self, reason: str) -> None:
        """Give the reason for an ordinary migration; the first one counts."""
        with self._lock:
            self.reason = self.reason or reason

    def warn(self, doing: str, error: Exception) -> None:
        """Keep and log what went wrong, without any harm to Nova."""
        sentence = '%s: %s' % (doing, str(error) or type(error).__name__)
        LOG.warning('Live migration %(migration)s of instance %(instance)s '
                    'continues after an error in %(sentence)s',
                    {'migration': self.migration_uuid,
                     'instance': self.instance_uuid, 'sentence': sentence})
        LOG.debug('Traceback of the error in %s', doing, exc_info=error)
        with self._lock:
            if len(self.warnings) < MAX_WARNINGS:
                self.warnings.append(sentence)

    def finish(self, outcome: str) -> None:
        """Take note of the outcome; the first one counts."""
        with self._lock:
            if self.outcome is None:
                self.outcome = outcome
                self.finished_at = time.time()
