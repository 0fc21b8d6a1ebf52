# SPDX-License-Identifier: Apache-2.0
"""What long benches and fault campaigns have done, in a file.

The file survives being killed: it has one JSON object a line, the record of
a run and its key.  A line that was cut by a kill is dropped when the file is
read, and the run it was about is done again.
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import json
import os
from pathlib import Path


def read(path: Path) -> Iterator[dict]:
    """Yield the records of a file.

    :raises OSError: it cannot be read
    """
    with open(path, encoding='utf-8', errors='replace') as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def append(path: Path, record: dict) -> None:
    """Add a record; it is on the disk when this returns.

    The file and its directory are made if there are none.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, 'a+b') as file:
        # After a cut line this one must not become part of it.
        if file.tell() and not _ends_line(file):
            file.write(b'\n')
        file.write(json.dumps(record).encode() + b'\n')
        file.flush()
        os.fsync(file.fileno())


def _ends_line(file) -> bool:
    file.seek(-1, os.SEEK_END)
    return file.read(1) == b'\n'


@dataclasses.dataclass(frozen=True)
class Key:
    """Which run it is.

    cell, variant: names of what is compared, or of a fault and a moment;
    repeat: 0 and on; inputs: digest of what else decides the outcome, such
    as options and the two QEMUs, so that figures of different ones are never
    mixed.
    """

    cell: str
    variant: str
    repeat: int
    inputs: str = ''


class Ledger:
    """The last record of each key.

    :param path: the file; it and its directory need not exist
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[Key, dict] = {}
        for record in read(path) if path.exists() else ():
            try:
                key = Key(**record.pop('key'))
                self._records[key] = record
            except (TypeError, KeyError):
                continue

    def get(self, key: Key) -> dict | None:
        """What was recorded last, None: nothing."""
        return self._records.get(key)

    def items(self) -> list[tuple[Key, dict]]:
        """All keys with their records, in the order of the first ones."""
        return list(self._records.items())

    def missing(self, keys: list[Key]) -> list[Key]:
        """Those of some keys that have no record."""
        return [key for key in keys if key not in self._records]

    def forget(self, failed: Callable[[dict], bool]) -> int:
        """Have failed runs done again; returns how many there were.

        :param failed: callable(record)
        """
        failed_keys = [k for k, r in self._records.items() if failed(r)]
        for key in failed_keys:
            del self._records[key]
        return len(failed_keys)

    def clear(self) -> None:
        """Remove all records, and the file."""
        self._path.unlink(missing_ok=True)
        self._records.clear()

    def add(self, key: Key, record: dict) -> None:
        """Record it; on the disk when this returns."""
        append(self._path, {'key': dataclasses.asdict(key), **record})
        self._records[key] = record
