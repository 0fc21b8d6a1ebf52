# SPDX-License-Identifier: Apache-2.0
"""The store of operations: a directory with a file for each.

``<migration UUID>.json`` is one JSON object::

    version    1
    operation  operation.Durable: what recovery needs; of an operation that
               has ended without its data
    report     reports.report.Report, as reports.codec writes it

Why files and not SQLite: an operation has one writer, is read whole and is
some ten kilobytes.  A file that is damaged costs one operation and not
all; an operator reads it with any tool, and removes it if in doubt.  The
files are the migration's reports as well, so there is nothing to keep in
step.

A file is written aside, brought to the disk and then renamed: after a
crash it is the old one or the new one.  What such a crash leaves aside
begins with a dot; a later write removes it.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import errno
import json
import os
import stat
import tempfile
import threading
import time
import typing
import uuid

from nova_dedup_migrate.operations import errors
from nova_dedup_migrate.operations import operation
from nova_dedup_migrate.reports import build
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report as report_module

VERSION = 1
#: A file has some ten kilobytes; a larger one is none of ours.
MAX_BYTES = 4 * 1024 * 1024
_SUFFIX = '.json'
_ASIDE = '.aside-'
#: Seconds after which a file aside belongs to no writer any more.
_ASIDE_AGE = 3600

_Result = typing.TypeVar('_Result')


class OperationStore:
    """Usable by several threads, and by readers in other processes.

    :param path: the directory; made when something is written
    :param limit: operations kept that have ended
    """

    def __init__(self, path: str, limit: int) -> None:
        self.path = os.fspath(path)
        self._limit = max(1, limit)
        self._lock = threading.Lock()

    def write(self, given: operation.Operation) -> report_module.Report:
        """Write an Operation over its earlier state; return its Report.

        :raises InvalidName: its id is no UUID
        :raises StoreUnusable: the directory or the disk does not let us
        """
        name = checked(given.durable.id) + _SUFFIX
        report = build.of_operation(given)
        durable = codec.plain(given.durable)
        ended = given.durable.phase == operation.ENDED
        if ended:
            durable['data'] = {}
        data = json.dumps({'version': VERSION, 'operation': durable,
                           'report': codec.plain(report)},
                          indent=1, allow_nan=False).encode()
        with self._lock, self._usable():
            os.makedirs(self.path, mode=0o750, exist_ok=True)
            self._replace(name, data)
            if ended:
                self._prune(name)
        return report

    def remove(self, name: str) -> None:
        """Remove an operation that came to nothing; idempotent.

        :raises StoreUnusable: the directory does not let us
        """
        with self._lock, self._usable(), \
                contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.path, checked(name) + _SUFFIX))

    def read(self, name: str) -> report_module.Report:
        """Return the Report of a migration.

        :param name: its UUID
        :raises InvalidName: name is no UUID
        :raises OperationNotFound: there is none
        :raises OperationDamaged: the file is not one of ours
        :raises StoreUnusable: the file cannot be read
        """
        return self._decoded(name, _report)

    def names(self) -> list[str]:
        """Return the UUIDs of all operations, the newest first.

        :raises StoreUnusable: the directory is not for us to read
        """
        with self._usable():
            return [name for _, name in sorted(self._entries(),
                                               reverse=True)]

    def changes(self) -> dict[str, int]:
        """Return {UUID: time of the last change in ns} of all operations.

        :raises StoreUnusable: the directory is not for us to read
        """
        with self._usable():
            return {name: at for at, name in self._entries()}

    def reports(self, limit: int | None = None) -> tuple[
            list[report_module.Report], list[errors.StoreError]]:
        """Return the Reports, the newest first, and why others are missing.

        :param limit: files read, None for all
        :raises StoreUnusable: the directory is not for us to read
        """
        return self._all(self.names()[:limit], _report)

    def unfinished(self) -> tuple[
            list[tuple[operation.Durable, report_module.Report]],
            list[errors.StoreError]]:
        """Return what has not ended with its report, and what was not read.

        :raises StoreUnusable: the directory is not for us to read
        """
        found, missing = self._all(
            self.names(), lambda values: (_durable(values), _report(values)))
        return [one for one in found
                if one[0].phase != operation.ENDED], missing

    def _all(self, names: list[str],
             decode: Callable[[typing.Any], _Result]
             ) -> tuple[list[_Result], list[errors.StoreError]]:
        found: list[_Result] = []
        missing: list[errors.StoreError] = []
        for name in names:
            try:
                found.append(self._decoded(name, decode))
            except errors.OperationNotFound:
                # removed since, as the oldest one
                continue
            except errors.StoreError as error:
                # It costs this operation and not all.
                missing.append(error)
        return found, missing

    def _decoded(self, name: str,
                 decode: Callable[[typing.Any], _Result]) -> _Result:
        name = checked(name)
        path = os.path.join(self.path, name + _SUFFIX)
        try:
            values = _values(_read(path))
            if values['operation'].get('id') != name:
                raise ValueError('it is the file of migration %.40r'
                                 % values['operation'].get('id'))
            return decode(values)
        except FileNotFoundError as error:
            raise errors.OperationNotFound(name=name,
                                           path=self.path) from error
        except ValueError as error:
            raise errors.OperationDamaged(path=path,
                                          reason=error) from error
        except OSError as error:
            raise errors.StoreUnusable(
                path=path, reason=error.strerror or error) from error

    @contextlib.contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise errors.StoreUnusable(
                path=self.path, reason=error.strerror or error) from error

    def _entries(self) -> Iterator[tuple[int, str]]:
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

    def _replace(self, name: str, data: bytes) -> None:
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
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _prune(self, new: str) -> None:
        """Remove the oldest that have ended, and what crashes have left."""
        old = sorted(entry for entry in self._entries()
                     if entry[1] + _SUFFIX != new)
        doomed = [name + _SUFFIX
                  for _, name in old[:max(0, len(old) + 1 - self._limit)]
                  if self._has_ended(name)]
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.name.startswith(_ASIDE):
                    with contextlib.suppress(FileNotFoundError):
                        age = time.time() - entry.stat(
                            follow_symlinks=False).st_mtime
                        if age > _ASIDE_AGE:
                            doomed.append(entry.name)
        for name in doomed:
            # What cannot be removed is no reason to fail a write.
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.path, name))

    def _has_ended(self, name: str) -> bool:
        """Whether it may be removed; what is damaged may be."""
        try:
            return self._decoded(name, _durable).phase == operation.ENDED
        except errors.StoreUnusable:
            return False
        except errors.StoreError:
            return True


def is_name(name: str) -> bool:
    """Whether it is a UUID in its canonical form."""
    try:
        return str(uuid.UUID(name)) == name
    except (ValueError, TypeError, AttributeError):
        return False


def checked(name: str) -> str:
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


def _report(values: dict[str, typing.Any]) -> report_module.Report:
    report = codec.structure(values.get('report'))
    if report.migration_uuid != values['operation']['id']:
        raise ValueError('its report is about migration %.40r'
                         % report.migration_uuid)
    return report


def _durable(values: dict[str, typing.Any]) -> operation.Durable:
    found = codec.structure_as(values['operation'], operation.Durable,
                               'operation')
    if found.phase not in operation.PHASES:
        raise ValueError('phase %.40r is not known' % found.phase)
    return found


def _values(data: bytes) -> dict[str, typing.Any]:
    """Return the object in a file.

    :raises ValueError: it is none of ours
    """
    try:
        values = json.loads(data)
    except RecursionError as error:
        raise ValueError('it is nested too deeply') from error
    if (not isinstance(values, dict)
            or not isinstance(values.get('operation'), dict)):
        raise ValueError('it does not hold an operation')
    if values.get('version') != VERSION:
        raise ValueError('its version is %.40r, this release reads %d'
                         % (values.get('version'), VERSION))
    return values


def _read(path: str) -> bytes:
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
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError('it is not a regular file')
        with open(handle, 'rb', closefd=False) as file:
            data = file.read(MAX_BYTES + 1)
    finally:
        os.close(handle)
    if len(data) > MAX_BYTES:
        raise ValueError('it has more than %d bytes' % MAX_BYTES)
    return data
