# SPDX-License-Identifier: Apache-2.0
"""The downtime that follows from what a guest was seen to write to (P5.2)."""

from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import normal
from nova_dedup_migrate.planner import predict
from nova_dedup_migrate.planner import working_set


def expect(given: facts.Facts
           ) -> tuple[float, working_set.Expected] | None:
    """Return what an ordinary migration is expected to take.

    :returns: (bytes/s of the link, Expected), or None if the working set
        was not measured or nothing is known of the link
    """
    known = normal.normal(given)
    guest = known.guest
    rate = predict.link_rate(known)
    if not guest.windows or not rate:
        return None
    return rate, working_set.expect(
        guest.resident if guest.in_use is None else guest.in_use,
        working_set.WorkingSet.of_windows(guest.windows), rate,
        known.options.downtime_ms / 1000)
