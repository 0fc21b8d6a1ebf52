# SPDX-License-Identifier: Apache-2.0
"""What can be done with a running guest.

All methods are synchronous and may be called from any thread.  Whoever
starts and migrates guests, as tests do, has testkit.guest, which adds that;
each implementation passes the suites in tests/functional/hypervisor.
"""

import abc
from collections.abc import Iterable
import contextlib
import typing

from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.hypervisor.channel import Channel
from nova_dedup_migrate.hypervisor.events import EventLog
from nova_dedup_migrate.hypervisor.progress import Progress

if typing.TYPE_CHECKING:
    # which needs this module
    from nova_dedup_migrate.hypervisor import digests
    from nova_dedup_migrate.hypervisor import sampling


class Guest(abc.ABC):
    """A guest on one host.

    :ivar name: for people
    :ivar events: EventLog of this guest, since its last start
    """

    name: str
    if typing.TYPE_CHECKING:
        @property
        def events(self) -> EventLog: ...

    def close(self) -> None:
        """Follow its events no longer; the guest goes on; idempotent."""
        return

    @abc.abstractmethod
    def is_alive(self) -> bool:
        """Whether there is something that answers commands."""

    @abc.abstractmethod
    def qmp(self, command: str, /, **arguments: object) -> typing.Any:
        """Run a QMP command and return what it returned.

        Arguments whose name has a hyphen go as ``**{'node-name': 'x'}``.

        :raises QmpError: with the fields command, error_class,
            description; CommandNotFound if QEMU does not know it
        :raises QmpTimeout: the answer is late
        :raises QmpDisconnected: the process has gone
        """

    @abc.abstractmethod
    def run_state(self) -> str:
        """QEMU's RunState: running, paused, inmigrate, postmigrate ..."""

    @abc.abstractmethod
    def dirty_rate(self, seconds: float = 1) -> int:
        """Measure how fast the guest writes to memory.

        By a sample of the pages (calc-dirty-rate), so it costs a guest
        little.  Memory that is written to several times in that time
        counts once.

        :param seconds: how long to measure, 1 to 60
        :returns: bytes per second, rounded down to whole MiB
        """

    @abc.abstractmethod
    def memory_in_use(self) -> 'sampling.InUse':
        """Estimate how much of the guest's RAM is not zero.

        QEMU looks at some hundred pages, which takes it milliseconds.

        :returns: sampling.InUse
        :raises DedupNotSupported: the guest's QEMU cannot do that
        """

    @abc.abstractmethod
    def page_digests(self, seed: int) -> 'digests.PageDigests':
        """Take digests of some thousand pages of the guest's RAM.

        That takes QEMU less than a tenth of a second.  Two of them with
        the same seed tell what was written to in between, see
        digests.measure.

        :param seed: 0 to 2**63 - 1: decides which pages are looked at
        :returns: digests.PageDigests
        :raises DedupNotSupported: the guest's QEMU cannot do that
        """

    @abc.abstractmethod
    def disk_bytes_written(self) -> int:
        """Return the bytes the guest has written to all its disks.

        Counted since this QEMU has started.
        """

    @abc.abstractmethod
    def disks(self) -> dict[str, str]:
        """Map the name of each disk to what arm_dedup calls its device.

        The names are those the guest was defined with: the id of a
        spec.Disk, or the target (vda) of libvirt.
        """

    @abc.abstractmethod
    def agent(self, command: str, arguments: dict | None = None,
              timeout: float = 5.0) -> typing.Any:
        """Run a command of qemu-guest-agent, return what it returned.

        The agent is a program in the guest: what it returns may be
        anything, of up to agent.MAX_REPLY bytes.

        :param arguments: mapping
        :param timeout: seconds
        :raises AgentUnavailable: there is none
        :raises AgentTimeout:
        :raises AgentError: it answered with an error
        :raises MalformedReply:
        """

    @abc.abstractmethod
    def channel_state(self, name: str) -> str:
        """Return the state of the virtio-serial port of that name.

        channel.MISSING, CLOSED, or OPEN if a program of the guest has
        it open.
        """

    @abc.abstractmethod
    def open_channel(self, name: str) -> Channel:
        """Connect to the host's end of a virtio-serial port.

        :returns: channel.Channel
        :raises ChannelUnavailable: there is none, or it is in use
        """

    @abc.abstractmethod
    def progress(self, dedup: bool = True) -> Progress:
        """Read the progress of the migration that leaves this host.

        Unlike Migration.progress it has neither the options of the
        migration nor its outcome, but works for a migration that was not
        begun by migrate().

        :param dedup: include dedup_statistics(), if there are any
        :returns: progress.Progress, status none if there was none yet
        """

    @abc.abstractmethod
    def is_patched(self) -> bool:
        """Whether this QEMU can leave out what storage holds."""

    @abc.abstractmethod
    def track_dedup(self, enable: bool = True) -> None:
        """Record which disk bytes each guest page holds, or forget them.

        :raises DedupNotSupported: as all methods below named dedup
        """

    @abc.abstractmethod
    def arm_dedup(self, copy: str = 'shared', disks: Iterable[dict] = (),
                  resend: bool = True, fetch_rate: int = 0,
                  fetch_iops: int = 0, records: bool = True,
                  compression: dict[str, int] | None = None,
                  lazy: bool = False,
                  defer_redirtied: bool = False) -> None:
        """Let the next migration leave out what storage holds.

        :param copy: shared or own, where the destination has the disks
        :param disks: exceptions, as DedupDisk of the QMP schema
        :param resend: send unfetched pages in full when the link idles
        :param fetch_rate: bytes/s the destination reads at most, 0: no
            limit
        :param fetch_iops: reads a second it begins at most, 0: no limit
        :param records: False to leave nothing out
        :param compression: how to compress the pages that are sent, as
            DedupCompression of the QMP schema; {} for what is best, None
            for not at all
        :param lazy: leave pages out in post-copy, too
        :param defer_redirtied: leave pages that the guest has written to
            again to the next round
        """

    @abc.abstractmethod
    def disarm_dedup(self) -> None:
        """Take arm_dedup back, also while a migration runs."""

    @abc.abstractmethod
    def allow_downtime(self, milliseconds: int) -> None:
        """Let the migration under way stop the guest for so long."""

    @abc.abstractmethod
    def limit_bandwidth(self, bytes_per_s: int) -> None:
        """Let the migration under way send so much, until it is changed."""

    @abc.abstractmethod
    def load_dedup_map(self, fd: int) -> None:
        """Add the page-cache map that fd reads; fd stays the caller's.

        It is read in the background: see dedup_statistics().hints.
        """

    @abc.abstractmethod
    def index_disks(self, devices: Iterable[str] | None = None,
                    rate: int | None = None, memory: int | None = None,
                    cached: bool = False) -> None:
        """Search the disks for what the guest's memory holds.

        It goes on in the background and adds hints: see
        dedup_statistics().index.

        :param devices: to read, None for all
        :param rate: bytes per second, 0 for no limit
        :param memory: bytes it may take
        :param cached: also read disks through the host's page cache
        """

    @abc.abstractmethod
    def cancel_index(self) -> None:
        """End index_disks soon; hints that were found stay."""

    @abc.abstractmethod
    def sample_compression(self, pages: int = 4096
                           ) -> statistics.CompressionSample:
        """Find out how well the guest's memory compresses.

        :param pages: to look at, 1 to 65536
        :returns: statistics.CompressionSample
        """

    @abc.abstractmethod
    def dedup_statistics(self) -> statistics.DedupStatistics:
        """Return a statistics.DedupStatistics."""

    @abc.abstractmethod
    def sample_hints(self, pages: int = 512
                     ) -> tuple[statistics.DiskHints, ...]:
        """Count the hints of each disk and check some of them.

        Takes half a second or so, in which QEMU takes no other command.
        Fewer than pages are checked if storage is slow, and none of a
        guest that is paused or migrated.

        :param pages: how many to check, of all disks, 1 to 4096
        :returns: tuple of statistics.DiskHints, of disks that have any
        """

    # Disks that are mirrored: hypervisor.watching

    @abc.abstractmethod
    def watch_disk(self, device: str, granularity: int | None = None,
                   recorder: str | None = None) -> watching.DiskWatch:
        """Record writes to a disk; at first all of it is dirty.

        The watch that the disk had for the same recorder, or for a mirror,
        is forgotten.

        :param device: as disks() has it
        :param granularity: bytes, a power of 2 from 4 KiB to 1 MiB;
            default 32 KiB
        :param recorder: who records writes without a mirror in view, such
            as watching.REPLICA; None: the watch is for the next mirror
        :raises QmpError: it is encrypted, shareable or inactive, or QEMU is
            too old to know recorders
        :raises DedupNotSupported: as all methods below
        """

    @abc.abstractmethod
    def claim_disk(self, token: str) -> watching.DiskWatch:
        """Have the next mirror of the disk take a recorder's watch.

        Before anybody writes to its target: a mirror that ignores the watch
        leaves out what is not allocated at the source.

        :raises QmpError: the watch was dropped, or is armed
        """

    @abc.abstractmethod
    def clear_disk(self, token: str, offset: int, length: int) -> None:
        """Have a range dirty only if it is written to from now on.

        Read it only after this; the other way round writes are lost.

        :param offset, length: bytes, whole granules
        :raises QmpError: the watch was dropped, or it is armed
        """

    @abc.abstractmethod
    def arm_disk(self, token: str, proven: bytes, canary_offset: int,
                 canary: bytes) -> watching.DiskWatch:
        """Let the next mirror job of the disk copy only what it must.

        :param proven: a bit for each granule, least significant bit first:
            the target was read back and holds what was read here
        :param canary_offset: where the target holds the canary, bytes, a
            multiple of watching.CANARY
        :param canary: watching.CANARY random bytes
        :raises QmpError: the watch was dropped, or is armed
        """

    @abc.abstractmethod
    def dirty_granules(self, watch: watching.DiskWatch) -> bytes:
        """Return the bitmap of what was written to, or never cleared.

        :param watch: not armed
        :raises QmpError:
        """

    @abc.abstractmethod
    def disk_watches(self) -> tuple[watching.DiskWatch, ...]:
        """Return what became of all watches that were not dropped."""

    @abc.abstractmethod
    def drop_disk(self, token: str) -> None:
        """Forget a watch; a mirror job that has taken it goes on.

        Not before one has begun if the target has been written to.

        :raises QmpError: there is no such watch
        """

    @abc.abstractmethod
    def exported_disk(self, node_name: str, brief: bool = False
                      ) -> contextlib.AbstractContextManager[str]:
        """Export a disk read-only by NBD; see disk_export.exported.

        :param node_name: of a DiskWatch
        :param brief: for a few seconds, for which others wait
        """
