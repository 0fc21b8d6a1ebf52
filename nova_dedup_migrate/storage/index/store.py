# SPDX-License-Identifier: Apache-2.0
"""The index of one host: which files hold a block with a given digest.

::

    DIRECTORY/catalog     SQLite: files, their owners, names of segments
    DIRECTORY/N.segment   digests and places, see segment.py

A file is entered with a new segment; a row of the catalog makes the
segment part of the index.  If the process is killed before, the segment is
removed at the next start.  Segments are merged as they become many, and
then the entries of files that have gone are dropped.

Every file has an owner: 'public', a project's ID, or 'image:' and the SHA-1
of an image's ID.  A look-up names the owners
whose content the caller may learn of.  It returns nothing of others, not
even that it is there.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import dataclasses
import fcntl
import logging
import os
import sqlite3
import threading
import time

import numpy

from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import errors
from nova_dedup_migrate.storage.index import segment

LOG = logging.getLogger(__name__)

PUBLIC = 'public'
#: Segments that a look-up goes through, at most.
MAX_SEGMENTS = 8
#: Entries of an index unless the operator says otherwise: 2 TiB of
#: content, 1 GiB of segments.
MAX_ENTRIES = 64 << 20
#: Times that an index is loaded by a process that does not own it.
_LOADS = 3
_SCHEMA = '''
CREATE TABLE IF NOT EXISTS files (
    number INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT UNIQUE NOT NULL,
    owner TEXT NOT NULL, device INTEGER NOT NULL, inode INTEGER NOT NULL,
    size INTEGER NOT NULL, mtime_ns INTEGER NOT NULL,
    entries INTEGER NOT NULL, indexed REAL NOT NULL);
CREATE TABLE IF NOT EXISTS segments (
    number INTEGER PRIMARY KEY AUTOINCREMENT, entries INTEGER NOT NULL);
'''


@dataclasses.dataclass(frozen=True)
class File:
    """A file of the catalog.

    :ivar number: in places
    :ivar owner: whose content it is
    :ivar mtime_ns: when it was read
    :ivar entries: different blocks that are not zero
    :ivar indexed: when, in seconds since 1970
    """

    number: int
    path: str
    owner: str
    device: int
    inode: int
    size: int
    mtime_ns: int
    entries: int
    indexed: float

    def is_as(self, stat: os.stat_result) -> bool:
        """Return whether a file has not changed since it was read."""
        return ((self.device, self.inode, self.size, self.mtime_ns)
                == (stat.st_dev, stat.st_ino, stat.st_size,
                    stat.st_mtime_ns))


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a block may be."""

    file: File
    offset: int


class Index:
    """An index; its methods may be called from several threads.

    :param directory: is made if there is none
    :param max_entries: files that were indexed first are dropped if there
        would be more
    :param writable: whether to change it; only one process can
    :raises IndexDamaged: or IndexInUse
    :raises OSError: the directory cannot be made or read
    """

    def __init__(self, directory: str, max_entries: int = MAX_ENTRIES,
                 writable: bool = True) -> None:
        self._directory = directory
        self._max_entries = max_entries
        self._guard = threading.RLock()
        self._lock = self._own(writable)
        path = os.path.join(directory, 'catalog')
        try:
            self._catalog = sqlite3.connect(path, timeout=30.0,
                                            check_same_thread=False,
                                            isolation_level=None)
            self._catalog.execute('PRAGMA journal_mode = WAL')
            # After a crash of the host the last files are read again.
            self._catalog.execute('PRAGMA synchronous = NORMAL')
            self._catalog.executescript(_SCHEMA)
            self._load_whole(writable)
        except sqlite3.Error as error:
            os.close(self._lock)
            raise errors.IndexDamaged(path=path, reason=error) from error
        except BaseException:
            self.close()
            raise

    def _own(self, writable: bool) -> int:
        """Return a descriptor of the directory, locked to write to it."""
        if writable:
            os.makedirs(self._directory, 0o700, exist_ok=True)
        lock = os.open(self._directory, os.O_RDONLY | os.O_CLOEXEC)
        if writable:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(lock)
                raise errors.IndexInUse(path=self._directory) from error
        return lock

    def _load_whole(self, writable: bool) -> None:
        """Load it; the process that owns it may merge segments meanwhile."""
        for _ in range(_LOADS - 1):
            try:
                return self._load(writable)
            except errors.IndexDamaged:
                if writable:
                    raise
        return self._load(writable)

    def _load(self, writable: bool) -> None:
        """Read the catalog and map the segments."""
        self._files = {row[0]: File(*row) for row in self._catalog.execute(
            'SELECT * FROM files')}
        numbers = [row[0] for row in self._catalog.execute(
            'SELECT number FROM segments ORDER BY number')]
        self._segments = {number: segment.Segment(self._path(number))
                          for number in numbers}
        for name in os.listdir(self._directory) if writable else ():
            number = name.partition('.segment')[0]
            if '.segment' in name and not (
                    number.isdigit() and int(number) in self._segments
                    and name.endswith('.segment')):
                os.unlink(os.path.join(self._directory, name))

    def _path(self, number: int) -> str:
        return os.path.join(self._directory, '%d.segment' % number)

    def files(self) -> list[File]:
        with self._guard:
            return list(self._files.values())

    def file(self, path: str) -> File | None:
        """Return the entry of a path, None if it is not indexed."""
        with self._guard:
            return next((file for file in self._files.values()
                         if file.path == path), None)

    @property
    def entries(self) -> int:
        """How many there are, those of files that have gone included."""
        with self._guard:
            return sum(each.entries for each in self._segments.values())

    def add(self, path: str, owner: str, stat: os.stat_result,
            digests: numpy.ndarray, numbers: numpy.ndarray
            ) -> File | None:
        """Enter a file, in place of what was known of it.

        :param stat: of the file before it was read
        :param digests: of its blocks, as segment.keys
        :param numbers: of these blocks
        :returns: None if the file alone is more than the index may have
        """
        zero = segment.keys(blocks.ZERO_DIGEST)[0]
        used = digests != zero
        found, numbers = digests[used], numbers[used]
        if len(found) > self._max_entries:
            LOG.warning('File %s is not indexed: it has %d blocks and the '
                        'index may have %d. Raise [dedup_migrate] '
                        'index_max_entries.', path, len(found),
                        self._max_entries)
            return None
        with self._guard:
            self.remove(path)
            self._make_room(len(found))
            with self._transaction():
                number = self._next('files')
                if number > segment.MAX_FILE:
                    raise errors.IndexDamaged(
                        path=self._directory, reason='it has had %d files'
                        % segment.MAX_FILE)
                new = self._next('segments')
                entries = segment.write(self._path(new), found,
                                        segment.places(number, numbers))
                file = File(number, path, owner, stat.st_dev, stat.st_ino,
                            stat.st_size, stat.st_mtime_ns, entries,
                            time.time())
                self._catalog.execute(
                    'INSERT INTO files VALUES (?,?,?,?,?,?,?,?,?)',
                    dataclasses.astuple(file))
                self._catalog.execute(
                    'INSERT INTO segments VALUES (?,?)', (new, entries))
            self._files[number] = file
            self._segments[new] = segment.Segment(self._path(new))
            if len(self._segments) > MAX_SEGMENTS:
                self._merge(self._small())
            return file

    def remove(self, path: str) -> None:
        """Take a file out."""
        with self._guard:
            file = self.file(path)
            if file is not None:
                self._catalog.execute('DELETE FROM files WHERE number = ?',
                                      (file.number,))
                del self._files[file.number]

    def set_owner(self, path: str, owner: str) -> None:
        """Change whose content a file is."""
        with self._guard:
            file = self.file(path)
            if file is not None and file.owner != owner:
                self._catalog.execute(
                    'UPDATE files SET owner = ? WHERE number = ?',
                    (owner, file.number))
                self._files[file.number] = dataclasses.replace(
                    file, owner=owner)

    def compact(self) -> None:
        """Drop the entries of files that have gone."""
        with self._guard:
            if self._segments:
                self._merge(list(self._segments))

    def find(self, digests: Sequence[bytes], owners: Collection[str]
             ) -> list[Place | None]:
        """Return where blocks may be, None for those not known.

        :param owners: whose content may be found
        """
        found = self.look_up(segment.keys(b''.join(digests)), owners)
        with self._guard:
            files = dict(self._files)
        result: list[Place | None] = []
        for place in found.tolist():
            file = files.get(place >> segment.BLOCK_BITS)
            number = place & (1 << segment.BLOCK_BITS) - 1
            result.append(None if file is None else
                          Place(file, number * blocks.BLOCK))
        return result

    def look_up(self, keys: numpy.ndarray, owners: Collection[str]
                ) -> numpy.ndarray:
        """Return a place for each key, segment.NOWHERE for none."""
        with self._guard:
            segments = list(self._segments.values())
            allowed = self._allowed(owners)
        order = numpy.argsort(keys)
        ordered = keys[order]
        places = numpy.full(len(keys), segment.NOWHERE, segment.KEY)
        for each in reversed(segments):
            each.look_up(ordered, allowed, places)
        result = numpy.empty_like(places)
        result[order] = places
        return result

    def keys(self, owners: Collection[str]) -> Iterator[numpy.ndarray]:
        """Yield the keys of all entries of some owners."""
        with self._guard:
            segments = list(self._segments.values())
            allowed = self._allowed(owners)
        for each in segments:
            yield each.keys[segment.is_allowed(each.places, allowed)]

    def keys_of(self, path: str) -> numpy.ndarray | None:
        """Return the keys of a file, None if it is not indexed."""
        with self._guard:
            file = self.file(path)
            segments = list(self._segments.values())
        if file is None:
            return None
        allowed = numpy.zeros(file.number + 1, bool)
        allowed[file.number] = True
        return numpy.concatenate([numpy.empty(0, segment.KEY), *(
            each.keys[segment.is_allowed(each.places, allowed)]
            for each in segments)])

    def _allowed(self, owners: Collection[str] | None) -> numpy.ndarray:
        """Return a flag for each file number."""
        allowed = numpy.zeros(max(self._files, default=0) + 1, bool)
        for number, file in self._files.items():
            allowed[number] = owners is None or file.owner in owners
        return allowed

    def _small(self) -> list[int]:
        """Return the segments to merge: each less than twice the rest."""
        chosen, total = [], 0
        for number in sorted(self._segments, key=lambda each:
                             self._segments[each].entries):
            entries = self._segments[number].entries
            if len(chosen) > 1 and entries > 2 * total:
                break
            chosen.append(number)
            total += entries
        return chosen

    def _merge(self, numbers: Sequence[int]) -> None:
        parts = [self._segments[number] for number in numbers]
        with self._transaction():
            new = self._next('segments')
            entries = segment.merge(self._path(new), parts,
                                    self._allowed(None))
            self._catalog.executemany(
                'DELETE FROM segments WHERE number = ?',
                [(number,) for number in numbers])
            self._catalog.execute('INSERT INTO segments VALUES (?,?)',
                                  (new, entries))
        self._segments[new] = segment.Segment(self._path(new))
        for number in numbers:
            # Look-ups that are under way have it mapped.
            os.unlink(self._segments.pop(number).path)

    def _make_room(self, entries: int) -> None:
        """Drop files until there is room for more entries."""
        if self.entries + entries <= self._max_entries:
            return
        self.compact()
        dropped = 0
        for file in sorted(self.files(), key=lambda each: each.indexed):
            if self.entries - dropped + entries <= self._max_entries:
                break
            LOG.info('File %s is taken out of the index, which is full',
                     file.path)
            self.remove(file.path)
            dropped += file.entries
        if dropped:
            self.compact()

    def _next(self, table: str) -> int:
        """Return the next number of a table, which was never used."""
        row = self._catalog.execute(
            'SELECT seq FROM sqlite_sequence WHERE name = ?',
            (table,)).fetchone()
        return (row[0] if row else 0) + 1

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._catalog.execute('BEGIN IMMEDIATE')
        try:
            yield
        except BaseException:
            self._catalog.execute('ROLLBACK')
            raise
        self._catalog.execute('COMMIT')

    def close(self) -> None:
        with self._guard:
            self._catalog.close()
            if self._lock >= 0:
                os.close(self._lock)
                self._lock = -1
