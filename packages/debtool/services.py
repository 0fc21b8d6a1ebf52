# SPDX-License-Identifier: Apache-2.0
"""Starts services of installed packages without systemd.

Each is started with the command and as the user of its unit, with a second
configuration file, in a network of its own, and has to answer over HTTP and
to end with status 0 at SIGTERM.
"""

import re

from debtool import host

#: Read after what the packages have installed.
CONF = {
    '/srv/check/nova-dedup-migrate.conf':
        '[DEFAULT]\ntransport_url = fake:///\n'
        '[api]\nauth_strategy = noauth2\n'
        '[openstack]\nauth_type = none\nendpoint_override = '
        'http://127.0.0.1:1\n',
    '/srv/check/agent.conf':
        '[DEFAULT]\ntransport_url = fake:///\nhost = check\n'
        '[libvirt]\nvirt_type = kvm\n'
        '[dedup_migrate]\nindex_interval = 0\n'
        'channel_address = 127.0.0.1\n',
}
_API = 'http://127.0.0.1:8785'
_TOKEN = '-H "X-Auth-Token: check:check:admin"'
#: Seconds until a service answers, on a machine that is busy with others.
_LIMIT = 300

_START = '''
{command} >/srv/check/log 2>&1 &
pid=$!
end() {{ cat /srv/check/log; kill -9 $pid; exit 1; }} >&2
left={limit}
until curl --silent --show-error --fail {curl} >/srv/check/answer \\
        2>/srv/check/error && grep -q '{wanted}' /srv/check/answer; do
    kill -0 $pid || end
    left=$((left - 1))
    [ $left -gt 0 ] || {{ cat /srv/check/error >&2; end; }}
    sleep 1
done
{inside}
kill -TERM $pid
status=0
wait $pid || status=$?
[ $status = 0 ] || {{ echo "SIGTERM: status $status" >&2; end; }}
head -c 60 /srv/check/answer | tr '\\n' ' '
'''


def prepare(system):
    """Write the configuration files of the checks."""
    for path, text in CONF.items():
        place = system.path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


def command(system, unit, *arguments):
    """Return the command of a unit, as its user, with its capabilities.

    :param arguments: more of them, after --config-file and its value
    """
    text = system.path('/usr/lib/systemd/system/' + unit).read_text()
    found = dict(re.findall(r'^(\w+)=(.*)$', text, re.MULTILINE))
    words = found['ExecStart'].split()
    at = words.index('--config-file') + 2 if '--config-file' in words else 1
    words[at:at] = arguments
    capabilities = found.get('AmbientCapabilities', '').lower().replace(
        'cap_', '+').split()
    held = ','.join(capabilities)
    return ' '.join((
        'setpriv --reuid={0} --regid={0} --init-groups --no-new-privs'
        .format(found['User']),
        *(('--inh-caps=' + held, '--ambient-caps=' + held) if held else ()),
        'env', 'HOME=/', 'OS_DEDUP_MIGRATE_CONFIG_DIR=/srv/check', *words))


def answers(system, unit, curl, wanted, *arguments, inside=''):
    """Check that a service answers, and ends when it has to.

    :param curl: arguments of curl
    :param wanted: what the answer has, a basic regular expression
    :param inside: a script that is run when the service has answered
    :returns: the beginning of the answer
    """
    try:
        return system.read('starting %s' % unit, _START.format(
            command=command(system, unit, *arguments), curl=curl,
            wanted=wanted, limit=_LIMIT, inside=inside))
    except Exception as error:
        raise host.CheckFailed(reason='%s: %s' % (
            unit, str(error)[-600:])) from error


def whole(system):
    """Check the API and an engine in one process."""
    return answers(
        system, 'nova-dedup-migrate.service',
        '%s %s/v1/services' % (_TOKEN, _API), 'nova-dedup-migrate-engine',
        '--config-file', '/srv/check/nova-dedup-migrate.conf',
        inside='curl --silent --fail %s/healthcheck >/dev/null' % _API)


def api(system):
    """Check the API in uWSGI, after the schema is brought up."""
    files = ('--config-file /etc/nova-dedup-migrate/nova-dedup-migrate.conf '
             '--config-file /srv/check/nova-dedup-migrate.conf')
    system.run('making the schema', 'runuser -u nova-dedup-migrate -- '
               'nova-dedup-migrate-manage %s db sync' % files)
    return answers(
        system, 'nova-dedup-migrate-api.service',
        '%s %s/v1/migrations' % (_TOKEN, _API), 'migrations',
        inside='curl --silent --fail %s/healthcheck >/dev/null' % _API)


def engine(system):
    """Check an engine: its metrics, and its row in the database."""
    return answers(
        system, 'nova-dedup-migrate-engine.service',
        'http://127.0.0.1:9109/metrics', '^dedup_migrate_',
        '--config-file', '/srv/check/nova-dedup-migrate.conf')


def agent(system):
    """Check the agent: its metrics, also after SIGHUP."""
    return answers(
        system, 'nova-dedup-migrate-agent.service',
        'http://127.0.0.1:9110/metrics', '^dedup_migrate_',
        '--config-file', '/srv/check/agent.conf',
        inside='kill -HUP $pid; sleep 1; curl --silent --fail '
        'http://127.0.0.1:9110/metrics >/dev/null')
