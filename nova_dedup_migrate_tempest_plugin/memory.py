# SPDX-License-Identifier: Apache-2.0
"""What a guest's memory holds, seen from inside of the guest.

A file is written and read, so that the page cache has it and a live
migration may leave it out.  What no disk has is a file of a tmpfs and the
memory of a process: a shell with random text in a variable, which a FIFO has
it make a checksum of.  After a migration all have to have their checksums:
first as memory has them, then the file as the disk has it.
"""

import dataclasses
import shlex

from tempest.lib import exceptions

_FILE = 'dedup-migrate-file'
_MEMORY = 'dedup-migrate-memory'
_ASK = 'dedup-migrate-ask'
_ANSWER = 'dedup-migrate-answer'
#: What holds the anonymous memory.  Four random bytes are eight digits.
_HOLDER = """\
trap '' HUP
data=$(dd if=/dev/urandom bs=524288 count=%(size)d 2>/dev/null |
    od -A n -v -t x4 | tr -d ' \\n')
while read -r line <%(ask)s; do
    echo "$data" | sha256sum >%(answer)s
done"""


class WrongMemory(exceptions.TempestException):
    message = '%(what)s of the guest is not what it was before: %(found)s'


@dataclasses.dataclass(frozen=True)
class Holder:
    """A process in a guest that holds anonymous memory.

    :ivar run: a function that runs a command in the guest and returns what
        it writes, as exec_command of Tempest's RemoteClient
    :ivar directory: of the FIFOs
    :ivar pid: of the process
    """

    run: object
    directory: str
    pid: str

    @classmethod
    def start(cls, run, directory, size):
        """Start one in a guest.

        :param size: MiB
        """
        ask, answer = ('%s/%s' % (directory, name)
                       for name in (_ASK, _ANSWER))
        run('mkfifo %s %s' % (ask, answer))
        script = _HOLDER % {'ask': ask, 'answer': answer, 'size': size}
        return cls(run, directory, run(
            'sh -c %s </dev/null >/dev/null 2>&1 & echo $!'
            % shlex.quote(script)).strip())

    def checksum(self):
        """Return the checksum of the memory, or that the process is gone."""
        return self.run(
            'if kill -0 %(pid)s 2>/dev/null; then echo >%(directory)s/'
            '%(ask)s; cat %(directory)s/%(answer)s; else echo its process '
            'is gone; fi' % {
                'pid': self.pid, 'directory': self.directory, 'ask': _ASK,
                'answer': _ANSWER}).strip()


@dataclasses.dataclass(frozen=True)
class GuestMemory:
    """Checksums of a guest that :func:`fill` has filled.

    :ivar run: as of Holder
    :ivar sums: {path: checksum}; the first is on a disk
    :ivar holder: Holder
    :ivar anonymous: its checksum
    """

    run: object
    sums: dict
    holder: Holder
    anonymous: str

    def verify(self):
        """Compare memory, then the file as the disk has it.

        :raises WrongMemory: a checksum is another one, or a file or the
            process is gone
        """
        self.verify_memory()
        drop_caches(self.run)
        on_disk = list(self.sums)[:1]
        _compare('A disk', {path: self.sums[path] for path in on_disk},
                 _checksums(self.run, on_disk))

    def verify_memory(self):
        """Compare memory; the page cache stays as it is.

        :raises WrongMemory: as verify
        """
        _compare('Memory', self.sums, _checksums(self.run, self.sums))
        _compare('Anonymous memory', self.anonymous, self.holder.checksum())


def fill(run, options):
    """Fill a guest's memory.

    :param run: as of Holder
    :param options: [dedup_migrate] of tempest.conf
    :returns: GuestMemory
    """
    paths = {'%s/%s' % (options.file_directory, _FILE): options.file_size,
             '%s/%s' % (options.memory_directory, _MEMORY):
                 options.memory_size}
    for path, size in paths.items():
        run('dd if=/dev/urandom of=%s bs=1048576 count=%d 2>/dev/null && '
            'sync' % (path, size))
    holder = Holder.start(run, options.memory_directory,
                          options.anonymous_size)
    return GuestMemory(run, _checksums(run, paths), holder,
                       holder.checksum())


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


def drop_caches(run):
    """Have the guest read from its disks what it reads next.

    :param run: as of Holder
    """
    run('sync; echo 3 | %s tee /proc/sys/vm/drop_caches >/dev/null'
        % root(run))


def root(run):
    """Return the prefix of a command that root has to run.

    :param run: as of Holder
    """
    return '' if run('id -u').strip() == '0' else 'sudo'
