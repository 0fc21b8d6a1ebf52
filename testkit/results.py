# SPDX-License-Identifier: Apache-2.0
"""The results of a command that shows whether targets are met.

A command prints its rows as a table, leaves them in a file and exits with a
status other than 0 if a row is not ok.  The file is one JSON object:

    rows   list of {"name", "value", "unit", "target", "ok"}: what was
           measured, as a number or text; its unit, '' for none; what it has
           to be, in words; whether it is
    made   {"commit", "command", "duration"}: of the source tree, with
           "-dirty" if it has changes; as typed; seconds
"""

import dataclasses
import json
from pathlib import Path
import subprocess
import time

from testkit import table

_TOP = Path(__file__).parents[1]


@dataclasses.dataclass(frozen=True)
class Row:
    """One figure and its target."""

    name: str
    value: float | str
    unit: str
    target: str
    ok: bool


class Results:
    """Rows, from the time at which the command began.

    :param command: as a user types it, such as make lab-faults
    """

    def __init__(self, command: str) -> None:
        self.rows: list[Row] = []
        self._command = command
        self._begun = time.monotonic()

    def add(self, name: str, value: float | str, unit: str, target: str,
            ok: bool) -> None:
        self.rows.append(Row(name, value, unit, target, bool(ok)))

    def text(self) -> str:
        """Return the table."""
        return table.text(
            ('name', 'value', 'unit', 'target', 'ok'),
            [(row.name, _short(row.value), row.unit, row.target,
              'yes' if row.ok else 'NO') for row in self.rows])

    def write(self, path: Path) -> None:
        """Write the file; its directory is made if there is none."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({
            'rows': [dataclasses.asdict(row) for row in self.rows],
            'made': {'commit': _commit(), 'command': self._command,
                     'duration': round(time.monotonic() - self._begun, 1)},
        }, indent=1) + '\n')

    def status(self) -> int:
        """Return the exit status: 0 if there are rows and all are ok."""
        return 0 if self.rows and all(row.ok for row in self.rows) else 1


def _short(value: float | str) -> str:
    return f'{value:.4g}' if isinstance(value, float) else str(value)


def _commit() -> str:
    """Return the commit of the source tree, '' if it is no git checkout."""
    try:
        done = subprocess.run(
            ['git', 'describe', '--always', '--abbrev=40', '--dirty',
             '--exclude=*'], cwd=_TOP, capture_output=True, text=True,
            check=False)
    except OSError:
        return ''
    return done.stdout.strip()
