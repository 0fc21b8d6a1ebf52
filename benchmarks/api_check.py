# SPDX-License-Identifier: Apache-2.0
"""Fuzz the REST API from its own OpenAPI document; run its gabbi tests.

``make api-check``.  The API runs over HTTP with a database that has
migrations, drains and hosts; no engine changes them meanwhile.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from benchmarks import controller
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.engine import summary
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.tests.unit.reports import samples
from testkit import results

_TOP = pathlib.Path(__file__).parents[1]
_REPORT = _TOP / 'build/api-check/report.json'
_GABBI = pathlib.Path(__file__).parent / 'api/drains.yaml'
#: What a response may never be, whatever was requested.
_CHECKS = ('not_a_server_error', 'status_code_conformance',
           'content_type_conformance', 'response_schema_conformance')


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--quick', action='store_true',
                        help='fewer examples of each operation')
    arguments = parser.parse_args(argv)
    made = results.Results('make api-check' + (
        ' ARGS=--quick' if arguments.quick else ''))
    with tempfile.TemporaryDirectory() as directory, \
            controller.sqlite(directory) as (conf, database, _):
        fill(database)
        with controller.api(conf, database) as url:
            for name, token in (('admin', controller.ADMIN),
                                ('reader', 'alice:blue:reader')):
                fuzz(made, url, name, token, 20 if arguments.quick else 200)
            gabbi(made, url)
    print(made.text())
    made.write(_REPORT)
    return made.status()


def fill(database):
    """Store something to find."""
    report = samples.make()
    with database.write() as session:
        migrations.put(session, summary.of_report(report, 1),
                       codec.encode(report))
        migrations.note(session, {'uuid': report.migration_uuid},
                        {'project_id': 'blue', 'server_name': '<b>'})
        hosts.put(session, 'compute1', {'patched': True, 'guests': []})


def fuzz(made, url, name, token, examples):
    output = run(
        'schemathesis', '--no-color', 'run', url + '/v1/openapi.json',
        '--header', 'X-Auth-Token: ' + token, '--max-examples',
        str(examples), '--checks', ','.join(_CHECKS), '--seed', '19',
        '--workers', '2', '--suppress-health-check', 'all')
    print(output.stdout[-6000:])
    cases = re.search(r'(\d+) generated', output.stdout)
    failures = re.findall(r'(?m)^_{3,} (\S+ \S+) _{3,}$', output.stdout)
    made.add('schemathesis, %s: requests' % name,
             int(cases.group(1)) if cases else 0, '', 'any',
             cases is not None)
    made.add('schemathesis, %s: failing operations' % name,
             len(failures), '', '0',
             output.returncode == 0 and not failures)


def gabbi(made, url):
    output = run('gabbi-run', url.removeprefix('http://'), '--',
                 str(_GABBI))
    print(output.stdout[-3000:] + output.stderr[-3000:])
    found = re.search(r'Ran (\d+) test', output.stderr + output.stdout)
    made.add('gabbi: tests passed', int(found.group(1)) if found else 0,
             '', 'all', output.returncode == 0 and found is not None)


def run(program, *arguments):
    return subprocess.run(
        [os.path.join(os.path.dirname(sys.executable), program),
         *arguments], capture_output=True, text=True, check=False,
        stdin=subprocess.DEVNULL, env={**os.environ, 'COLUMNS': '100'})


if __name__ == '__main__':
    sys.exit(main())
