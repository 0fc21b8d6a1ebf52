# SPDX-License-Identifier: Apache-2.0
"""What building the disks of a migration needs of Nova and the agents."""

from collections.abc import Sequence
import typing

from nova_dedup_migrate.planner import disks as planner_disks
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import watch_objects


class DiskPort(typing.Protocol):
    """Implemented by those who know Nova and the agents.

    Disks are named by their target, such as vda.  All methods may raise.
    """

    def targets(self) -> Sequence[str]:
        """Return the disks that the destination has a file for."""

    def watch(self, target: str) -> watch_objects.DedupWatchReply:
        """Have the source record writes to a disk."""

    def facts(self, target: str, watch: watch_objects.DedupWatchReply
              ) -> planner_disks.DiskFacts:
        """Return what a decision is made of."""

    def build(self, target: str, watch: watch_objects.DedupWatchReply,
              seconds: float) -> None:
        """Have the destination begin to build a disk.

        :param seconds: from now on, also of one that it builds already
        """

    def state(self, target: str, wait: float
              ) -> disk_objects.DedupFillingReply:
        """Return how far it is, or wait for so many seconds.

        Of one that is done, whether its file is still as it was left.
        """

    def show(self, total: int, left: int) -> None:
        """Show Nova how many bytes of disks there are, and are left."""

    def arm(self, target: str) -> watch_objects.DedupWatchReply:
        """Have the next mirror leave out what is proven."""

    def release(self, target: str) -> bool:
        """Have the source forget a disk; False: it may be written to."""

    def abort(self) -> None:
        """Have the destination stop building, and forget the disks."""

    def used(self) -> dict[str, tuple[int | None, str]]:
        """Return target -> (bytes its mirror began with, reason).

        Only of disks whose mirror has begun.
        """

    def forget(self) -> None:
        """Have the source forget the disks of this migration."""
