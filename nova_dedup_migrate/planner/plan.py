# SPDX-License-Identifier: Apache-2.0
"""What a migration does, and what is expected of it."""

import dataclasses
import math

#: The strategy that leaves nothing out: an ordinary migration.
STOCK = 'stock'
SHARED_NAS = 'shared_nas'
PAGE_CACHE = 'page_cache'
SNAPSHOT = 'snapshot'
#: Leaves nothing out either, and compresses what is sent.
COMPRESS = 'compress'


@dataclasses.dataclass(frozen=True)
class Band:
    """A figure that is not known exactly.

    The outcome should lie between low and high in nine cases of ten;
    likely is what to plan with.  math.inf stands for never.
    """

    low: float
    likely: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def endless(self) -> bool:
        """Whether it is not expected to end."""
        return math.isinf(self.likely)


@dataclasses.dataclass(frozen=True)
class Prediction:
    """What a migration is expected to take.

    :ivar bytes: on the link, block migration included
    :ivar time: seconds from the start of QEMU's migration, block
        migration included, until the guest runs at the destination
        alone; infinite if pre-copy does not converge and nothing ends it
    :ivar downtime: seconds in which the guest does not run
    :ivar converges: whether pre-copy gets to its end, auto-converge
        included; if not, post-copy or Nova's completion timeout ends it,
        which the band allows for
    :ivar end: how it ends, see planner.model: pre-copy, post-copy,
        aborted (then nothing has been migrated), forced, never
    :ivar storage_bytes: what the destination reads from storage
    :ivar disk_bytes: of bytes, what the block migration takes
    :ivar disk_time: of time, likewise
    """

    bytes: Band
    time: Band
    downtime: Band
    converges: bool = True
    end: str = 'pre-copy'
    storage_bytes: float = 0.0
    disk_bytes: float = 0.0
    disk_time: float = 0.0

    @property
    def completes(self) -> bool:
        """Whether the guest gets to the destination."""
        return self.end not in ('aborted', 'never')


@dataclasses.dataclass(frozen=True)
class PlanDisk:
    """An exception for one disk, as x-dedup-arm takes it.

    :ivar device: qdev id or QOM path
    :ivar copy: shared or own
    :ivar use: False to send every page of it in full
    """

    device: str
    copy: str
    use: bool = True


@dataclasses.dataclass(frozen=True)
class Plan:
    """The planner's decision for one migration.

    :ivar strategy: stock, shared_nas, page_cache, compress
    :ivar disks: exceptions to copy, argument disks of x-dedup-arm
    :ivar copy: default of x-dedup-arm
    :ivar resend: whether the link may take over from storage
    :ivar prediction: of this plan
    :ivar stock: of stock, for comparison
    :ivar explanation: sentences for the operator
    :ivar reason: why it is stock although another strategy was set, or why
        it is another one than was set; '' otherwise
    :ivar max_downtime_limit_ms: the highest downtime limit that may be set
        while it runs, see downtime_limit; None: Nova's limits are left as
        they are
    :ivar fetch_rate: bytes/s the destination may read, 0: no limit
    :ivar fetch_iops: reads a second it may begin, 0: no limit
    :ivar fetch_in_postcopy: whether it goes on reading in post-copy
    :ivar defer_redirtied_pages: whether a page that is written to again
        waits for the next round
    :ivar compression_threads: that may compress what goes through the
        link; 0: nothing is compressed
    """

    strategy: str
    prediction: Prediction
    stock: Prediction
    disks: tuple[PlanDisk, ...] = ()
    copy: str = 'shared'
    resend: bool = True
    explanation: tuple[str, ...] = ()
    reason: str = ''
    max_downtime_limit_ms: float | None = None
    fetch_rate: int = 0
    fetch_iops: int = 0
    fetch_in_postcopy: bool = False
    defer_redirtied_pages: bool = False
    compression_threads: int = 0
