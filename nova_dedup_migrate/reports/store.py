# SPDX-License-Identifier: Apache-2.0
"""Reports in a folder, one file each: <migration UUID>.json.

A file is written aside, brought to the disk and then renamed, so that
after a crash it is the old one or the new one.  What such a crash leaves
aside begins with a dot and is removed by a later write.
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

#: A report has some ten kilobytes; a larger file is none.
MAX_BYTES = 4 * 1024 * 1024
_SUFFIX = '.json'
_ASIDE = '.aside-'
#: Seconds after which a file aside belongs to nobody any more.
_ASIDE_AGE = 3600


class ReportStore:
    """Keeps the newest reports; usable by several threads and processes.

    :param path: the folder; made when something is written
    :param limit: reports kept
    """

    def __init__(self, path, limit):
        self.path = os.fspath(path)
        self._limit = max(1, limit)
        self._lock = threading.Lock()

    def write(self, report):
        """Write a Report, over an earlier one of the same migration.

        :raises InvalidName: its migration_uuid is no UUID
        :raises StoreUnusable: the folder or the disk does not let us
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
        :raises InvalidName: name is no UUID
        :raises ReportNotFound: there is none
        :raises ReportDamaged: it is no report
        :raises StoreUnusable: it is not for us to read
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
                path=path, reason='it is the report of migration %.40r'
                % report.migration_uuid)
        return report

    def names(self):
        """Return the UUIDs of all migrations with a report, newest first.

        :raises StoreUnusable: the folder is not for us to read
        """
        with self._usable():
            return [name for _, name in sorted(self._entries(),
                                               reverse=True)]

    def list(self, limit=None):
        """Return (reports, damaged): Reports and ReportDamaged errors.

        The newest ones come first.

        :param limit: files looked at, None for all
        :raises StoreUnusable: the folder is not for us to read
        """
        reports, damaged = [], []
        for name in self.names()[:limit]:
            try:
                reports.append(self.read(name))
            except errors.ReportDamaged as error:
                damaged.append(error)
            except errors.ReportNotFound:
                # removed since, as the oldest one
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
        handle, aside = tempfile.mkstemp(dir=self.path, prefix=_ASIDE)
        try:
            with open(handle, 'wb') as file:
                os.fchmod(handle, 0o640)
                file.write(data)
                file.flush()
                os.fsync(handle)
            os.replace(aside, os.path.join(self.path, name))
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside)
            raise
        folder = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _tidy(self, new):
        """Remove the oldest reports, never the new one, and leftovers."""
        old = sorted(entry for entry in self._entries()
                     if entry[1] + _SUFFIX != new)
        doomed = [name + _SUFFIX
                  for _, name in old[:max(0, len(old) + 1 - self._limit)]]
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.startswith(_ASIDE):
                    with contextlib.suppress(FileNotFoundError):
                        age = time.time() - entry.stat(
                            follow_symlinks=False).st_mtime
                        if age > _ASIDE_AGE:
                            doomed.append(entry.name)
        for name in doomed:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(self.path, name))


def is_name(name):
    """Whether it is a UUID in its canonical form."""
    try:
        return str(uuid.UUID(name)) == name
    except (ValueError, TypeError, AttributeError):
        return False


def checked(name):
    """Return a UUID in its canonical form.

    :raises InvalidName: it is none
    """
    try:
        canonical = str(uuid.UUID(name))
    except (ValueError, TypeError, AttributeError):
        canonical = None
    # uuid.UUID also takes braces and URNs
    if canonical is None or canonical != name.lower():
        raise errors.InvalidName(name=str(name)[:80])
    return canonical


def _read(path):
    """Return the bytes of a regular file.

    :raises ValueError: it is none, or too large
    """
    try:
        # A pipe that somebody put there must not make us wait.
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
        raise ValueError('it has more than %d bytes' % MAX_BYTES)
    return data
