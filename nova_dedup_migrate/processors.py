# SPDX-License-Identifier: Apache-2.0
"""The processors of this host."""

from __future__ import annotations

import os


def idle() -> float:
    """Return how many were idle in the last minute, on average."""
    return max(0.0, len(os.sched_getaffinity(0)) - os.getloadavg()[0])
