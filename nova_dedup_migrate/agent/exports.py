# SPDX-License-Identifier: Apache-2.0
"""A disk of a guest that several threads read at the same time.

QEMU has one NBD server, so there is one export while anyone reads.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import threading

from nova_dedup_migrate.hypervisor import disk_export
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import errors
from nova_dedup_migrate.storage import extents
from nova_dedup_migrate.storage.libnbd import nbd
from nova_dedup_migrate.storage.sources import base
from nova_dedup_migrate.storage.sources import source


class Export:
    """An export that is there while it is used.

    :param export: exports the disk and gives the path of a socket
    """

    def __init__(self, export: Callable[
            [], contextlib.AbstractContextManager[str]]) -> None:
        self._export = export
        self._guard = threading.Lock()
        self._users = 0
        self._path = ''
        self._stack = contextlib.ExitStack()

    @contextlib.contextmanager
    def connect(self) -> Iterator[nbd.NBD]:
        """Give a connection to the disk.

        :raises DiskUnreadable:
        """
        try:
            with self._used() as path:
                handle = extents.connection()
                handle.set_export_name(disk_export.NAME)
                handle.connect_unix(path)
                try:
                    yield handle
                finally:
                    handle.shutdown()
        except (hypervisor_errors.HypervisorError, nbd.Error) as error:
            raise errors.DiskUnreadable(reason=error) from error

    @contextlib.contextmanager
    def _used(self) -> Iterator[str]:
        with self._guard:
            if not self._users:
                self._path = self._stack.enter_context(self._export())
            self._users += 1
        try:
            yield self._path
        finally:
            with self._guard:
                self._users -= 1
                if not self._users:
                    self._stack.close()


class ExportedSource(base.Source):
    """Blocks of the disk, for a destination that has no other source.

    :param export: of the disk
    :param size: bytes of the disk
    """

    name = 'source'
    cost = base.Cost(rate=200e6, latency=0.005)

    def __init__(self, export: Export, size: int) -> None:
        self._opened = export
        self._size = size

    def have(self, wanted: Sequence[blocks.Block]) -> list[bool]:
        return [block.offset + block.length <= self._size
                for block in wanted]

    def read(self, wanted: Sequence[blocks.Block]) -> list[bytes | None]:
        with self._opened.connect() as disk:
            return source.GuestDiskSource(disk).read(wanted)
