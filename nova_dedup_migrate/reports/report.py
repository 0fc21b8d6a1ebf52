# SPDX-License-Identifier: Apache-2.0
"""The report of one live migration.

JSON, one object, the names of the fields below; bytes, pages, seconds
unless a name has another unit.  Times are ISO 8601 in UTC.  null stands
for "not known", in the bands of a prediction for "without end".

VERSION is increased if a field changes its meaning or is removed.  A new
field has a default and needs no new version; unknown fields are dropped,
so that files of a later minor release can be read.
"""

import dataclasses
import datetime

from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.planner import working_set

VERSION = 1
#: running: also if nova-compute was killed and has not started again
OUTCOMES = ('running', 'completed', 'cancelled', 'failed')


@dataclasses.dataclass(frozen=True)
class Paths:
    """Pages or bytes by path; a page counts each time it is sent.

    :ivar peer: sent over the link
    :ivar zero: announced as zero
    :ivar storage: read by the destination from storage
    """

    peer: int = 0
    zero: int = 0
    storage: int = 0


@dataclasses.dataclass(frozen=True)
class Round:
    """One pass over the guest's memory, at its end.

    :ivar number: from 1 on
    :ivar seconds: duration
    :ivar pages: in this round
    :ivar transferred_bytes: over the link, in this round
    :ivar remaining_bytes: not yet at the destination
    :ivar link_rate: bytes/s
    :ivar dirty_rate: bytes/s
    :ivar refused_pages: records refused by the destination, so far
    :ivar resent_pages: sent in full because storage was slower, so far
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
    """Progress of a migration.

    :ivar share: 0 to 1 of the time, predicted; it never falls
    :ivar seconds_left: predicted, null for "without end"
    :ivar at: seconds since the epoch, time of the calculation
    :ivar memory_total: bytes of guest memory; null if QEMU has not begun
    :ivar memory_remaining: bytes of it that the destination lacks
    :ivar disk_total: bytes of disks that this migration copies
    :ivar disk_remaining: bytes of them that are left
    """

    share: float
    seconds_left: float | None
    at: float
    memory_total: int | None = None
    memory_remaining: int | None = None
    disk_total: int | None = None
    disk_remaining: int | None = None


@dataclasses.dataclass(frozen=True)
class PredictionError:
    """Difference between the outcome and the likely value predicted.

    The prediction is the one for strategy_used.

    :ivar time_percent: positive: longer than predicted
    :ivar bytes_percent: positive: more bytes than predicted
    :ivar downtime_ms: positive: a longer downtime than predicted
    """

    time_percent: float | None = None
    bytes_percent: float | None = None
    downtime_ms: float | None = None


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk of a block migration, and where its bytes came from.

    :ivar target: vda
    :ivar size: virtual
    :ivar data: that an ordinary block migration would copy, estimated
    :ivar predicted_seconds: of building and mirroring it; null if not
        known
    :ivar predicted_stock_seconds: of an ordinary block migration
    :ivar sources: bytes proven at the destination, by source
    :ivar build_seconds: that building took
    :ivar proven: bytes that QEMU's mirror was to leave out; null if it was
        to copy everything
    :ivar mirrored: bytes that QEMU's mirror began with; null if it copied
        everything, as an ordinary block migration does
    :ivar reason: why it was not built, in part or at all, or not used
    :ivar image_store: why images of the image store were not read
    """

    target: str
    size: int = 0
    data: int = 0
    predicted_seconds: float | None = None
    predicted_stock_seconds: float | None = None
    sources: dict[str, int] = dataclasses.field(default_factory=dict)
    build_seconds: float | None = None
    proven: int | None = None
    mirrored: int | None = None
    reason: str = ''
    image_store: str = ''


@dataclasses.dataclass(frozen=True)
class ContentIndex:
    """The search of the disks for what the guest's memory holds.

    :ivar outcome: skipped; done; partial: not all disks were read in time;
        refused: by QEMU
    :ivar reason: why it was skipped, refused or partial
    :ivar pages: that were looked for: neither zero nor known otherwise
    :ivar found_pages: of these, pages that were found
    :ivar disk_bytes: size of the disks
    :ivar read_bytes: read of them; the rest is not allocated, was not read
        in time, or all pages had been found
    :ivar memory_bytes: that it took in QEMU
    :ivar seconds: that the migration waited for it
    """

    outcome: str
    reason: str = ''
    pages: int = 0
    found_pages: int = 0
    disk_bytes: int = 0
    read_bytes: int = 0
    memory_bytes: int = 0
    seconds: float = 0.0


@dataclasses.dataclass(frozen=True)
class WorkingSet:
    """What the guest wrote to before it was migrated, and what follows.

    :ivar windows: see planner.working_set.Window, the shortest first
    :ivar link_rate: bytes/s that the expectation is for
    :ivar downtime_ms: expected of an ordinary migration, without devices
    :ivar rounds: before the guest is stopped, likewise
    :ivar converges: whether the downtime is within Nova's limit
    """

    windows: tuple[working_set.Window, ...] = ()
    link_rate: float = 0.0
    downtime_ms: float = 0.0
    rounds: int = 0
    converges: bool = True


@dataclasses.dataclass(frozen=True)
class Report:
    """See the module for units.

    :ivar migration_uuid: as in openstack server migration list
    :ivar instance_uuid: as in openstack server list
    :ivar source: host, as in nova.conf
    :ivar destination: host, as in nova.conf
    :ivar outcome: one of OUTCOMES
    :ivar phase: of the operation, see operations.operation
    :ivar progress: of a running migration; null if not known yet
    :ivar error: of Nova's live migration, '' if it had none
    :ivar strategy_requested: one of planner.facts.STRATEGIES
    :ivar strategy_source: where it is set: flavor, image, nova.conf
    :ivar strategy_used: stock, shared_nas, page_cache, compress
    :ivar fallback_reason: why it is, or became, an ordinary migration
    :ivar page_cache: outcome of the request for the guest's page-cache
        listing, see pagecache.answer; null if the migration failed before
    :ivar content_index: what was found by content; null likewise
    :ivar working_set: null if it was not measured
    :ivar plan: the plan and its predictions; null if the migration failed
        before
    :ivar prediction_error: outcome compared with the prediction; null if
        not completed
    :ivar rounds: passes over memory; the last ones of a very long
        migration are merged
    :ivar pages: by path
    :ivar bytes: guest memory by path
    :ivar link_bytes: bytes of memory migration on the link, without
        mirrored disks
    :ivar digest_failures: pages whose bytes on disk had another digest;
        they were sent over the link
    :ivar storage_failures: pages that the destination could not read;
        they were sent over the link
    :ivar total_time: seconds, from QEMU
    :ivar downtime_ms: milliseconds, from QEMU
    :ivar dedup_source: SourceStatistics of query-x-dedup
    :ivar dedup_incoming: counters of the destination's QEMU
    :ivar disks: of a block migration; empty if disks are not built
    :ivar warnings: errors of this project that did not stop the migration
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
    strategy_requested: str = 'auto'
    strategy_source: str = ''
    strategy_used: str = planner_plan.STOCK
    fallback_reason: str = ''
    page_cache: answer.Answer | None = None
    content_index: ContentIndex | None = None
    working_set: WorkingSet | None = None
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
    disks: tuple[Disk, ...] = ()
    warnings: tuple[str, ...] = ()
    version: int = VERSION
