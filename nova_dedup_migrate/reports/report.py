# SPDX-License-Identifier: Apache-2.0
"""The report of one live migration.

JSON, one object, the names of the fields below; bytes, pages, seconds
unless a name says otherwise.  Times are ISO 8601 in UTC.  null stands
for "not known"; of a prediction's bands for "never".

VERSION grows when a field changes its meaning or goes away.  A field
that is added has a default and changes nothing; fields that are not
known are dropped, so that files of a later minor release can be read.
"""

import dataclasses
import datetime

from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.planner import plan as planner_plan

VERSION = 1
#: running: the migration goes on, or nova-compute was killed meanwhile
OUTCOMES = ('running', 'completed', 'cancelled', 'failed')


@dataclasses.dataclass(frozen=True)
class Paths:
    """Pages or bytes by the path they took, as often as they went.

    :ivar peer: content through the link
    :ivar zero: known to be zero
    :ivar storage: read by the destination from its storage
    """

    peer: int = 0
    zero: int = 0
    storage: int = 0


@dataclasses.dataclass(frozen=True)
class Round:
    """One pass over the guest's memory, at its end.

    :ivar number: from 1 on
    :ivar seconds: how long it took
    :ivar pages: in this round
    :ivar transferred_bytes: through the link, in this round
    :ivar remaining_bytes: still missing at the destination
    :ivar link_rate: bytes/s
    :ivar dirty_rate: bytes/s
    :ivar refused_pages: records the destination could not use, so far
    :ivar resent_pages: sent in full as storage was slower, so far
    """

    number: int
    seconds: float = 0.0
    pages: Paths = Paths()
    transferred_bytes: int = 0
    remaining_bytes: int = 0
    link_rate: float = 0.0
    dirty_rate: float = 0.0
    refused_pages: int = 0
    resent_pages: int = 0


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a migration is.

    :ivar share: 0 to 1 of what is to be moved, disks included; it can
        fall, as the guest goes on writing
    :ivar seconds_left: predicted, null if there is no end in sight
    :ivar at: seconds since the epoch, when that was calculated
    """

    share: float
    seconds_left: float | None
    at: float


@dataclasses.dataclass(frozen=True)
class PredictionError:
    """How far the outcome was from the likely value of the prediction.

    The prediction is that of the strategy that was used in the end.

    :ivar time_percent: positive: it took longer than predicted
    :ivar bytes_percent: positive: more went through the link
    :ivar downtime_ms: positive: the pause was longer
    """

    time_percent: float | None = None
    bytes_percent: float | None = None
    downtime_ms: float | None = None


@dataclasses.dataclass(frozen=True)
class Report:
    """See the module for units.

    :ivar migration_uuid: Nova's
    :ivar instance_uuid: Nova's
    :ivar source: host, as Nova knows it
    :ivar destination: host, as Nova knows it
    :ivar outcome: one of OUTCOMES
    :ivar phase: of the operation, see operations.operation
    :ivar progress: of a migration that goes on; null if not known yet
    :ivar error: what Nova's operation failed with, ''
    :ivar strategy_asked: auto, shared_nas, page_cache, snapshot, off
    :ivar strategy_source: by whom: flavor, image, nova.conf
    :ivar strategy_used: stock, shared_nas ...: what it was in the end
    :ivar fallback_reason: why it is, or became, an ordinary migration
    :ivar page_cache: what became of asking the guest what it caches, see
        pagecache.answer; null if it never came to that
    :ivar plan: what was planned and predicted; null if it never came to
        that
    :ivar prediction_error: prediction against outcome, of a completed
        migration
    :ivar rounds: pass by pass; the last ones of very long migrations are
        one
    :ivar pages: by path
    :ivar bytes: by path; peer: memory content, zero: memory that was only
        said to be zero, storage: read there and placed
    :ivar link_bytes: what memory took on the link; what libvirt mirrors
        of disks is not in it
    :ivar digest_failures: pages that did not hold what was announced;
        they were sent in full
    :ivar storage_failures: pages that could not be read; likewise
    :ivar total_time: seconds, as QEMU counts; null if it was not seen
    :ivar downtime_ms: the guest's pause
    :ivar dedup_source: SourceStatistics of query-x-dedup
    :ivar dedup_incoming: what the destination's QEMU counted
    :ivar warnings: what went wrong in our own part, sentences
    """

    migration_uuid: str
    instance_uuid: str
    source: str
    destination: str
    started_at: datetime.datetime
    finished_at: datetime.datetime | None = None
    outcome: str = 'running'
    phase: str = ''
    progress: Progress | None = None
    error: str = ''
    strategy_asked: str = 'auto'
    strategy_source: str = ''
    strategy_used: str = planner_plan.STOCK
    fallback_reason: str = ''
    page_cache: answer.Answer | None = None
    plan: planner_plan.Plan | None = None
    prediction_error: PredictionError | None = None
    rounds: tuple[Round, ...] = ()
    pages: Paths = Paths()
    bytes: Paths = Paths()
    link_bytes: int | None = None
    digest_failures: int = 0
    storage_failures: int = 0
    total_time: float | None = None
    downtime_ms: int | None = None
    dedup_source: dict[str, int | str | None] | None = None
    dedup_incoming: dict[str, int | str | bool | None] | None = None
    warnings: tuple[str, ...] = ()
    version: int = VERSION
