# SPDX-License-Identifier: Apache-2.0
"""Whether to have the guest list its page cache, or to index its disks.

The list costs the guest some processor time and the migration a moment; the
index reads the disks once.  How many pages they will find is not known
before; so the best possible outcome is compared with the prediction without
them.
"""

import dataclasses

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.planner import units

_ASK = ('auto', 'page_cache')
#: Seconds for the list: the lister's own limit for each GB, and for the
#: transfer.
_SECONDS_PER_BYTE = 0.25e-9
_SECONDS = 0.3
#: Of the time limit, for each byte of memory in use.  The lister gets half of
#: the limit; the other half is for the transfer, the conversion and QEMU.
_LIMIT_PER_BYTE = 2 * _SECONDS_PER_BYTE
#: Seconds that no limit exceeds, as that of page_cache_time.
_LONGEST = 300.0
#: Seconds after which a guest makes another list, at the earliest,
#: and how many times longer than the list took.
_AGAIN_S = 30.0
_AGAIN = 20.0
#: Share of the memory in use above which the hints that there are will do.
_HINTED = 0.25


def usable(given: facts.Facts) -> frozenset[str]:
    """Return the devices whose pages the destination can read."""
    return frozenset(disk.device for disk in given.disks
                     if disk.copy in (facts.SHARED, facts.OWN)
                     and disk.device)


def limit(given: facts.Facts, seconds: float) -> float:
    """Return the seconds that listing may take.

    :param seconds: for a guest that caches little
    """
    return min(_LONGEST, seconds + _LIMIT_PER_BYTE
               * _in_use(normal.normal(given).guest))


def obstacle(given: facts.Facts, seconds: float) -> str:
    """Return why the guest need not list it, '' if it is worth it.

    :param given: Facts without the list
    :param seconds: as limit() takes them
    """
    known = normal.normal(given)
    return _obstacle(known, min(
        limit(given, seconds),
        _SECONDS + _in_use(known.guest) * _SECONDS_PER_BYTE))


def index_obstacle(given: facts.Facts, mode: str, rate: int,
                   limit: float) -> str:
    """Return why its disks need not be indexed, '' if it is worth it.

    :param given: Facts, with the list of the page cache if there is one
    :param mode: one of facts.CONTENT_INDEXES
    :param rate: bytes/s at which the disks are read, 0: as fast as they are
    :param limit: seconds that are waited for it
    """
    if mode == 'off':
        return 'switched off'
    known = normal.normal(given)
    if mode == 'on':
        return _unusable(known)
    guest = known.guest
    if guest.hint_pages * guest.page_size >= _HINTED * _in_use(guest):
        return ('the hints for %s of its memory suffice'
                % units.size(guest.hint_pages * guest.page_size))
    devices = usable(known)
    size = sum(disk.size for disk in known.disks if disk.device in devices)
    return _obstacle(known, min(limit, size / rate if rate else limit))


def _in_use(guest: facts.Guest) -> float:
    return guest.resident if guest.in_use is None else guest.in_use


def _unusable(known: facts.Facts) -> str:
    """Return why more hints would be of no use, '' if they would be."""
    strategy = known.options.strategy
    if strategy not in _ASK:
        return ('strategy %.40s does not use page cache lists and content '
                'indexes' % (strategy,))
    if not (known.source.patched and known.destination.patched):
        return 'the QEMU of one host is not the patched one'
    if not usable(known):
        return 'the destination cannot read any of the disks'
    return ''


def _obstacle(known: facts.Facts, cost: float) -> str:
    """:param cost: seconds until the hints are there"""
    reason = _unusable(known)
    if reason:
        return reason
    devices = usable(known)
    disks = tuple(disk for disk in known.disks if disk.device in devices)
    best = _best(known, devices)
    stock = predict.predict(known)
    gain = predict.saves(best, stock)
    if gain <= 0:
        return ('an ordinary migration is faster, however much the guest '
                'caches')
    if known.options.strategy == 'auto':
        return _too_little(known, disks, best, stock, gain, cost)
    return ''


def again(age: float, seconds: float, left: float | None) -> bool:
    """Whether another list is due, while the migration runs.

    Pages read meanwhile are not in the list, and pages freed meanwhile
    cost a read for nothing.

    :param age: of the list, seconds
    :param seconds: the list took
    :param left: until the end, None while disks are still being copied
    """
    interval = max(_AGAIN_S, _AGAIN * seconds)
    return age >= interval and (left is None or left > interval)


def _best(known: facts.Facts, devices: frozenset[str]) -> plan.Prediction:
    """Return the prediction if all memory were page cache of the disks."""
    guest = known.guest
    pages = int(_in_use(guest) // guest.page_size)
    disks = tuple(dataclasses.replace(disk, hint_pages=0)
                  for disk in known.disks)
    return predict.predict(
        dataclasses.replace(known, disks=disks, guest=dataclasses.replace(
            guest, hint_pages=pages, map_pages=pages)),
        tuple(disk for disk in disks if disk.device in devices))


def _too_little(known: facts.Facts, disks: tuple[facts.Disk, ...],
                best: plan.Prediction, stock: plan.Prediction,
                gain: float, cost: float) -> str:
    if stock.completes and gain < known.options.min_gain:
        return ('it could save %s of the time at most; min_gain is %s'
                % (units.percent(gain),
                   units.percent(known.options.min_gain)))
    without = min((predict.predict(known, disks), stock),
                  key=lambda one: one.time.likely)
    if without.completes and (
            without.time.likely - best.time.likely <= cost):
        return 'it takes longer than it could save'
    return ''
