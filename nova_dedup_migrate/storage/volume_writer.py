# SPDX-License-Identifier: Apache-2.0
"""The program that writes a volume: QEMU without a machine.

qemu-storage-daemon opens its images by name, as the user it runs as, who may
not open a volume.  QEMU takes the descriptor itself, which the privileged
helper may have opened (images.writable).  So what writes to the volume has no
privilege, and no file of another user but this one.
"""

from __future__ import annotations

from collections.abc import Sequence
import json
import socket

from nova_dedup_migrate.images import paths
from nova_dedup_migrate.images import writable
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import writer

#: Bytes of an answer.
_MAX_ANSWER = 1 << 16


class VolumeWriter(writer.Writer):
    """A running QEMU that has a volume open; see Writer.

    :param image: the volume
    :param program: path of qemu-system-*
    """

    def _open(self, path: str, roots: paths.Roots) -> int:
        try:
            return writable.open_volume(path)
        except (OSError, paths.PathRefused) as error:
            raise errors.TargetFailed(path=path, reason=error) from error

    def _start(self, image: writer.Image, backing: Sequence[writer.Image],
               program: str, roots: paths.Roots, direct: bool) -> None:
        arguments = [program, '-machine', 'none,accel=tcg:kvm', '-nodefaults',
                     '-no-user-config', '-display', 'none', '-S',
                     '-add-fd', 'fd=%d,set=1' % self.fd]
        writer.node(arguments, writer.EXPORT, image.format, self.fd, False,
                    direct, None, '/dev/fdset/1')
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                arguments += [
                    '-chardev', 'socket,id=monitor,fd=%d' % theirs.fileno(),
                    '-mon', 'chardev=monitor,mode=control']
                self._run(arguments, (self.fd, theirs.fileno()))
            ours.settimeout(writer.START)
            self._serve(ours)

    def _serve(self, monitor: socket.socket) -> None:
        """Have the volume exported.

        :raises OSError: QEMU refuses or has ended
        """
        with monitor.makefile('rwb') as stream:
            for name, arguments in (
                    ('qmp_capabilities', {}),
                    ('nbd-server-start', {'addr': {
                        'type': 'unix', 'data': {'path': self._address}}}),
                    ('block-export-add', {
                        'type': 'nbd', 'id': writer.EXPORT,
                        'node-name': writer.EXPORT, 'name': writer.EXPORT,
                        'writable': True, 'allocation-depth': True})):
                stream.write(json.dumps({
                    'execute': name, 'arguments': arguments}).encode())
                stream.flush()
                answer: dict = {}
                while 'return' not in answer:
                    line = stream.readline(_MAX_ANSWER)
                    if not line:
                        raise OSError('QEMU has ended')
                    answer = json.loads(line)
                    if 'error' in answer:
                        raise OSError('%s: %s' % (
                            name, answer['error'].get('desc')))
