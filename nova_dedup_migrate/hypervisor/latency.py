# SPDX-License-Identifier: Apache-2.0
"""How long a guest waits for its disks, for those who read them as well."""

from __future__ import annotations

import typing

from nova_dedup_migrate.hypervisor import decode
from nova_dedup_migrate.hypervisor import errors

if typing.TYPE_CHECKING:
    from nova_dedup_migrate.hypervisor import base


class Latency:
    """The mean time of the guest's requests to its disks.

    :param guest: whose statistics are read
    """

    def __init__(self, guest: base.Guest) -> None:
        self._guest = guest
        self._before = self._totals()

    def __call__(self) -> float | None:
        """Return seconds a request since the last call, None: no request."""
        done, seconds = self.requests()
        return seconds / done if done else None

    def requests(self) -> tuple[int, float]:
        """Return (number, seconds of all) of those since the last call."""
        now = self._totals()
        if now is None:
            return 0, 0.0
        before, self._before = self._before or now, now
        done = now[0] - before[0]
        # Fewer: a disk was detached.
        return (done, now[1] - before[1]) if done > 0 else (0, 0.0)

    def _totals(self) -> tuple[int, float] | None:
        """Return them since QEMU began, None if it does not answer."""
        requests, nanoseconds = 0, 0
        try:
            reply = self._guest.qmp('query-blockstats')
        except errors.HypervisorError:
            # The read that follows has the reason.
            return None
        for device in reply if isinstance(reply, list) else ():
            stats = decode.mapping(decode.mapping(
                device, 'query-blockstats').get('stats'), 'stats')
            for kind in 'rd', 'wr':
                requests += decode.count(
                    stats.get(kind + '_operations', 0), kind)
                nanoseconds += decode.count(
                    stats.get(kind + '_total_time_ns', 0), kind)
        return requests, nanoseconds / 1e9
