# SPDX-License-Identifier: Apache-2.0
"""The daemon that writes a target: qemu-storage-daemon with one export.

It is given open descriptors of the target and of its backing files, by
number, and the format of each; it probes nothing and follows no name in an
image.  What it opens is the very file that was checked, whatever its path
names by now.  Nothing else is exported, and only to the socket that is
passed to it.

::

    this process                       qemu-storage-daemon
      open target, check it
      listen on a socket in a private directory
      start ----------- descriptors ----> /proc/self/fd/N
      connect ------------ NBD ---------> export "target"
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import fcntl
import json
import logging
import os
import socket
import stat
import subprocess
import tempfile

from nova_dedup_migrate.images import locks
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import extents
from nova_dedup_migrate.storage.libnbd import nbd

LOG = logging.getLogger(__name__)

#: Seconds for the daemon to answer, and to end after SIGTERM.
START = 20.0
STOP = 20.0
#: Name of the export, and of its node.
EXPORT = 'target'
#: The daemon has no privilege of this process, and ends with the thread
#: that has started it, whatever kills that: it must not write to a disk
#: that somebody else goes on with.
_CONFINED = ('setpriv', '--pdeathsig', 'KILL', '--no-new-privs',
             '--inh-caps=-all', '--ambient-caps=-all', '--')
#: Bytes of its messages that an error has.
_MESSAGE = 1024


@dataclasses.dataclass(frozen=True)
class Image:
    """A file and its format, 'raw' or 'qcow2'."""

    path: str
    format: str

    def __post_init__(self) -> None:
        if self.format not in blocks.FORMATS:
            raise ValueError('format %r of %s is none of %s' % (
                self.format, self.path, ', '.join(blocks.FORMATS)))


class Writer:
    """A running daemon; it ends with the thread that makes this.

    :param image: the target, which exists
    :param backing: its backing files, from the one below it down; must be
        all there are if the target is to be compared with the guest's disk
    :param program: path of qemu-storage-daemon
    :param roots: directories that files may be in; None: any
    :param direct: whether to pass by the page cache where the file system
        can, so that what is read back comes from storage
    :raises TargetFailed: it does not start
    """

    def __init__(self, image: Image, backing: Sequence[Image] = (),
                 program: str = 'qemu-storage-daemon',
                 roots: paths.Roots = None, direct: bool = True) -> None:
        self.path = image.path
        self._process: subprocess.Popen | None = None
        with contextlib.ExitStack() as stack:
            self.fd = self._open(image.path, roots)
            stack.callback(os.close, self.fd)
            self._own()
            self._directory = stack.enter_context(
                tempfile.TemporaryDirectory(prefix='dedup-writer-'))
            self._log = stack.enter_context(
                open(os.path.join(self._directory, 'log'), 'w+b'))
            self._address = os.path.join(self._directory, 'nbd')
            stack.callback(self._kill)
            try:
                self._start(image, backing, program, roots, direct)
                # It is there and can open the image.
                with self.connect() as handle:
                    self.size = handle.get_size()
            except (OSError, nbd.Error) as error:
                raise self.failed(error) from error
            self._stack = stack.pop_all()

    def _open(self, path: str, roots: paths.Roots) -> int:
        """Return a descriptor of the target, for reading and writing.

        :raises TargetFailed:
        """
        return _open(path, roots, os.O_RDWR)

    def _own(self) -> None:
        """Keep other writers away: what one has proven the other changes.

        The lock is also the daemon's, which has the same description open.
        QEMU's own locks are between a daemon and a guest.  It is of one
        byte that QEMU does not lock: flock() would be a lock of all bytes on
        NFS and GlusterFS, and keep the daemon out.
        """
        try:
            locks.claim(self.fd)
        except OSError as error:
            raise errors.TargetFailed(
                path=self.path, reason='another process fills it: %s'
                % error) from error

    def _start(self, image: Image, backing: Sequence[Image], program: str,
               roots: paths.Roots, direct: bool) -> None:
        with contextlib.ExitStack() as stack:
            listener = stack.enter_context(
                socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            listener.bind(self._address)
            listener.listen(16)
            numbers = [listener.fileno(), self.fd]
            arguments = [program]
            below = None
            for index, each in reversed(list(enumerate(backing))):
                fd = _open(each.path, roots, os.O_RDONLY)
                stack.callback(os.close, fd)
                numbers.append(fd)
                below = node(arguments, 'below%d' % index, each.format, fd,
                             True, direct, below)
            node(arguments, EXPORT, image.format, self.fd, False, direct,
                 below)
            arguments += [
                '--nbd-server', 'addr.type=fd,addr.str=%d'
                % listener.fileno(),
                '--export', 'nbd,id=target,node-name=%s,name=%s,'
                'writable=on,allocation-depth=on' % (EXPORT, EXPORT)]
            self._run(arguments, numbers)

    def _run(self, arguments: Sequence[str], numbers: Sequence[int]) -> None:
        """Start the program, with open descriptors."""
        self._process = subprocess.Popen(
            [*_CONFINED, *arguments], pass_fds=numbers,
            stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log,
            close_fds=True, env={'LC_ALL': 'C'}, start_new_session=True)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @contextlib.contextmanager
    def connect(self) -> Iterator[nbd.NBD]:
        """Give a connected nbd.NBD of the target.

        :raises nbd.Error: the daemon has ended
        """
        handle = extents.connection()
        handle.set_export_name(EXPORT)
        peer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            peer.settimeout(START)
            peer.connect(self._address)
            peer.settimeout(None)
            handle.connect_socket(peer.detach())
            yield handle
            handle.shutdown()
        finally:
            peer.close()

    def failed(self, error: object) -> errors.TargetFailed:
        """Return the error with what the daemon has printed."""
        self._log.flush()
        self._log.seek(0)
        printed = self._log.read(_MESSAGE).decode(errors='replace').strip()
        return errors.TargetFailed(
            path=self.path,
            reason='%s%s' % (error, '; qemu-storage-daemon: ' + printed
                             if printed else ''))

    def close(self) -> None:
        """End the daemon and wait until it has closed the files.

        :raises TargetFailed: it did not end as it should
        """
        with self._stack:
            process = self._process
            assert process is not None
            process.terminate()
            try:
                status = process.wait(STOP)
            except subprocess.TimeoutExpired as error:
                raise self.failed('it does not end') from error
            if status:
                raise self.failed('it ended with status %d' % status)
            os.fsync(self.fd)

    def abandon(self) -> None:
        """End the daemon; whether what it wrote is kept does not matter."""
        self._stack.close()

    def _kill(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()


def _open(path: str, roots: paths.Roots, flags: int) -> int:
    """Return a descriptor of a regular file or block device.

    :raises TargetFailed: it is something else, or cannot be opened
    """
    try:
        opener = (paths.open_device if path.startswith(paths.DEV + '/')
                  else paths.open_path)
        with opener(path, roots) as handle:
            mode = os.fstat(handle).st_mode
            if not stat.S_ISREG(mode) and not stat.S_ISBLK(mode):
                raise errors.TargetFailed(
                    path=path, reason='it is neither a file nor a block '
                    'device')
            return paths.reopen(handle, flags | os.O_NONBLOCK)
    except (OSError, paths.PathRefused) as error:
        raise errors.TargetFailed(path=path, reason=error) from error


def node(arguments: list[str], name: str, image_format: str, fd: int,
         read_only: bool, direct: bool, below: str | None,
         path: str | None = None) -> str:
    """Add the options of one image; return the name of its node.

    :param path: by which the program opens what fd has open
    """
    cached = not (direct and _passes_cache(fd))
    mode = os.fstat(fd).st_mode
    file = {'driver': 'host_device' if stat.S_ISBLK(mode) else 'file',
            'node-name': name + '-file',
            'filename': path or '/proc/self/fd/%d' % fd,
            'read-only': read_only, 'discard': 'unmap',
            'cache': {'direct': not cached}}
    node = {'driver': image_format, 'node-name': name,
            'file': name + '-file', 'read-only': read_only,
            'discard': 'unmap', 'cache': {'direct': not cached}}
    if image_format == 'qcow2':
        node['backing'] = below
    for options in (file, node):
        arguments += ['--blockdev', json.dumps(options)]
    return name


def _passes_cache(fd: int) -> bool:
    """Have a descriptor pass by the page cache; return whether it can."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETFL,
                    fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_DIRECT)
    except OSError:
        return False
    return True
