# SPDX-License-Identifier: Apache-2.0
"""What is known about one live migration while it goes on."""

import threading
import time

from oslo_log import log as logging

LOG = logging.getLogger(__name__)

#: Rounds that are kept one by one; a guest that never converges makes
#: thousands, and then only the newest one is brought up to date.
MAX_ROUNDS = 200
MAX_WARNINGS = 20


class MigrationRecord:
    """Written by the tasks and the watch, read for the report.

    The thread that runs the flow, the watch and Nova's monitor share it:
    attributes are assigned whole, and lists only grow, under the lock.

    :ivar migration_uuid: Nova's
    :ivar instance_uuid: Nova's
    :ivar source: name of the host, as Nova knows it
    :ivar destination: likewise
    :ivar strategy: what was asked for
    :ivar strategy_source: by whom: flavor, image, nova.conf
    :ivar started_at: seconds since the epoch
    :ivar finished_at: likewise, None while it goes on
    :ivar facts: planner.facts.Facts or None
    :ivar page_cache: pagecache.answer.Answer or None
    :ivar plan: planner.plan.Plan or None
    :ivar operating: whether Nova's own operation has begun
    :ivar armed: whether the source's QEMU was told to leave out pages
    :ivar latest: the newest hypervisor Progress, None before the first
    :ivar rounds: the last Progress of each round, the oldest first
    :ivar pause: seconds the guest stood still, as its events tell; None
        if they did not
    :ivar incoming: what the destination's QEMU counted, or None
    :ivar reason: why it is, or became, an ordinary migration; '' if not
    :ivar outcome: completed, cancelled, failed; None while it goes on
    :ivar error: the exception that Nova's operation ended with, or None
    :ivar failure: the error of libvirt that Nova has dealt with, or None
    :ivar warnings: sentences about what went wrong in our own part
    """

    def __init__(self, migration_uuid, instance_uuid, source, destination,
                 strategy, strategy_source):
        self.migration_uuid = migration_uuid
        self.instance_uuid = instance_uuid
        self.source = source
        self.destination = destination
        self.strategy = strategy
        self.strategy_source = strategy_source
        self.started_at = time.time()
        self.finished_at = None
        self.facts = None
        self.page_cache = None
        self.plan = None
        self.operating = False
        self.armed = False
        self.latest = None
        self.rounds = []
        self.pause = None
        self.incoming = None
        self.reason = ''
        self.outcome = None
        self.error = None
        self.failure = None
        self.warnings = []
        self._lock = threading.Lock()

    def see(self, progress):
        """Take note of a Progress."""
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

    def explain(self, reason):
        """Say why it is an ordinary migration; the first reason counts."""
        with self._lock:
            self.reason = self.reason or reason

    def warn(self, doing, error):
        """Keep and log what went wrong, without any harm to Nova."""
        sentence = '%s: %s' % (doing, str(error) or type(error).__name__)
        LOG.warning('Live migration %(migration)s of instance %(instance)s '
                    'goes on without dedup help: %(sentence)s',
                    {'migration': self.migration_uuid,
                     'instance': self.instance_uuid, 'sentence': sentence})
        LOG.debug('Where it went wrong', exc_info=error)
        with self._lock:
            if len(self.warnings) < MAX_WARNINGS:
                self.warnings.append(sentence)

    def finish(self, outcome):
        """Take note of the outcome; the first one counts."""
        with self._lock:
            if self.outcome is None:
                self.outcome = outcome
                self.finished_at = time.time()
