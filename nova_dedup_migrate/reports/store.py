# SPDX-License-Identifier: Apache-2.0
"""The directory of reports, one file each: <migration UUID>.json.

A report is written to a temporary file, synchronised and renamed: after a
crash the file has the old or the new content.  Names of temporary files
begin with a dot; a later write removes those that a crash left.
"""

import contextlib
import errno
import os
import stat
import tempfile
import threading
import time
import uuid

from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import errors

#: A report has some ten kilobytes; a larger file is not one.
MAX_BYTES = 4 * 1024 * 1024
_SUFFIX = '.json'
_TEMPORARY = '.aside-'
#: Seconds after which a temporary file is a leftover.
_TEMPORARY_AGE = 3600


class ReportStore:
    """Keeps the newest reports; safe with several threads and processes.

    :param path: the directory; the first write creates it
    :param limit: number of reports kept
    """

    def __init__(self, path, limit):
        self.path = os.fspath(path)
        self._limit = max(1, limit)
        self._lock = threading.Lock()

    def write(self, report):
        """Write a Report; replace an earlier one of the same migration.

        :raises InvalidName: migration_uuid is not a UUID
        :raises StoreUnusable: the file cannot be written
        """
        name = checked(report.migration_uuid) + _SUFFIX
        data = codec.encode(report)
        with self._lock, self._usable():
            os.makedirs(self.path, mode=0o750, exist_ok=True)
            self._replace(name, data)
            self._tidy(name)

    def read(self, name):
        """Return the Report of a migration.

        :param name: its UUID
        :raises InvalidName: name is not a UUID
        :raises ReportNotFound: there is no file
        :raises ReportDamaged: the file is not a report
        :raises StoreUnusable: the file cannot be read
        """
        name = checked(name)
        path = os.path.join(self.path, name + _SUFFIX)
        try:
            with self._usable():
                data = _read(path)
            report = codec.decode(data)
        except FileNotFoundError as error:
            raise errors.ReportNotFound(name=name,
                                        path=self.path) from error
        except ValueError as error:
            raise errors.ReportDamaged(path=path, reason=error) from error
        if report.migration_uuid != name:
            raise errors.ReportDamaged(
                path=path, reason='it has the report of migration %.40r'
                % report.migration_uuid)
        return report

    def names(self):
        """Return the UUIDs of all migrations with a report, newest first.

        :raises StoreUnusable: the directory cannot be read
        """
        with self._usable():
            return [name for _, name in sorted(self._entries(),
                                               reverse=True)]

    def list(self, limit=None):
        """Return (reports, damaged): Reports and ReportDamaged errors.

        The newest report is the first.

        :param limit: number of files read, None for all
        :raises StoreUnusable: the directory cannot be read
        """
        reports, damaged = [], []
        for name in self.names()[:limit]:
            try:
                reports.append(self.read(name))
            except errors.ReportDamaged as error:
                damaged.append(error)
            except errors.ReportNotFound:
                # removed meanwhile as the oldest one
                continue
        return reports, damaged

    @contextlib.contextmanager
    def _usable(self):
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise errors.StoreUnusable(
                path=self.path, reason=error.strerror or error) from error

    def _entries(self):
        """Yield (time of change, UUID)."""
        try:
            with os.scandir(self.path) as entries:
                for entry in entries:
                    name, suffix = os.path.splitext(entry.name)
                    if suffix == _SUFFIX and is_name(name):
                        with contextlib.suppress(FileNotFoundError):
                            yield entry.stat(
                                follow_symlinks=False).st_mtime_ns, name
        except FileNotFoundError:
            return

    def _replace(self, name, data):
        handle, temporary = tempfile.mkstemp(dir=self.path, prefix=_TEMPORARY)
        try:
            with open(handle, 'wb') as file:
                os.fchmod(handle, 0o640)
                file.write(data)
                file.flush()
                os.fsync(handle)
            os.replace(temporary, os.path.join(self.path, name))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _tidy(self, new):
        """Remove the oldest reports, never the new one, and leftovers."""
        old = sorted(entry for entry in self._entries()
                     if entry[1] + _SUFFIX != new)
        doomed = [name + _SUFFIX
                  for _, name in old[:max(0, len(old) + 1 - self._limit)]]
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.startswith(_TEMPORARY):
                    with contextlib.suppress(FileNotFoundError):
                        age = time.time() - entry.stat(
                            follow_symlinks=False).st_mtime
                        if age > _TEMPORARY_AGE:
                            doomed.append(entry.name)
        for name in doomed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, name))


def is_name(name):
    """Whether name is a UUID in its canonical form."""
    try:
        return str(uuid.UUID(name)) == name
    except (ValueError, TypeError, AttributeError):
        return False


def checked(name):
    """Return a UUID in its canonical form.

    :raises InvalidName: name is not a UUID
    """
    try:
        canonical = str(uuid.UUID(name))
    except (ValueError, TypeError, AttributeError):
        canonical = None
    # uuid.UUID also accepts braces and URNs
    if canonical is None or canonical != name.lower():
        raise errors.InvalidName(name=str(name)[:80])
    return canonical


def _read(path):
    """Return the bytes of a regular file.

    :raises ValueError: it is not one, or too large
    """
    try:
        # O_NONBLOCK: opening a pipe must not block.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
                         | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError('it is a symbolic link') from error
        raise
    with open(handle, 'rb') as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError('it is not a regular file')
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise ValueError('it is larger than %d bytes' % MAX_BYTES)
    return data
