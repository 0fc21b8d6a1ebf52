# SPDX-License-Identifier: Apache-2.0
"""make nova-boundary: what is left when a step of Nova's fails.

Each row makes one step of Nova's fail while it finishes a live migration or
rolls one back: the message bus or libvirt does not answer, or nova-compute
is killed.  Nova's services and its database are real; libvirt, Neutron,
Cinder and Placement are the fixtures of Nova's functional tests.  When the
migration is settled all that there is is compared with a migration in which
nothing failed, and the instance migrates once more.
"""

import argparse
import json
import os
from pathlib import Path
import subprocess
import sys
import tempfile
import textwrap

from testkit import results

NAME = 'nova-boundary'
TOP = Path(__file__).resolve().parents[1]
_TESTS = './nova_dedup_migrate/tests/nova_functional'
#: Seconds for one row.
_ROW_S = 300
_WIDTHS = (44, 46)


def stestr(verb: str, *options: str) -> list[str]:
    return ['stestr', verb, '--test-path', _TESTS, *options]


def expected(regex: str, env: dict[str, str]) -> int:
    """Return how many rows there are."""
    if not (TOP / '.stestr').is_dir():
        # stestr makes its repository for a run, but not to list tests.
        subprocess.run(['stestr', 'init'], cwd=TOP, check=True)
    listed = subprocess.run(
        stestr('list', regex), cwd=TOP, env=env, check=True,
        stdout=subprocess.PIPE, text=True).stdout.split()
    return sum('test_boundary' in name for name in listed)


def read(directory: Path) -> list[dict]:
    """Return the rows that tests have recorded, by name."""
    rows = [json.loads(path.read_text()) for path in directory.iterdir()]
    return sorted(rows, key=lambda row: row['name'])


def text(rows: list[dict]) -> str:
    """Return the table: failure, what Nova says, what is left, result."""
    lines = []
    for row in rows:
        left = textwrap.wrap('; '.join(row['left'] + [
            'as with the stock driver, ' + line
            for line in row.get('ignored', ())]) or 'nothing', 100)
        name = textwrap.wrap(row['name'], _WIDTHS[0])
        said = textwrap.wrap(row['said'], _WIDTHS[1])
        lines.append(f'{"ok " if row["ok"] else "NOT"}  '
                     f'{name[0]:{_WIDTHS[0]}}  {said[0]:{_WIDTHS[1]}}')
        for index in range(1, max(len(name), len(said))):
            lines.append(
                '     %s  %s' % (
                    (name[index:index + 1] or [''])[0].ljust(_WIDTHS[0]),
                    (said[index:index + 1] or [''])[0]))
        lines += ['     left: ' + left[0], *('           ' + line
                                             for line in left[1:])]
    return '\n'.join(line.rstrip() for line in lines)


def add_rows(made: results.Results, rows: list[dict], count: int) -> None:
    """Add the rows of report.json."""
    for row in rows:
        made.add(row['name'], len(row['left']), 'differences left', '0',
                 row['ok'])
    missing = count - len(rows)
    if missing or not rows:
        made.add('rows without a result', missing, '', '0', False)


def options(args: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='make nova-boundary', description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true',
                        help='a representative third of the rows')
    parser.add_argument('--rows', default='test_boundary', metavar='REGEX',
                        help='run only tests that match it (%(default)s)')
    parser.add_argument('--workers', type=int, default=os.cpu_count(),
                        help='rows at the same time (%(default)s)')
    return parser.parse_args(args)


def main(args: list[str] | None = None) -> int:
    given = options(args)
    made = results.Results(' '.join(
        ['make', NAME] + (['ARGS="%s"' % ' '.join(sys.argv[1:])]
                          if sys.argv[1:] else [])))
    directory = TOP / 'build' / NAME
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as recorded:
        env = {**os.environ, 'NOVA_BOUNDARY_RECORD': recorded,
               'NOVA_BOUNDARY': '' if given.quick else 'all',
               'OS_TEST_TIMEOUT': str(_ROW_S)}
        count = expected(given.rows, env)
        print(f'{count} rows, {given.workers} at a time; the log is '
              f'{directory / "tests.log"}', flush=True)
        with open(directory / 'tests.log', 'w') as log:
            status = subprocess.run(
                stestr('run', '--concurrency', str(given.workers),
                       given.rows), cwd=TOP, env=env,
                check=False, stdout=log, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL).returncode
        rows = read(Path(recorded))
    add_rows(made, rows, count)
    made.write(directory / 'report.json')
    print('\n' + text(rows) + '\n\n' + made.text())
    if status and not made.status():
        print(f'Tests failed, see {directory / "tests.log"}.',
              file=sys.stderr)
    return made.status() or status


if __name__ == '__main__':
    sys.exit(main())
