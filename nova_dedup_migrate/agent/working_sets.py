# SPDX-License-Identifier: Apache-2.0
"""The working sets of the guests of this host, measured in the background.

Each guest that records its I/O is measured in windows of several lengths
(planner.working_set.WINDOWS), some guests at a time.  Nobody waits for that:
reports show what was found.  The dirty rate that a migration is planned with
is measured apart from it, see guest_samples.
"""

from __future__ import annotations

import concurrent.futures
import logging
import threading

from nova_dedup_migrate import deadline
from nova_dedup_migrate.agent import guest_samples
from nova_dedup_migrate.hypervisor import errors

LOG = logging.getLogger(__name__)

#: Guests that are measured at a time; each takes as long as a window.
_GUESTS = 8


def measure(samples: guest_samples.GuestSamples,
            stopping: threading.Event) -> None:
    """Measure each guest that records I/O, unless a migration runs.

    :param stopping: set to end at once
    """
    def one(uuid: str) -> None:
        try:
            samples.measure(uuid, stopping.wait)
        except (errors.HypervisorError, deadline.Late) as error:
            # It may have ended, or its QEMU is of an older release.
            LOG.debug('The working set of instance %s was not measured: %s',
                      uuid, error)

    with concurrent.futures.ThreadPoolExecutor(_GUESTS) as pool:
        for done in [pool.submit(one, uuid) for uuid in samples.recording()]:
            done.result()
