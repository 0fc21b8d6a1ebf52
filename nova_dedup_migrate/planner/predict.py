# SPDX-License-Identifier: Apache-2.0
"""Predictions: facts -> the model's cases -> a band.

A fact is not the truth about the minutes to come.  So the model is asked
three times: with what is likely, and with everything a little better and
a good deal worse.  What is assumed then is in the tables below.
"""

import dataclasses
import math

from nova_dedup_migrate.planner import model
from nova_dedup_migrate.planner import plan

#: Of a link about which nothing is known: 1 Gbit/s.
DEFAULT_LINK = 125e6
#: Of storage about which nothing is known.
DEFAULT_STORAGE = 100e6
#: One thread of QEMU, without and with TLS; multifd has more of them.
SENDER = 2e9
TLS_SENDER = 0.4e9
#: The destination: reading, verifying, placing.
VERIFY = 0.8e9

#: Bytes of a QEMU process that are not the guest's memory, for where only
#: its RSS is known.
OWN = 64e6
#: What the model itself leaves out, as a share.
_MARGIN = 0.03


@dataclasses.dataclass(frozen=True)
class _Assumption:
    """Factors on facts.

    measured: the link, if it was measured; configured: if all that is
    known is a limit; unknown: if nothing is; storage, storage_unknown:
    likewise; valid: of the hints, those that still hold; dirty: how much
    more a guest dirties while it is migrated than before; errors: how many
    standard errors more memory is in use than estimated; in_use: if that
    was not, of what QEMU has touched, what is not zero, and own: how often
    OWN is to be taken off; working_set: share of memory in use that the
    guest writes to again and again; left, devices: see model.Case;
    switch_over: a factor on facts.Options.switch_over
    """

    measured: float
    configured: float
    unknown: float
    storage: float
    storage_unknown: float
    valid: float
    dirty: float
    errors: float
    in_use: float
    own: float
    working_set: float
    left: float
    devices: float
    switch_over: float


#: QEMU sends about 5 % more than its limit says; the shared storage
#: benchmarks show it for stock and for ours.  The writers of the benchmarks
#: dirty as much while they are migrated as before; others were seen to
#: dirty up to three times as much.
_LIKELY = _Assumption(measured=1.0, configured=1.05, unknown=1.0,
                      storage=0.9, storage_unknown=1.0, valid=0.99,
                      dirty=1.2, errors=0.0, in_use=1.0, own=1.0,
                      working_set=0.25, left=0.5, devices=0.02,
                      switch_over=1.0)
_BETTER = _Assumption(measured=1.1, configured=1.1, unknown=10.0,
                      storage=1.0, storage_unknown=10.0, valid=1.0,
                      dirty=0.7, errors=-2.0, in_use=0.9, own=1.5,
                      working_set=0.1, left=0.0, devices=0.005,
                      switch_over=0.3)
_WORSE = _Assumption(measured=0.85, configured=0.85, unknown=0.1,
                     storage=0.4, storage_unknown=0.1, valid=0.7,
                     dirty=3.0, errors=2.0, in_use=1.0, own=0.0,
                     working_set=1.0, left=1.0, devices=0.06,
                     switch_over=2.5)


def predict(known, disks=()):
    """Return plan.Prediction.

    :param known: normal Facts
    :param disks: of known.disks, those that are read from storage; none
        is a stock migration
    """
    outcomes = [model.migrate(_case(known, disks, assumed))
                for assumed in (_BETTER, _LIKELY, _WORSE)]
    likely = outcomes[1]
    return plan.Prediction(
        bytes=_band(outcomes, 'bytes'), time=_band(outcomes, 'time'),
        downtime=_band(outcomes, 'downtime'),
        converges=likely.end == model.PRECOPY, end=likely.end,
        storage_bytes=likely.storage_bytes, disk_bytes=likely.disk_bytes,
        disk_time=likely.disk_time)


def duplicate_bytes(known, disks):
    """Return how much memory is likely to be left to these disks."""
    return _duplicates(known, disks, _LIKELY)


def dirty_rate(known):
    """Return bytes/s while the guest is migrated, as is likely."""
    return known.guest.dirty_rate * _LIKELY.dirty


def link_rate(known):
    """Return bytes/s while the guest runs, as is likely."""
    return _link(known, _LIKELY)[0]


def storage_rate(disks):
    """Return bytes/s at which the destination reads; None: not known.

    One disk is read after the other, so it is a harmonic mean by size.
    """
    known = [disk for disk in disks if disk.storage_rate]
    if not known:
        return None
    weights = [disk.size or 1.0 for disk in known]
    return sum(weights) / sum(
        weight / disk.storage_rate
        for weight, disk in zip(weights, known, strict=True))


def _band(outcomes, name):
    values = [getattr(outcome, name) for outcome in outcomes]
    return plan.Band(min(values) * (1 - _MARGIN), values[1],
                     max(values) * (1 + _MARGIN))


def _case(known, disks, assumed):
    guest, options = known.guest, known.options
    duplicate = _duplicates(known, disks, assumed)
    in_use = max(_in_use(guest, assumed), duplicate)
    link, final_link = _link(known, assumed)
    to_copy = (sum(disk.to_copy for disk in known.disks)
               if options.block_migration else 0.0)
    written = guest.disk_write_rate or 0.0
    dirty_rate = guest.dirty_rate * assumed.dirty
    return model.Case(
        unique=in_use - duplicate, duplicate=duplicate,
        zero=max(0.0, guest.memory - in_use), link=link,
        final_link=final_link, storage=_storage(disks, assumed),
        dirty_rate=dirty_rate, page_size=guest.page_size,
        # More than it writes to in the second in which it was measured.
        working_set=max(in_use * assumed.working_set, 2 * guest.dirty_rate),
        dirty_duplicate=(min(written / dirty_rate, 1.0)
                         if disks and dirty_rate else 0.0),
        downtime=downtime(options),
        settled=options.downtime_ms / 1000 if disks else 0.0,
        left=assumed.left,
        devices=(assumed.devices
                 + options.switch_over * assumed.switch_over),
        postcopy=options.postcopy,
        auto_converge=options.auto_converge, timeout=options.timeout,
        force_complete=options.force_complete, disk_bytes=to_copy,
        disk_write_rate=written)


def _in_use(guest, assumed):
    """Return the bytes of memory that are not zero."""
    if guest.in_use is None:
        return guest.resident * assumed.in_use - OWN * assumed.own
    return min(guest.in_use + assumed.errors * guest.in_use_error,
               guest.memory)


def _duplicates(known, disks, assumed):
    """Hints do not say which disk they are of: by size, then."""
    if not disks:
        return 0.0
    guest = known.guest
    of_all = sum(disk.size for disk in known.disks)
    if all(disk in disks for disk in known.disks):
        share = 1.0
    elif of_all:
        share = sum(disk.size for disk in disks) / of_all
    else:
        share = len(disks) / len(known.disks)
    hinted = guest.hint_pages * guest.page_size * share * assumed.valid
    return min(hinted, guest.resident if guest.in_use is None
               else guest.in_use)


def _link(known, assumed):
    """Return the rates while the guest runs, and in the pause."""
    link, options = known.link, known.options
    found = [rate * factor for rate, factor in (
        (link.measured, assumed.measured),
        (link.host_limit, assumed.measured),
        (link.configured, assumed.configured)) if rate]
    in_pause = [rate * assumed.measured
                for rate in (link.measured, link.host_limit) if rate]
    sender = ((TLS_SENDER if options.tls else SENDER)
              * max(1, options.multifd_channels))
    running = min(found, default=DEFAULT_LINK * assumed.unknown)
    return (min(running, sender),
            min(max(in_pause, default=running), sender))


def _storage(disks, assumed):
    known_rate = storage_rate(disks)
    return min(known_rate * assumed.storage if known_rate
               else DEFAULT_STORAGE * assumed.storage_unknown, VERIFY)


def downtime(options, time=0.0):
    """Return ((since, limit), ...) in seconds for model.Case.

    :param time: since is counted from so many seconds after the start
    """
    steps = options.downtime_steps or ((0.0, options.downtime_ms),)
    return tuple((max(0.0, since - time), limit / 1000)
                 for since, limit in sorted(steps))


def saves(prediction, stock):
    """Return the share of stock's time that is saved, negative if none.

    Coming to an end is all, and not coming to one is nothing.  Where
    neither does, it is the share of what is moved that storage moves.
    """
    if prediction.completes != stock.completes:
        return 1.0 if prediction.completes else -1.0
    if prediction.completes:
        ours, theirs = prediction.time.likely, stock.time.likely
        return 1.0 - ours / theirs if theirs else 0.0
    moved = prediction.bytes.likely + prediction.storage_bytes
    if math.isinf(moved):
        return 1.0 if prediction.storage_bytes else 0.0
    return prediction.storage_bytes / moved if moved else 0.0
