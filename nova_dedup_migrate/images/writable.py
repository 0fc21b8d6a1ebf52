# SPDX-License-Identifier: Apache-2.0
"""Opening a new volume for writing, with one capability for that alone.

The user nova may not open what Nova has connected for QEMU.  A helper of
its own opens it and does nothing else; it runs no program and has no other
capability.

::

    nova-compute                            privileged helper
      open with O_PATH: which file it is
      listen on a socket in a private
      directory
      ------------ path, which file ------> open with O_PATH, compare
                                            open for reading and writing
      <----------- descriptor ------------- send it, close it

The helper opens regular files below the directories in which its own
configuration has Nova mount volumes, through no symbolic link, and block
devices in /dev that the host itself does not use: none that is mounted or a
part of another device.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
import errno
import os
import socket
import stat
import tempfile

from oslo_config import cfg
from oslo_privsep import capabilities
from oslo_privsep import comm
from oslo_privsep import daemon
from oslo_privsep import priv_context

from nova_dedup_migrate.conf import nova
from nova_dedup_migrate.images import paths

#: To open for writing what belongs to somebody else.
CAPABILITIES = (capabilities.CAP_DAC_OVERRIDE,)
#: Seconds for the helper to be started and to answer.
_PATIENCE = 60.0

context = priv_context.PrivContext(
    'nova_dedup_migrate.images',
    cfg_section='dedup_migrate_writer',
    pypath=__name__ + '.context',
    capabilities=CAPABILITIES,
    timeout=_PATIENCE,
)


def open_volume(path: str) -> int:
    """Return a descriptor of a volume, for reading and writing.

    :param path: of a regular file, or of a block device in /dev
    :raises PathRefused: it is something else
    :raises OSError: as open(2); a device that the host uses is busy
    """
    with _handle(path, None) as handle:
        try:
            return _reopen(path, handle)
        except PermissionError as error:
            refused = error
        try:
            return _receive(path, handle)
        except (daemon.FailedToDropPrivileges, daemon.ProtocolError,
                comm.PrivsepTimeout, EOFError) as error:
            raise PermissionError(
                errno.EACCES, 'the user of nova-compute may not open it, and '
                'the helper of [dedup_migrate_writer] helper_command failed: '
                '%s. Check that sudo or rootwrap allows the command' % error
            ) from refused


def _receive(path: str, handle: int) -> int:
    """Return a descriptor that the helper has opened."""
    with tempfile.TemporaryDirectory(
            prefix='dedup-volume-') as directory, socket.socket(
            socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        address = os.path.join(directory, 'socket')
        listener.bind(address)
        listener.listen(1)
        listener.settimeout(_PATIENCE)
        send_volume(path, _identity(handle), address)
        # It is in the socket by now.
        peer, _ = listener.accept()
        with peer:
            _, (fd,), _, _ = socket.recv_fds(peer, 1, 1)
    os.set_inheritable(fd, False)
    return fd


@context.entrypoint
def send_volume(path: str, identity: list[int], address: str) -> None:
    """Open a volume, and send the descriptor; runs in the helper.

    :param identity: of the file that is meant
    :param address: of a socket that listens
    :raises PathRefused: path names another file, or none that is allowed
    :raises OSError:
    """
    nova.register_opts(cfg.CONF)
    with _handle(path, nova.volume_directories(cfg.CONF)) as handle:
        if _identity(handle) != list(identity):
            raise paths.PathRefused(path, 'it is not the file that '
                                    'nova-compute has found there')
        fd = _reopen(path, handle)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
            peer.settimeout(_PATIENCE)
            peer.connect(address)
            socket.send_fds(peer, [b'\0'], [fd])
    finally:
        os.close(fd)


def _handle(path: str, roots: paths.Roots) -> AbstractContextManager[int]:
    """Give an O_PATH descriptor, which takes no right to the file."""
    if path.startswith(paths.DEV + '/'):
        return paths.open_device(path, ())
    return paths.open_path(path, roots)


def _reopen(path: str, handle: int) -> int:
    mode = os.fstat(handle).st_mode
    if stat.S_ISBLK(mode):
        return paths.reopen(handle, os.O_RDWR | os.O_EXCL)
    if not stat.S_ISREG(mode):
        raise paths.PathRefused(path, 'it is neither a file nor a block '
                                'device')
    return paths.reopen(handle, os.O_RDWR)


def _identity(handle: int) -> list[int]:
    found = os.fstat(handle)
    return [found.st_dev, found.st_ino, found.st_rdev]
