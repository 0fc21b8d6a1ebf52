# SPDX-License-Identifier: Apache-2.0
"""A rolling upgrade: an instance migrates between two releases of ours.

The compute hosts begin with an older release. Their agents are upgraded first,
then the rest of each host, and at last one host is downgraded. Between these
steps an instance migrates there and back, verifies its memory, and each host
reads the reports that it has.

nova-compute, the agent and QEMU of a host are of its release. All else,
nova.conf included, is of this tree. A guest goes on in the QEMU that it was
started with, as it does when packages are upgraded.
"""

import json
import os
import pathlib
import signal
import subprocess

from guests.synthetic import console
from lab import client
from lab import errors
from lab import guest
from lab import instances
from lab import migrations
from lab import settings
from lab import topology
from lab import up
from lab.services import nova
from lab.services import python

REPORT = settings.TOP / 'build' / 'lab-upgrade' / 'report.json'
NAME = 'upgraded'
_OLD = 'old'
_PROGRAMS = ('nova-compute', nova.AGENT)
#: What a step makes of a host: its agent is new, all of it is, or nothing.
_AGENT_NEW, _NEW, _OLD_AGAIN = 'agent new', 'new', 'old'
_BUILD_S = 3600


def checkout(revision, directory):
    """Return the Path of the files of a revision, and build its QEMU.

    :raises LabError: there is no such revision, or it cannot be built
    """
    found = _run('git', '-C', settings.TOP, 'rev-parse', '--verify',
                 '--quiet', revision + '^{commit}')
    if found is None:
        raise errors.LabError('there is no revision %s' % revision)
    tree = directory / found
    if not tree.exists() and (
            _run('git', 'clone', '--quiet', '--shared', '--no-checkout',
                 settings.TOP, tree) is None
            or _run('git', '-C', tree, 'checkout', '--quiet',
                    found) is None):
        raise errors.LabError('git does not check out %s' % found)
    if _run(tree / 'qemu' / 'build', 'patched') is None:
        raise errors.LabError('the QEMU of %s cannot be built: run %s' % (
            found, tree / 'qemu' / 'build'))
    return tree


def _run(*argv):
    """Return what a program prints, None if it fails."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, check=False,
                          timeout=_BUILD_S)
    return None if done.returncode else done.stdout.strip()


def prepare(cloud, tree):
    """Make a release known to a lab."""
    release = cloud.known_release(_OLD)
    release.tree.parent.mkdir(parents=True, exist_ok=True)
    release.tree.unlink(missing_ok=True)
    release.tree.symlink_to(tree)
    python.install(cloud, tree, release.python)


def switch(cloud, name, state):
    """Have a host run another release, or its agent.

    :param state: what the host becomes
    :raises LabError: it does not come up
    """
    host = cloud.host(name)
    agent = host.directory / ('release.' + nova.AGENT)
    programs = (nova.AGENT,) if state == _AGENT_NEW else _PROGRAMS
    for program in programs:
        process = host.process(program)
        if process is not None:
            process.send(signal.SIGTERM)
            process.end(20)
    if state == _AGENT_NEW:
        agent.write_text('')
        nova.start_agent(cloud, name)
        cloud.check(host, nova.AGENT)
        return
    topology.libvirtd(cloud, name).stop()
    agent.unlink(missing_ok=True)
    mark = host.directory / 'release'
    if state == _OLD_AGAIN:
        mark.write_text(_OLD)
    else:
        mark.unlink(missing_ok=True)
    topology.libvirtd(cloud, name).start()
    nova.configure_compute(cloud, name)
    before = nova.seen(cloud)[name]
    nova.start_compute(cloud, name)
    nova.start_agent(cloud, name)

    def ready():
        for program in _PROGRAMS:
            cloud.check(host, program)
        return (nova.computes_are_up(cloud)
                and nova.seen(cloud)[name] != before)

    cloud.wait(cloud.control, 'nova-conductor', ready, 240)


def run(name, directory, revision, found, progress, quick=False):
    """Bring up a lab; upgrade and downgrade, and migrate between all steps.

    :param revision: of this project's repository, the older release
    :param found: testkit.results.Results, to which rows are added
    :param quick: upgrade one host, and end
    """
    tree = checkout(revision, settings.TOP / 'build' / 'lab-upgrade')
    cloud = up.up(name, directory, settings.Settings(), progress)
    try:
        prepare(cloud, tree)
        _migrations(cloud, found, progress, quick)
    finally:
        cloud.lab.destroy()


def steps(first, second, quick):
    """Yield (title, {host: what it becomes})."""
    yield 'both old', {first: _OLD_AGAIN, second: _OLD_AGAIN}
    yield 'agent of %s upgraded' % second, {second: _AGENT_NEW}
    yield second + ' upgraded', {second: _NEW}
    if not quick:
        yield 'both upgraded', {first: _NEW}
        yield second + ' downgraded', {second: _OLD_AGAIN}


def _migrations(cloud, found, progress, quick):
    first, second = (host.name for host in cloud.computes)
    server = None
    done = {first: [], second: []}
    for title, changes in steps(first, second, quick):
        for name, state in changes.items():
            switch(cloud, name, state)
            progress.say('%s: %s is %s' % (title, name, state))
        server = server or _boot(cloud, first)
        for _ in range(2):
            one = migrations.migrate(cloud, 'dedup', server)
            done[one.source].append(one.migration)
            _judge(cloud, server, title, one, found)
            progress.say('%s: %s to %s, %s' % (
                title, one.source, one.destination,
                one.strategy or one.reason))
        for name, wanted in done.items():
            read = reports(cloud, cloud.host(name))
            ours = [one for one in wanted if one in read]
            found.add('%s: reports that %s reads' % (title, name),
                      len(ours), '', str(len(wanted)), ours == wanted)


def _boot(cloud, host):
    server = instances.boot(cloud, NAME, 'dedup', instances.Disks.of(
        cloud.settings), host=host)
    server = instances.wait_active(client.connect(cloud).compute, server)
    console.ready(guest.console(instances.host_of(cloud, server),
                                server.id))
    return server


def _judge(cloud, server, title, one, found):
    what = '%s: %s to %s' % (title, one.source, one.destination)
    used = one.strategy or 'stock'
    found.add(what, used if used != 'stock' or not one.reason
              else 'stock: ' + one.reason, '', 'not stock, or the reason',
              used != 'stock' or one.reason)
    found.add(what + ': sent', one.link_bytes / 1e6, 'MB', '-', True)
    found.add(what + ': wrong pages', one.errors, '',
              '0 of what was verified', one.verified and not one.errors)
    host = cloud.host(one.destination)
    wanted = cloud.qemu('patched', host)
    ours = wanted in _emulators(server)
    found.add(what + ': runs in the QEMU of its host', 'yes' if ours else
              'no', '', 'yes', ours)


def _emulators(server):
    """Return the directories of the QEMUs that an instance runs in."""
    done = subprocess.run(['pgrep', '--full', 'uuid ' + server.id],
                          capture_output=True, text=True, check=False)
    return {pathlib.Path(os.readlink('/proc/%s/exe' % pid)).parent
            for pid in done.stdout.split()}


def reports(cloud, host):
    """Return the UUIDs of the migrations whose reports a host reads.

    :raises LabError: the command fails
    """
    argv = [*cloud.script('nova-dedup-migrate', host), '--config-file',
            '/etc/nova/nova.conf', 'report', 'list', '--format', 'json']
    done = host.run(argv, env=dict(os.environ), check=False)
    if done.returncode:
        raise errors.LabError('report list fails on %s: %s' % (
            host.name, done.stderr.strip()[-500:]))
    return {row['migration'] for row in json.loads(done.stdout)}
