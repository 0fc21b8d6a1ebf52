# SPDX-License-Identifier: Apache-2.0
"""The link of the source to the migration network.

Nova and the agents talk over another network.
"""

import dataclasses

from lab import topology
from lab.faults.fault import Fault
from lab.settings import MBIT

_NETWORK = 'migration'
#: Of this part of its rate a slow link is.
_SLOW = 0.01


@dataclasses.dataclass(frozen=True)
class Cut(Fault):
    """The cable is pulled out, and plugged in again."""

    def inject(self, scene):
        scene.source.link(_NETWORK).up(False)
        return ''

    def undo(self, scene):
        scene.source.link(_NETWORK).up(True)


@dataclasses.dataclass(frozen=True)
class Slow(Fault):
    """It carries next to nothing for a while."""

    def inject(self, scene):
        rate = scene.cloud.settings.migration_rate or 100 * MBIT
        scene.source.link(_NETWORK).limit(send=rate * _SLOW,
                                          receive=rate * _SLOW)
        return ''

    def undo(self, scene):
        topology.limit(scene.cloud)


FAULTS = (
    Cut('link-cut', 8.0),
    # longer than libvirt waits for a sign of life of the other side
    Cut('link-cut-long', 60.0),
    Slow('link-slow', 40.0),
)
