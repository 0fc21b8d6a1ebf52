# SPDX-License-Identifier: Apache-2.0
"""One run: a guest migrates through Nova, and is watched."""

import dataclasses
import time

from benchmarks.page_cache import arrival
from benchmarks.page_cache import guests
from benchmarks.page_cache import rival
from benchmarks.page_cache import series
from benchmarks.page_cache.cells import Variant
from lab import errors
from lab import migrations
from lab import topology

#: Seconds until a guest that Nova calls ACTIVE has to be seen running.
_SEEN_S = 30.0


def set_rate(cloud, mbit: int) -> None:
    """Set the rate of the link to the migration network, both hosts'.

    :param mbit: Mbit/s; 0: no limit
    """
    rate = mbit * 125_000 or None
    for host in cloud.computes:
        host.link('migration').limit(send=rate, receive=rate)


def run(cloud, guest: guests.Guest, variant: Variant) -> dict:
    """Migrate it; a record of plain values.

    :raises LabError: the guest or Nova does not do its part
    """
    guest.begin()
    asked = time.monotonic()
    if variant.drop:
        guest.drop()
    source = cloud.host(guest.server.compute_host)
    destination = next(host for host in cloud.computes
                       if host.name != source.name)
    seen = arrival.Arrival(
        topology.libvirtd(cloud, destination.name).uri, guest.server.id,
        guest.reports)
    try:
        moved = migrations.move(cloud, variant.kind, guest.server)
        _wait_seen(seen)
        points = guest.arrived(seen)
    finally:
        seen.close()
        if seen.listener is not None:
            seen.listener.close()
    verified, wrong_pages = guest.verify()
    return record(moved, points, asked - seen.resumed) | {
        'verified': verified, 'errors': wrong_pages,
        **guest.noticed(seen.resumed)}


def _wait_seen(seen: arrival.Arrival) -> None:
    deadline = time.monotonic() + _SEEN_S
    while seen.resumed is None:
        if time.monotonic() > deadline:
            raise errors.LabError('the guest was not seen to run')
        time.sleep(0.05)


def record(moved: migrations.Outcome, points: list[series.Point],
           asked: float) -> dict:
    """:param asked: when the migration, or before it that caches are
        dropped, was asked for, seconds before the resumption: negative
    """
    values = dataclasses.asdict(moved)
    return {
        'total_time_s': moved.seconds,
        'link_bytes': moved.link_bytes,
        'memory_bytes': moved.memory_bytes,
        'disk_bytes': moved.disk_bytes,
        'downtime_ms': moved.downtime_ms,
        'strategy': moved.strategy,
        'reason': moved.reason,
        'pages': values['pages'],
        'page_cache': values['page_cache'],
        'content_index': values['content_index'],
        'converged': True,
        'asked': round(asked, 2),
        'series': series.kept(points, asked),
        'source': moved.source,
    }


def wrong(kept: dict, variant: Variant) -> str:
    """Return what makes a run count as failed, '' if nothing does."""
    if kept['errors']:
        return f'the guest found {kept["errors"]} wrong pages'
    if not kept['verified']:
        return 'the guest verified nothing'
    if kept.get('wrong_answers'):
        return f'{kept["wrong_answers"]} wrong answers came'
    if kept.get('answers') == 0:
        return 'no request was answered'
    used = kept['strategy']
    if variant.kind == 'stock' and used not in ('', 'stock'):
        return f'{used} was used'
    return rival.wrong(kept) if variant.connections else ''
