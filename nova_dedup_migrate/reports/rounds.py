# SPDX-License-Identifier: Apache-2.0
"""What happened round by round, from looks at a migration."""

from nova_dedup_migrate.reports import report

#: A sample of less says more about latency than about the link.
_SAMPLE_BYTES = 8 * 1024 * 1024


def summarize(looks):
    """Return a tuple of report.Round.

    :param looks: hypervisor Progress, the last one of each round, oldest
        first
    """
    rounds = []
    before = None
    for look in looks:
        rounds.append(_round(look, before))
        before = look
    return tuple(rounds)


def _round(look, before):
    source = look.dedup.source if look.dedup is not None else None

    def since(value):
        # After a look was missed, or QEMU began anew.
        return max(0, value(look) - (value(before) if before else 0))

    return report.Round(
        number=look.rounds,
        seconds=since(lambda at: at.total_time_ms or 0) / 1000,
        pages=report.Paths(
            peer=since(lambda at: at.pages.peer),
            zero=since(lambda at: at.pages.zero),
            storage=since(lambda at: at.pages.storage)),
        transferred_bytes=since(lambda at: at.transferred_bytes),
        remaining_bytes=look.remaining_bytes,
        link_rate=look.mbps * 1e6 / 8,
        dirty_rate=float(look.dirty_pages_per_s * look.page_size),
        refused_pages=(source.nack_digest + source.nack_io
                       if source is not None else 0),
        resent_pages=source.resent_pages if source is not None else 0)


def link_rate(rounds):
    """Return what the link carried in bytes/s, None if that is not known.

    That is QEMU's own figure for the round that sent most.
    """
    largest = max(rounds, key=lambda one: one.transferred_bytes,
                  default=None)
    if largest is None or largest.transferred_bytes < _SAMPLE_BYTES:
        return None
    return largest.link_rate or None
