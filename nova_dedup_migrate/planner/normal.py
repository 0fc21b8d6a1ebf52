# SPDX-License-Identifier: Apache-2.0
"""Facts within bounds.

Facts come from QEMU, from another host and from options, and some from
the guest in the end.  A value that is not a number, negative, absurd or
at odds with another fact is replaced here by one that is safe to
calculate with, so that the rest of the planner need not check again.
"""

import dataclasses
from typing import Any

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import working_set

#: Bytes; no guest and no disk is larger.
MAX_BYTES = float(1 << 56)
#: Bytes per second; faster is as good as this.
MAX_RATE = 1e12
#: Seconds
MAX_TIME = 1e9
MAX_DISKS = 512
MAX_SHARERS = 1000
MAX_PROCESSORS = 65536.0
_PAGE_SIZES = (4096, 8192, 16384, 65536)
_MAX_STEPS = 1000
_MAX_WINDOWS = 16


def number(value: Any, high: float, default: float = 0.0) -> float:
    """Return value as a float from 0 to high, default if it is none."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return default
    # Compared as they are: an int may be too large for a float.
    if not value >= 0:
        return default
    return float(min(value, high))


def rate(value: Any) -> float | None:
    """Return a rate in bytes/s, None if it is not known."""
    return number(value, MAX_RATE) or None


def share(value: Any) -> float | None:
    """Return a share from 0 to 1, None if it is not known."""
    return None if value is None else number(value, 1.0)


def pages(value: Any, page_size: int) -> int:
    """Return a number of pages."""
    return int(number(value, MAX_BYTES / page_size))


def normal(given: facts.Facts) -> facts.Facts:
    """Return Facts with everything in bounds."""
    return dataclasses.replace(
        given, guest=_guest(given.guest),
        disks=tuple(map(_disk, given.disks[:MAX_DISKS])),
        source=_end(given.source), destination=_end(given.destination),
        link=facts.Link(configured=rate(given.link.configured),
                        measured=rate(given.link.measured),
                        host_limit=rate(given.link.host_limit),
                        sharers=int(number(given.link.sharers,
                                           MAX_SHARERS))),
        options=_options(given.options))


def _guest(guest: facts.Guest) -> facts.Guest:
    page = guest.page_size if guest.page_size in _PAGE_SIZES else 4096
    memory = number(guest.memory, MAX_BYTES)
    # An RSS of nothing is one that was not found out.
    resident = min(number(guest.resident, MAX_BYTES) or memory, memory)
    in_use = guest.in_use
    if in_use is not None:
        in_use = min(number(in_use, MAX_BYTES, memory), memory)
    hints = min(pages(guest.hint_pages, page),
                int((resident if in_use is None else in_use) // page))
    written = guest.disk_write_rate
    return facts.Guest(
        memory=memory, resident=resident, hint_pages=hints,
        dirty_rate=number(guest.dirty_rate, MAX_RATE), page_size=page,
        map_pages=min(pages(guest.map_pages, page), hints),
        index_pages=min(pages(guest.index_pages, page), hints),
        map_reason=str(guest.map_reason)[:500],
        disk_write_rate=(None if written is None
                         else number(written, MAX_RATE)),
        in_use=in_use,
        in_use_error=min(number(guest.in_use_error, MAX_BYTES), memory),
        valid_share=share(guest.valid_share),
        compressed_share=share(guest.compressed_share),
        windows=tuple(
            working_set.Window(*(number(value, most) for value, most in (
                (one.seconds, MAX_TIME), (one.bytes, memory),
                (one.most, memory), (one.age, MAX_TIME))))
            for one in guest.windows[:_MAX_WINDOWS]
            if number(one.seconds, MAX_TIME) >= 1.0))


def _end(end: facts.End) -> facts.End:
    return dataclasses.replace(
        end, processors=(None if end.processors is None
                         else number(end.processors, MAX_PROCESSORS)))


def _disk(disk: facts.Disk) -> facts.Disk:
    return dataclasses.replace(
        disk, copy=(disk.copy if disk.copy in (facts.SHARED, facts.OWN)
                    else facts.NONE),
        size=number(disk.size, MAX_BYTES),
        to_copy=number(disk.to_copy, MAX_BYTES),
        storage_rate=rate(disk.storage_rate),
        scattered_rate=rate(disk.scattered_rate),
        hint_pages=(None if disk.hint_pages is None
                    else pages(disk.hint_pages, 4096)),
        valid_share=share(disk.valid_share))


def _options(options: facts.Options) -> facts.Options:
    steps = tuple(
        (number(after, MAX_TIME), number(limit, MAX_TIME))
        for after, limit in (options.downtime_steps or ())[:_MAX_STEPS])
    return dataclasses.replace(
        options, downtime_ms=number(options.downtime_ms, MAX_TIME),
        downtime_steps=steps,
        max_extra_downtime_ms=number(options.max_extra_downtime_ms,
                                     MAX_TIME),
        switch_over=number(options.switch_over, MAX_TIME),
        multifd_channels=int(number(options.multifd_channels, 255)),
        timeout=number(options.timeout, MAX_TIME) or None,
        min_gain=number(options.min_gain, 1.0, facts.Options.min_gain))
