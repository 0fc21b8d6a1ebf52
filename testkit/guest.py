# SPDX-License-Identifier: Apache-2.0
"""A guest that we start and migrate ourselves.

It is the hypervisor layer's Guest and what tests and benchmarks need
besides; Nova starts and migrates its guests itself.

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

from nova_dedup_migrate.hypervisor import qmp_guest
from testkit import memory


class Guest(qmp_guest.QmpGuest):
    """A guest on one host.

    It is a context manager, which destroys the guest at the end.

    :cvar source_stays: whether a guest that has migrated away stays at
        its source, in the run state postmigrate, until it is destroyed.
        If not it is gone, as a guest that was destroyed.
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

    @abc.abstractmethod
    def pause(self):
        """Stop the guest's CPUs."""

    @abc.abstractmethod
    def cont(self):
        """Let the guest's CPUs run."""

    def save_memory(self, directory):
        """Write all guest RAM into files in directory (a Path).

        :returns: memory.RamImage.  Of a running guest it is no snapshot.
        """
        return memory.save(self, directory)

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
