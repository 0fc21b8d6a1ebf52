# SPDX-License-Identifier: Apache-2.0
"""What has been measured, in a file that survives being killed.

One JSON object a line.  A line that was cut by a kill is dropped when the
file is read, and the run it was about is done again.
"""

from collections.abc import Iterator
import dataclasses
import json
import os
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Key:
    """Which run it is.

    cell, variant: names; repeat: 0 and on; inputs: digest of what else
    decides the outcome, such as options and the two QEMUs, so that figures
    of different ones are never mixed.
    """

    cell: str
    variant: str
    repeat: int
    inputs: str


class Ledger:
    """:param path: the file; it and its directory need not exist"""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[Key, dict] = {}
        if path.exists():
            for key, record in self._read():
                self._records[key] = record

    def _read(self) -> Iterator[tuple[Key, dict]]:
        with open(self._path, encoding='utf-8', errors='replace') as file:
            for line in file:
                try:
                    record = json.loads(line)
                    key = Key(**record.pop('key'))
                except (ValueError, TypeError, KeyError, AttributeError):
                    continue
                yield key, record

    def get(self, key: Key) -> dict | None:
        """What was recorded last, None: nothing."""
        return self._records.get(key)

    def forget_failed(self) -> int:
        """Have failed runs done again; returns how many there were."""
        failed = [k for k, r in self._records.items() if 'failed' in r]
        for key in failed:
            del self._records[key]
        return len(failed)

    def add(self, key: Key, record: dict) -> None:
        """Record it; on the disk when this returns."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({'key': dataclasses.asdict(key), **record})
        with open(self._path, 'a+b') as file:
            # After a cut line this one must not become part of it.
            if file.tell() and not self._ends_line(file):
                file.write(b'\n')
            file.write(line.encode() + b'\n')
            file.flush()
            os.fsync(file.fileno())
        self._records[key] = record

    @staticmethod
    def _ends_line(file) -> bool:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b'\n'
