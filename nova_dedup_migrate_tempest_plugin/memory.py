# SPDX-License-Identifier: Apache-2.0
"""What a guest's memory holds, seen from inside of the guest.

A file is written and read, so that the page cache has it and a live
migration may leave it out, and a file of a tmpfs, which no disk has.  After
a migration both have to have their checksums: first as the page cache has
them, then as the disk has them.
"""

import dataclasses

from tempest.lib import exceptions

_FILE = 'dedup-migrate-file'
_MEMORY = 'dedup-migrate-memory'


class WrongMemory(exceptions.TempestException):
    message = '%(what)s of the guest is not what it was before: %(found)s'


@dataclasses.dataclass(frozen=True)
class GuestMemory:
    """Checksums of a guest that :func:`fill` has filled.

    :ivar run: a function that runs a command in the guest and returns what
        it writes, as exec_command of Tempest's RemoteClient
    :ivar sums: {path: checksum}; the first is on a disk
    """

    run: object
    sums: dict

    def verify(self):
        """Compare the checksums.

        :raises WrongMemory: one is another one, or a file is gone
        """
        _compare('Memory', self.sums, _checksums(self.run, self.sums))
        # The file is read from the disk again.
        self.run('sync; echo 3 | %s tee /proc/sys/vm/drop_caches >/dev/null'
                 % _root(self.run))
        on_disk = list(self.sums)[:1]
        _compare('A disk', {path: self.sums[path] for path in on_disk},
                 _checksums(self.run, on_disk))


def fill(run, options):
    """Fill a guest's memory.

    :param run: as of GuestMemory
    :param options: [dedup_migrate] of tempest.conf
    :returns: GuestMemory
    """
    paths = {'%s/%s' % (options.file_directory, _FILE): options.file_size,
             '%s/%s' % (options.memory_directory, _MEMORY):
                 options.memory_size}
    for path, size in paths.items():
        run('dd if=/dev/urandom of=%s bs=1048576 count=%d 2>/dev/null && '
            'sync' % (path, size))
    return GuestMemory(run, _checksums(run, paths))


def _checksums(run, paths):
    found = {}
    for line in run('sha256sum %s' % ' '.join(paths)).splitlines():
        checksum, _, path = line.partition('  ')
        found[path.strip()] = checksum
    return found


def _compare(what, wanted, found):
    if wanted != found:
        raise WrongMemory(what=what, found='%s instead of %s' % (
            found, wanted))


def _root(run):
    """Return the prefix of a command that root has to run."""
    return '' if run('id -u').strip() == '0' else 'sudo'
