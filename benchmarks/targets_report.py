# SPDX-License-Identifier: Apache-2.0
"""What a target of the Makefile was to show, and what it showed.

``build/<target>/report.json``::

    {"rows": [{"name": "total time, off", "value": 1.2, "unit": "%",
               "target": "within 3", "ok": true}],
     "made": {"commit": "0123abc", "command": "make lab-off-cost",
              "duration": 731.5}}

``duration`` is in seconds.  A value that could not be measured is null, and
its row is not ok.
"""

import dataclasses
import json
from pathlib import Path
import subprocess
import sys
import time

from lab import table

TOP = Path(__file__).resolve().parents[1]


@dataclasses.dataclass(frozen=True)
class Row:
    """One value and its target, as text."""

    name: str
    value: float | None
    unit: str
    target: str
    ok: bool


def _commit() -> str:
    done = subprocess.run(
        ['git', '-C', TOP, 'describe', '--always', '--dirty'],
        capture_output=True, text=True, check=False)
    return done.stdout.strip()


def _command(target: str) -> str:
    given = ' '.join(sys.argv[1:])
    return f'make {target}' + (f' ARGS="{given}"' if given else '')


def write(target: str, rows: list[Row], started: float) -> bool:
    """Write the report, print its table; whether all rows are ok.

    :param started: time.monotonic() when it began
    """
    directory = TOP / 'build' / target
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / 'report.json'
    path.write_text(json.dumps({
        'rows': [dataclasses.asdict(row) for row in rows],
        'made': {
            'commit': _commit(),
            'command': _command(target),
            'duration': round(time.monotonic() - started, 1),
        },
    }, indent=1) + '\n')
    print('\n' + table.text(
        ('', 'value', 'unit', 'target', 'ok'),
        [(row.name, '-' if row.value is None else f'{row.value:g}', row.unit,
          row.target, 'yes' if row.ok else 'NO') for row in rows]))
    print(f'\nIn {path}.')
    return all(row.ok for row in rows)
