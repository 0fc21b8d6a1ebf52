# SPDX-License-Identifier: Apache-2.0
"""Whether to ask the guest what it caches.

Asking costs the guest some processor time and the migration a moment.
Before the answer nobody knows how much it caches; so the best that could
come of it is compared with what is known without it.
"""

import dataclasses

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.planner import units

_ASK = ('auto', 'page_cache')
#: Seconds it takes: the lister's own limit for each GB, and the way.
_SECONDS_PER_BYTE = 0.25e-9
_SECONDS = 0.3
#: Seconds after which what a guest has said is asked for once more, at the
#: earliest, and how many times longer than the answer took.
_AGAIN_S = 30.0
_AGAIN = 20.0


def usable(given):
    """Return the devices whose pages the destination can read."""
    return frozenset(disk.device for disk in given.disks
                     if disk.copy in (facts.SHARED, facts.OWN)
                     and disk.device)


def obstacle(given):
    """Return why not to ask, '' if it is worth it.

    :param given: Facts as they are without asking
    """
    known = normal.normal(given)
    strategy = known.options.strategy
    if strategy not in _ASK:
        return 'strategy %.40s does not need it' % (strategy,)
    if not (known.source.patched and known.destination.patched):
        return 'the QEMU of both hosts has to take part'
    devices = usable(known)
    if not devices:
        return 'the destination cannot read any of the disks'
    disks = tuple(disk for disk in known.disks if disk.device in devices)
    guest = known.guest
    in_use = guest.resident if guest.in_use is None else guest.in_use
    best = predict.predict(dataclasses.replace(
        known, guest=dataclasses.replace(
            guest, hint_pages=int(in_use // guest.page_size))), disks)
    stock = predict.predict(known)
    gain = predict.saves(best, stock)
    if gain <= 0:
        return 'an ordinary migration is faster, whatever it caches'
    if strategy == 'auto':
        return _too_little(known, disks, best, stock, gain)
    return ''


def again(age, seconds, left):
    """Whether to ask once more, while the migration runs.

    What has been read meanwhile is not in the answer, and what has been
    freed costs a read for nothing.

    :param age: of the answer, seconds
    :param seconds: asking took
    :param left: until the end, None while disks are still being copied
    """
    interval = max(_AGAIN_S, _AGAIN * seconds)
    return age >= interval and (left is None or left > interval)


def _too_little(known, disks, best, stock, gain):
    if stock.completes and gain < known.options.min_gain:
        return ('it could save %s of the time at most, and min_gain is %s'
                % (units.percent(gain),
                   units.percent(known.options.min_gain)))
    without = min((predict.predict(known, disks), stock),
                  key=lambda one: one.time.likely)
    cost = _SECONDS + known.guest.memory * _SECONDS_PER_BYTE
    if without.completes and (
            without.time.likely - best.time.likely <= cost):
        return 'what it says could not save the time it takes to ask it'
    return ''
