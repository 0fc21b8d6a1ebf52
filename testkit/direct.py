# SPDX-License-Identifier: Apache-2.0
"""A guest in a QEMU process that we start ourselves."""

import pathlib
import shutil
import socket
import tempfile

from nova_dedup_migrate.hypervisor import agent
from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import events
from nova_dedup_migrate.hypervisor import process
from nova_dedup_migrate.hypervisor import qmp
from testkit import command
from testkit import direct_migration
from testkit import guest


class DirectGuest(guest.Guest):
    """A guest that is one QEMU process on this machine.

    :param spec: GuestSpec
    :param run_dir: keeps console, channels, log and pid; it stays.  By
        default a temporary one, which destroy() removes.
    :param name: default the spec's
    """

    def __init__(self, spec, run_dir=None, name=None):
        self.spec = spec
        self.name = name or spec.name
        self.events = events.EventLog()
        self._given_dir = run_dir
        self._sockets = None
        self._process = None
        self._qmp = None
        self.run_dir = None

    # Files

    @property
    def console(self):
        """Path of what the guest wrote to COM1."""
        return self.run_dir / 'console.log'

    @property
    def log(self):
        """Path of QEMU's own messages."""
        return self.run_dir / 'qemu.log'

    def channel(self, name):
        """Path of a channel: its file, or its socket."""
        for known in self.spec.channels:
            if known.name == name:
                return (self.run_dir / (name + '.log')
                        if known.backend == 'file'
                        else self._sockets / (name + '.sock'))
        raise KeyError(name)

    @property
    def migration_socket(self):
        """Path of the socket an incoming migration listens on."""
        return self._sockets / 'migrate.sock'

    def _make_dirs(self):
        # A unix socket's path has at most 107 bytes, so sockets are not
        # under a directory the caller chose.
        self._sockets = pathlib.Path(tempfile.mkdtemp(prefix='ndm-',
                                                      dir='/tmp'))
        if self._given_dir is None:
            self.run_dir = self._sockets
        else:
            self.run_dir = pathlib.Path(self._given_dir).absolute()
            self.run_dir.mkdir(parents=True, exist_ok=True)

    # Life

    @property
    def pid(self):
        return self._process.pid if self._process is not None else None

    def start(self, paused=False):
        self._launch(paused=paused, incoming=False)

    def start_incoming(self):
        """Start it as a destination, ahead of migrate(), to save time."""
        self._launch(paused=False, incoming=True)

    def _launch(self, paused, incoming):
        if self.is_alive():
            raise errors.InvalidMigrationState(action='start twice',
                                               status=self.run_state())
        self.destroy()
        binary = self.spec.check_host()
        self._make_dirs()
        self.events = events.EventLog()
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                argv = command.build(self.spec, binary, self,
                                     theirs.fileno(), incoming, paused)
                self._process = process.Process(
                    argv, self.log, self.run_dir, self.spec.env,
                    (theirs.fileno(),))
            self._qmp = qmp.QmpConnection(self.name, self.events)
            self._qmp.connect(ours, self.qmp_timeout)
        except errors.QmpDisconnected as error:
            ours.close()
            failure = self._exited()
            self.destroy()
            raise failure from error
        except BaseException:
            ours.close()
            self.destroy()
            raise

    def _exited(self):
        """Make the error that says how the process ended."""
        self._process.wait(10.0)
        return errors.GuestExited(name=self.name,
                                  status=self._process.status(),
                                  log=self._process.last_lines())

    def destroy(self):
        connection, self._qmp = self._qmp, None
        child, self._process = self._process, None
        if child is not None:
            child.kill()
        if connection is not None:
            connection.close()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None

    def is_alive(self):
        return self._process is not None and self._process.status() is None

    def wait_exit(self, timeout):
        """Wait for the process to end by itself, return whether it did."""
        return self._process is None or self._process.wait(timeout)

    def last_words(self):
        """The end of QEMU's log as one line, '' if there is none."""
        return self._process.last_lines() if self._process else ''

    # Monitor

    def execute(self, command, arguments, timeout=None, oob=False):
        if self._qmp is None:
            raise errors.GuestNotRunning(name=self.name)
        return self._qmp.execute(command, arguments,
                                 timeout or self.qmp_timeout, oob)

    def execute_with_fd(self, fd, command, arguments):
        if self._qmp is None:
            raise errors.GuestNotRunning(name=self.name)
        return self._qmp.execute_with_fd(fd, command, arguments,
                                         self.qmp_timeout)

    def qmp_oob(self, command, /, **arguments):
        """Run a command out of band: it does not wait for the main loop."""
        return self.execute(command, arguments, oob=True)

    def pause(self):
        self.qmp('stop')

    def cont(self):
        self.qmp('cont')

    def disks(self):
        return {name: name for name in self.spec.disk_ids()}

    # Guest

    def agent(self, command, arguments=None, timeout=5.0):
        if self.channel_state(agent.PORT) != channel.OPEN:
            raise errors.AgentUnavailable(
                reason='it does not run in guest %s' % self.name)
        try:
            with self.open_channel(agent.PORT) as connection:
                return agent.execute(connection, command, arguments,
                                     timeout)
        except errors.ChannelUnavailable as error:
            raise errors.AgentUnavailable(reason=str(error)) from error

    def channel_state(self, name):
        for number, known in enumerate(self.spec.channels):
            if known.name == name and known.device == 'virtio-serial':
                label = command.chardev_id(number)
                return (channel.OPEN if any(
                    one.get('label') == label and one.get('frontend-open')
                    for one in self.qmp('query-chardev'))
                    else channel.CLOSED)
        return channel.MISSING

    def open_channel(self, name):
        for known in self.spec.channels:
            if (known.name, known.device, known.backend) == (
                    name, 'virtio-serial', 'socket'):
                return channel.SocketChannel(name, self.channel(name))
        raise errors.ChannelUnavailable(
            channel=name, reason='guest %s has none' % self.name)

    # Migration

    def migrate(self, destination, options):
        return direct_migration.begin(self, destination, options)
