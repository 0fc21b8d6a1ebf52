# SPDX-License-Identifier: Apache-2.0
"""The facts a migration is planned with.

Plain values, collected by compute/facts_collector and the agents.  They
may be wrong, out of date or come from a hostile guest; planner.normal
brings them into bounds before anything is calculated.  None means that a
value is not known; planner.predict has an assumption for each of those.

Bytes, seconds and bytes per second, unless a name says otherwise.
"""

import dataclasses

from nova_dedup_migrate.planner import working_set

#: What an operator may choose.
STRATEGIES = ('auto', 'shared_nas', 'page_cache', 'snapshot', 'compress',
              'off')
#: Likewise: whether pages that go through the link are compressed.
COMPRESSIONS = ('auto', 'zstd', 'off')
CONTENT_INDEXES = ('off', 'auto', 'on')

#: Where the destination finds the bytes of a disk.
SHARED = 'shared'
OWN = 'own'
NONE = 'none'


@dataclasses.dataclass(frozen=True)
class Disk:
    """One disk of the instance.

    :ivar device: its name for x-dedup-arm: qdev ID or QOM path
    :ivar target: its name in libvirt: vda
    :ivar copy: shared (the destination opens the same bytes), own (this
        migration mirrors it) or none
    :ivar reason: why copy is none
    :ivar size: virtual size
    :ivar to_copy: bytes of it that the block migration sends (copy is own)
    :ivar storage_rate: bytes/s at which the destination reads it in
        sequence
    :ivar scattered_rate: the same for single blocks of 4 KiB, far apart
    :ivar hint_pages: guest pages with a hint to this disk
    :ivar valid_share: 0 to 1, share of these whose bytes are still those
        on the disk, from a sample
    """

    device: str
    target: str
    copy: str
    reason: str = ''
    size: float = 0
    to_copy: float = 0
    storage_rate: float | None = None
    scattered_rate: float | None = None
    hint_pages: int | None = None
    valid_share: float | None = None


@dataclasses.dataclass(frozen=True)
class End:
    """One host, and the QEMU that runs or will run the guest there.

    :ivar host: its name in Nova
    :ivar patched: whether this QEMU can leave pages out
    :ivar version: of QEMU
    :ivar reason: why it cannot: no agent, stock QEMU, timeout ...
    :ivar processors: those that are idle, on average; None: not known
    """

    host: str
    patched: bool
    version: str = ''
    reason: str = ''
    processors: float | None = None


@dataclasses.dataclass(frozen=True)
class Guest:
    """The guest's memory.

    :ivar memory: RAM it was given
    :ivar resident: part of memory that QEMU has touched, its own needs
        included (RSS); the rest is zero
    :ivar in_use: part of memory that is not zero, estimated; None if only
        resident is known
    :ivar in_use_error: standard error of in_use
    :ivar hint_pages: pages with a hint, to whichever disk
    :ivar valid_share: 0 to 1, share of these whose bytes are still those
        on the disk; a disk's own share takes precedence
    :ivar dirty_rate: bytes/s the guest writes to memory
    :ivar map_pages: pages that the guest has listed as its page cache;
        hint_pages counts them, Disk.hint_pages may not
    :ivar index_pages: of map_pages, those found by content
    :ivar map_reason: why there are none
    :ivar disk_write_rate: bytes/s the guest writes to its disks
    :ivar compressed_share: 0 to 1, what remains of a byte of memory that
        storage does not hold, from a sample; None: not known
    :ivar windows: of its working set; empty: not measured
    """

    memory: float
    resident: float
    hint_pages: int
    dirty_rate: float
    page_size: int = 4096
    map_pages: int = 0
    index_pages: int = 0
    map_reason: str = 'the guest was not asked for its page cache'
    disk_write_rate: float | None = None
    in_use: float | None = None
    in_use_error: float = 0.0
    valid_share: float | None = None
    compressed_share: float | None = None
    windows: tuple[working_set.Window, ...] = ()


@dataclasses.dataclass(frozen=True)
class Link:
    """The network between the hosts.

    :ivar configured: live_migration_bandwidth, a limit of each migration;
        None for no limit
    :ivar measured: by a probe or an earlier migration
    :ivar host_limit: link_bandwidth of nova.conf
    :ivar sharers: other migrations under way to the same host; they share
        its link and its storage
    """

    configured: float | None = None
    measured: float | None = None
    host_limit: float | None = None
    sharers: int = 0


#: Seconds that libvirt adds to the downtime: measured in the lab.
SWITCH_OVER = 0.15


@dataclasses.dataclass(frozen=True)
class Options:
    """How Nova will run this migration.

    :ivar downtime_ms: live_migration_downtime, the highest downtime limit
        that Nova sets
    :ivar downtime_steps: (seconds since the start, milliseconds) of the
        limits that Nova sets one after the other up to downtime_ms, as of
        downtime_steps() of nova.virt.libvirt.migration; empty: downtime_ms
        from the start
    :ivar adapt_downtime_limit: whether the limit is raised before Nova's
        next step if rounds no longer leave less, see downtime_limit
    :ivar max_extra_downtime_ms: milliseconds that a migration may take
        longer than Nova's in its downtime
    :ivar switch_over: seconds of the downtime that libvirt's own steps
        take
    :ivar multifd_channels: 0 for the plain stream
    :ivar postcopy: whether Nova may switch to post-copy
    :ivar auto_converge: whether QEMU may slow the guest down
    :ivar block_migration: whether libvirt mirrors disks
    :ivar timeout: live_migration_completion_timeout for this guest, None
        or 0 for none
    :ivar force_complete: what happens at timeout: True force-completes
        (post-copy, or the guest is stopped), False aborts
    :ivar strategy: one of STRATEGIES
    :ivar strategy_source: where it was set: flavor, image, nova.conf
    :ivar min_gain: share of stock's time, 0 to 1, that a strategy must
        save to be chosen
    :ivar fetch_share: of the rate of storage that fetches may take
    :ivar fetch_rate: bytes/s they may take instead, 0: fetch_share
    :ivar fetch_iops: reads a second, 0: no limit
    :ivar fetch_in_postcopy: whether fetches go on in post-copy
    :ivar defer_redirtied_pages: whether pages that are written to again
        wait for the next round
    :ivar compression: one of COMPRESSIONS
    :ivar compression_source: where it was set, as strategy_source
    """

    downtime_ms: float = 500
    downtime_steps: tuple[tuple[float, float], ...] = ()
    adapt_downtime_limit: bool = True
    max_extra_downtime_ms: float = 50.0
    switch_over: float = 0.0
    multifd_channels: int = 0
    postcopy: bool = False
    auto_converge: bool = False
    tls: bool = False
    block_migration: bool = False
    timeout: float | None = None
    force_complete: bool = False
    strategy: str = 'auto'
    strategy_source: str = 'nova.conf'
    min_gain: float = 0.05
    fetch_share: float = 1.0
    fetch_rate: int = 0
    fetch_iops: int = 0
    fetch_in_postcopy: bool = False
    defer_redirtied_pages: bool = False
    compression: str = 'auto'
    compression_source: str = 'nova.conf'


@dataclasses.dataclass(frozen=True)
class Facts:
    """All of it, for one migration."""

    guest: Guest
    disks: tuple[Disk, ...]
    source: End
    destination: End
    link: Link = Link()
    options: Options = Options()
