# SPDX-License-Identifier: Apache-2.0
"""What is known before a migration.

Plain values, gathered by others (compute/, agent/).  They may be wrong,
out of date or come from a hostile guest; planner.normal brings them into
bounds before anything is calculated.

Bytes, seconds and bytes per second, unless a name says otherwise.
"""

import dataclasses

#: What an operator may ask for.
STRATEGIES = ('auto', 'shared_nas', 'page_cache', 'snapshot', 'off')

#: Where the destination finds the bytes of a disk.
SHARED = 'shared'
OWN = 'own'
NONE = 'none'


@dataclasses.dataclass(frozen=True)
class Disk:
    """One disk of the instance.

    :ivar device: what x-dedup-arm calls it: qdev id or QOM path
    :ivar target: what libvirt calls it: vda
    :ivar copy: shared (the destination opens the same bytes), own (this
        migration mirrors it) or none
    :ivar reason: why copy is none
    :ivar size: virtual size
    :ivar to_copy: what the block migration has to send of it (copy is
        own)
    :ivar storage_rate: bytes/s at which the destination reads it, None
        if that was not measured
    """

    device: str
    target: str
    copy: str
    reason: str = ''
    size: int = 0
    to_copy: int = 0
    storage_rate: float | None = None


@dataclasses.dataclass(frozen=True)
class End:
    """One host, and the QEMU that is or will be on it.

    :ivar host: its name in Nova
    :ivar patched: whether this QEMU takes part
    :ivar version: of QEMU
    :ivar reason: why it does not: no agent, stock QEMU, time-out ...
    """

    host: str
    patched: bool
    version: str = ''
    reason: str = ''


@dataclasses.dataclass(frozen=True)
class Guest:
    """The guest's memory.

    :ivar memory: RAM it was given
    :ivar resident: of that, what QEMU has touched, its own needs included
        (RSS); the rest is zero
    :ivar in_use: of that, what is not zero, estimated; None if there is
        only resident to go by
    :ivar in_use_error: standard error of in_use
    :ivar hint_pages: pages with a hint (query-x-dedup)
    :ivar dirty_rate: bytes/s, measured just before the migration
    :ivar map_pages: of hint_pages, those the guest has listed as its page
        cache
    :ivar map_reason: why there are none
    :ivar disk_write_rate: bytes/s the guest writes to its disks, None if
        that was not measured
    """

    memory: int
    resident: int
    hint_pages: int
    dirty_rate: float
    page_size: int = 4096
    map_pages: int = 0
    map_reason: str = 'the guest was not asked what it caches'
    disk_write_rate: float | None = None
    in_use: float | None = None
    in_use_error: float = 0.0


@dataclasses.dataclass(frozen=True)
class Link:
    """What migration traffic may use between the hosts.

    :ivar configured: live_migration_bandwidth, None for no limit
    :ivar measured: by a probe or an earlier migration, None if unknown
    :ivar host_limit: an operator's word on what the network carries,
        None for none
    """

    configured: float | None = None
    measured: float | None = None
    host_limit: float | None = None


@dataclasses.dataclass(frozen=True)
class Options:
    """How Nova will run this migration.

    :ivar downtime_ms: the longest pause Nova lets QEMU aim at
    :ivar downtime_steps: (seconds since the start, milliseconds) of
        Nova's way up to downtime_ms, as of downtime_steps() of
        nova.virt.libvirt.migration; empty: downtime_ms from the start
    :ivar switch_over: seconds of the pause that go into steps between
        libvirt and QEMU
    :ivar multifd_channels: 0 for the plain stream
    :ivar postcopy: whether Nova may switch to post-copy
    :ivar auto_converge: whether QEMU may slow the guest down
    :ivar block_migration: whether libvirt mirrors disks
    :ivar timeout: live_migration_completion_timeout for this guest, None
        or 0 for none
    :ivar force_complete: what happens at timeout: True force-completes
        (post-copy or a pause), False aborts
    :ivar strategy: one of STRATEGIES
    :ivar strategy_source: who asked for it: flavor, image, nova.conf
    :ivar min_gain: share of stock's time, 0 to 1, that a strategy must
        save to be chosen
    """

    downtime_ms: int = 500
    downtime_steps: tuple[tuple[float, float], ...] = ()
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


@dataclasses.dataclass(frozen=True)
class Facts:
    """All of it, for one migration."""

    guest: Guest
    disks: tuple[Disk, ...]
    source: End
    destination: End
    link: Link = Link()
    options: Options = Options()
