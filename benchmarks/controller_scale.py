# SPDX-License-Identifier: Apache-2.0
"""Measure the controller with a large cloud.

``make controller-scale``.  MariaDB and the controller are real: the API
over HTTP, an engine as a process of its own.  Nova is emulated: 1,000
hosts and 10,000 instances whose migrations take a second.  The database
gets 4 million migrations first; lists are timed with each filter.
"""

import argparse
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid

import sqlalchemy as sa

from benchmarks import controller
from benchmarks import mariadb
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import schema
from nova_dedup_migrate.engine import summary
from nova_dedup_migrate.tests.unit.reports import samples
from testkit import openstack
from testkit import results

_TOP = pathlib.Path(__file__).parents[1]
_REPORT = _TOP / 'build/controller-scale/report.json'
_DRAINS = 20
#: Lists of the time of which is measured; {uuid} is one of a migration.
_LISTS = ('', '?state=failed', '?state=running', '?host=compute7',
          '?project=project3', '?server=00000000-0000-4000-8000-{:012d}',
          '?changes-since={}', '?state=completed&host=compute9&limit=100')
_CONF = '''\
[DEFAULT]
log_file = {directory}/engine.log
[database]
connection = {connection}
[engine]
max_outbound = 4
metrics_listen =
[openstack]
auth_type = password
auth_url = {url}/v3
username = dedup
password = x
project_name = service
user_domain_id = default
project_domain_id = default
region_name = RegionOne
'''


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--quick', action='store_true',
                        help='100,000 migrations, 50 hosts')
    arguments = parser.parse_args(argv)
    quick = arguments.quick
    made = results.Results('make controller-scale' + (
        ' ARGS=--quick' if quick else ''))
    emulated = openstack.OpenStack(50 if quick else 1000)
    emulated.slots = 4
    emulated.start()
    try:
        with tempfile.TemporaryDirectory() as directory, \
                mariadb.running(directory) as connection:
            conf = controller.configuration(connection, emulated.url)
            database = facade.Database(conf)
            schema.sync(database)
            measure(made, conf, database, emulated, directory,
                    100_000 if quick else 4_000_000)
            database.close()
    finally:
        emulated.stop()
    print(made.text())
    made.write(_REPORT)
    return made.status()


def measure(made, conf, database, emulated, directory, number):
    fill(database, number)
    hosts = list(emulated.hosts)
    for name in hosts:
        emulated.add(name, 10)
    emulated.add(hosts[-1], 490)
    conf_file = pathlib.Path(directory) / 'controller.conf'
    conf_file.write_text(_CONF.format(
        directory=directory, url=emulated.url,
        connection=conf.database.connection))
    with controller.api(conf, database) as url:
        lists(made, url, database, number)
        engine = subprocess.Popen(
            [sys.executable, '-W', 'ignore', '-m',
             'nova_dedup_migrate.cmd.engine', '--config-file',
             str(conf_file)], stdin=subprocess.DEVNULL, cwd=_TOP)
        try:
            check(made, url, hosts[-1])
            drain(made, url, database, emulated, hosts, engine)
        finally:
            engine.terminate()
            engine.wait(60)


def fill(database, number):
    """Store migrations, made by the database itself."""
    plain = json.dumps(summary.of_report(samples.make(), 1)['summary'])
    statement = '''\
INSERT INTO migrations (uuid, server_id, server_name, project_id, source,
    destination, state, phase, strategy, started_at, finished_at,
    updated_at, revision, summary)
SELECT CONCAT('10000000-0000-4000-8000-', LPAD(seq, 12, '0')),
    CONCAT('00000000-0000-4000-8000-', LPAD(seq % 10000, 12, '0')),
    CONCAT('server', seq % 10000), CONCAT('project', seq % 100),
    CONCAT('compute', seq % 1000), CONCAT('compute', (seq * 7 + 1) % 1000),
    IF(seq % 97 = 0, 'failed', 'completed'), 'ended', 'shared_nas',
    1.7e9 + seq * 8, 1.7e9 + seq * 8 + 60, 1.7e9 + seq * 8 + 60, 1, :text
FROM seq_{}_to_{}'''
    step = 100_000
    for first in range(1, number + 1, step):
        with database.engine.begin() as connection:
            connection.execute(sa.text(statement.format(
                first, min(number, first + step - 1))), {'text': plain})


def call(url, path, body=None, method=None):
    request = urllib.request.Request(
        url + path, method=method,
        data=None if body is None else json.dumps(body).encode(),
        headers={'X-Auth-Token': controller.ADMIN,
                 'Content-Type': 'application/json'})
    with urllib.request.urlopen(request, timeout=120) as response:
        return json.loads(response.read())


def lists(made, url, database, number):
    """Time lists, and pages far from their beginning."""
    late = time.strftime('%Y-%m-%dT%H:%M:%SZ',
                         time.gmtime(1.7e9 + (number - 500) * 8))
    times = []
    for turn, query in itertools.product(range(12), _LISTS):
        path = '/v1/migrations' + query.format(
            late if 'since' in query else turn * 31)
        began = time.monotonic()
        found = call(url, path)
        times.append(time.monotonic() - began)
        link = found.get('migrations_links')
        if link:
            marker = link[0]['href'].split('?')[1]
            began = time.monotonic()
            call(url, '/v1/migrations?' + re.sub(
                r'marker=(\d+)$', 'marker=%d' % (number // 2), marker))
            times.append(time.monotonic() - began)
    p95 = statistics.quantiles(times, n=20)[-1] * 1000
    made.add('list of migrations, p95 of %d with %d stored'
             % (len(times), number), p95, 'ms', 'below 200', p95 < 200)
    made.add('list of migrations, longest', max(times) * 1000, 'ms',
             'shown', True)


def check(made, url, host):
    began = time.monotonic()
    estimate = call(url, '/v1/estimates', {'estimate': {'host': host}})[
        'estimate']
    while estimate['state'] in ('pending', 'running'):
        time.sleep(0.2)
        estimate = call(url, '/v1/estimates/' + estimate['id'])['estimate']
    taken = time.monotonic() - began
    servers = len(estimate['servers'] or ())
    made.add('pre-check of %d servers' % servers, taken, 's', 'below 30',
             estimate['state'] == 'done' and servers == 500 and taken < 30)


def drain(made, url, database, emulated, hosts, engine):
    """Drain hosts at the same time."""
    before, began = writes(database), time.monotonic()
    ids = []
    for name in hosts[:_DRAINS]:
        drain_id = str(uuid.uuid4())
        ids.append(drain_id)
        call(url, '/v1/drains', {'drain': {'id': drain_id, 'host': name}})
    rss = 0
    left = set(ids)
    while left and time.monotonic() - began < 900:
        time.sleep(1)
        rss = max(rss, resident(engine.pid))
        for one in list(left):
            found = call(url, '/v1/drains/' + one)['drain']
            if found['state'] == 'drained':
                left.discard(one)
    taken = time.monotonic() - began
    # A server may come to a host that is drained a moment later.
    requests = [(one.server.id, one.source) for one in emulated.migrations]
    twice = len(requests) - len(set(requests))
    made.add('%d drains at once: drained' % _DRAINS, _DRAINS - len(left),
             '', str(_DRAINS), not left)
    made.add('live migrations by them', len(requests), '',
             'at least %d' % (_DRAINS * 10), len(requests) >= _DRAINS * 10)
    made.add('requested twice from the same host', twice, '', '0',
             not twice)
    made.add('time of these drains', taken, 's', 'shown', True)
    made.add('writes to the database', (writes(database) - before) / taken,
             '1/s', 'shown', True)
    made.add('memory of the engine', rss / (1 << 20), 'MiB', 'below 500',
             0 < rss < 500 << 20)


def writes(database):
    with database.read() as session:
        return sum(int(value) for _, value in session.execute(sa.text(
            "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_insert', "
            "'Com_update', 'Com_delete')")))


def resident(pid):
    found = re.search(r'VmRSS:\s+(\d+) kB', pathlib.Path(
        '/proc/%d/status' % pid).read_text())
    return int(found.group(1)) * 1024 if found else 0


if __name__ == '__main__':
    sys.exit(main())
