# SPDX-License-Identifier: Apache-2.0
"""What can be done with a running guest.

This is the whole interface; each implementation of it passes the suite
in tests/functional/hypervisor.  All methods are synchronous and may be
called from any thread.

A guest runs on exactly one host.  Guest.migrate starts the destination;
until the migration has completed the source can go on as if nothing had
happened, and after one that did not complete the destination is gone
(post-copy excepted) and migrate can be called again::

    source         Migration            destination
    running  --migrate-->  active       inmigrate
                  | cancel / failure
    running  <----+----->  cancelled    (gone)
                  |
    postmigrate <-+----->  completed    running, or paused by option
    (or gone)
"""

import abc


class Guest(abc.ABC):
    """A guest on one host.

    :cvar source_stays: whether a guest that has migrated away stays at
        its source, in the run state postmigrate, until it is destroyed.
        If not it is gone, as a guest that was destroyed.
    It is a context manager, which destroys the guest at the end.

    :ivar name: for people
    :ivar events: EventLog of this guest, since its last start
    """

    source_stays = True

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.destroy()

    @abc.abstractmethod
    def start(self, paused=False):
        """Boot the guest; return once it is running, or paused.

        :raises GuestExited: with the last lines of its log
        """

    @abc.abstractmethod
    def destroy(self):
        """End the guest at once and release what it had; idempotent."""

    def close(self):
        """Follow its events no longer; the guest goes on; idempotent."""
        return

    @abc.abstractmethod
    def is_alive(self):
        """Whether there is something that answers commands."""

    @abc.abstractmethod
    def qmp(self, command, /, **arguments):
        """Run a QMP command and return what it returned.

        Arguments whose name has a hyphen go as ``**{'node-name': 'x'}``.

        :raises QmpError: with the fields command, error_class,
            description; CommandNotFound if QEMU does not know it
        :raises QmpTimeout: the answer is late
        :raises QmpDisconnected: the process has gone
        """

    @abc.abstractmethod
    def run_state(self):
        """QEMU's RunState: running, paused, inmigrate, postmigrate ..."""

    @abc.abstractmethod
    def pause(self):
        """Stop the guest's CPUs."""

    @abc.abstractmethod
    def cont(self):
        """Let the guest's CPUs run."""

    @abc.abstractmethod
    def save_memory(self, directory):
        """Write all guest RAM into files in directory (a Path).

        :returns: memory.RamImage.  Of a running guest it is no snapshot.
        """

    @abc.abstractmethod
    def dirty_rate(self, seconds=1):
        """Measure how fast the guest writes to memory.

        By a sample of the pages (calc-dirty-rate), so it costs a guest
        little.  Memory that is written to several times in that time
        counts once.

        :param seconds: how long to measure, 1 to 60
        :returns: bytes per second, rounded down to whole MiB
        """

    @abc.abstractmethod
    def memory_in_use(self, seconds=1.0):
        """Estimate how much of the guest's RAM is not zero.

        Some hundred pages are read, one after the other.

        :param seconds: how long that may take
        :returns: sampling.InUse
        :raises WaitTimeout: QEMU is too slow for that
        """

    @abc.abstractmethod
    def disk_bytes_written(self):
        """Return the bytes the guest has written to all its disks.

        Counted since this QEMU has started.
        """

    @abc.abstractmethod
    def disks(self):
        """Map the name of each disk to what arm_dedup calls its device.

        The names are those the guest was defined with: the id of a
        spec.Disk, or the target (vda) of libvirt.
        """

    @abc.abstractmethod
    def agent(self, command, arguments=None, timeout=5.0):
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
    def channel_state(self, name):
        """Return the state of the virtio-serial port of that name.

        channel.MISSING, CLOSED, or OPEN if a program of the guest has
        it open.
        """

    @abc.abstractmethod
    def open_channel(self, name):
        """Connect to the host's end of a virtio-serial port.

        :returns: channel.Channel
        :raises ChannelUnavailable: there is none, or it is in use
        """

    @abc.abstractmethod
    def progress(self, dedup=True):
        """Look at the migration that leaves this guest's host.

        Unlike Migration.progress it knows neither what was asked for
        nor how it ended, but it needs nobody to have called migrate().

        :param dedup: include dedup_statistics(), if there are any
        :returns: progress.Progress, status none if there was none yet
        """

    @abc.abstractmethod
    def is_patched(self):
        """Whether this QEMU can leave out what storage holds."""

    @abc.abstractmethod
    def track_dedup(self, enable=True):
        """Record which disk bytes each guest page holds, or forget them.

        :raises DedupNotSupported: as all methods below named dedup
        """

    @abc.abstractmethod
    def arm_dedup(self, copy='shared', disks=(), resend=True):
        """Let the next migration leave out what storage holds.

        :param copy: shared or own, where the destination has the disks
        :param disks: exceptions, as DedupDisk of the QMP schema
        :param resend: send unfetched pages in full when the link idles
        """

    @abc.abstractmethod
    def disarm_dedup(self):
        """Take arm_dedup back, also while a migration runs."""

    @abc.abstractmethod
    def allow_downtime(self, milliseconds):
        """Let the migration under way stop the guest for so long."""

    @abc.abstractmethod
    def load_dedup_map(self, fd):
        """Add the page-cache map that fd reads; fd stays the caller's.

        It is read in the background: see dedup_statistics().hints.
        """

    @abc.abstractmethod
    def dedup_statistics(self):
        """Return a statistics.DedupStatistics."""

    @abc.abstractmethod
    def migrate(self, destination, options):
        """Begin to migrate to destination and return a Migration.

        :param destination: a Guest of the same shape, not running
        :param options: a MigrationOptions
        """


class Migration(abc.ABC):
    """A migration that was begun."""

    @abc.abstractmethod
    def progress(self):
        """Return a progress.Progress."""

    @abc.abstractmethod
    def watch(self, interval=0.5):
        """Yield a Progress every interval seconds, the final one last.

        It also ends where only the caller can go on: pre-switchover,
        postcopy-paused.
        """

    @abc.abstractmethod
    def wait(self, timeout):
        """Wait for the end and return the final Progress.

        When it returns the guest has arrived and the destination is in
        charge.

        :raises MigrationFailed: failed, cancelled or postcopy-paused
        :raises WaitTimeout: it is still going on
        """

    @abc.abstractmethod
    def wait_status(self, statuses, timeout):
        """Wait until the status is one of statuses, return Progress.

        :raises MigrationFailed: it ended with another one
        """

    @abc.abstractmethod
    def set_rate(self, bytes_per_second):
        """Change the bandwidth limit now; None for no limit."""

    @abc.abstractmethod
    def cancel(self, timeout=60.0):
        """Give up and return when the source is free again.

        Return the final Progress: completed if that was faster.

        :raises InvalidMigrationState: in post-copy there is no way back
        """

    @abc.abstractmethod
    def start_postcopy(self, timeout=60.0):
        """Let the guest go on at the destination from now on.

        Return a Progress when it does.
        """

    @abc.abstractmethod
    def proceed(self):
        """Go on after pause-before-switchover."""

    @abc.abstractmethod
    def interrupt(self, timeout=60.0):
        """Break the link of a post-copy, as a network fault would."""

    @abc.abstractmethod
    def recover(self, timeout=60.0):
        """Take up a post-copy that was interrupted."""
