# SPDX-License-Identifier: Apache-2.0
"""What is on a volume of a guest, seen from inside of the guest."""

import dataclasses

from nova_dedup_migrate_tempest_plugin import memory

_MIB = 1 << 20


@dataclasses.dataclass(frozen=True)
class GuestVolume:
    """The beginning of a volume that is attached.

    :ivar run: a function that runs a command in the guest and returns what
        it writes, as exec_command of Tempest's RemoteClient
    :ivar device: such as /dev/vdb
    :ivar size: MiB that checksum() is of
    """

    run: object
    device: str
    size: int

    def write(self, begin, size):
        """Write random data, and have the disk take it.

        :param begin: MiB
        :param size: MiB
        """
        self.run('%s dd if=/dev/urandom of=%s bs=%d seek=%d count=%d '
                 'conv=notrunc,fsync 2>/dev/null' % (
                     memory.root(self.run), self.device, _MIB, begin, size))

    def checksum(self):
        """Return the checksum of what the disk has."""
        memory.drop_caches(self.run)
        return self.run(
            '%s dd if=%s bs=%d count=%d 2>/dev/null | sha256sum' % (
                memory.root(self.run), self.device, _MIB, self.size)
        ).split()[0]
