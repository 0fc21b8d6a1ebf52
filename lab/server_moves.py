# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate move in the lab: an instance with both its volumes."""

import contextlib
import os
import subprocess

from lab import errors
from lab import instance_checks
from lab import volume_moves
from lab import volume_trials

#: A move of two volumes and of the memory.
_LIMIT = 1800
DISKS = ('vda', 'vdb')


def run(cloud, rounds, found, progress):
    """Move an instance to and fro.

    :param found: testkit.results.Results, to which rows are added
    """
    subject = volume_trials.boot(cloud, progress)
    try:
        for number in range(rounds):
            with contextlib.ExitStack() as stack:
                _round(cloud, subject, number + 1, found, progress, stack)
    finally:
        subject.delete()


def _round(cloud, subject, number, found, progress, stack):
    for disk in DISKS:
        subject.back_up(disk)
    subject.rest()
    known = instance_checks.leftovers(cloud)
    volumes = subject.volumes()
    backend = _together(subject)
    # Cinder deletes them.
    files = {disk: stack.enter_context(subject.kept(volumes[disk]))
             for disk in DISKS}
    kept = {disk: [one.id for one in subject.backups(volumes[disk])]
            for disk in DISKS}
    source = subject.host
    goal = next(host for host in cloud.computes if host is not source)
    words = ('move', volume_moves.NAME, '--host', goal.name,
             '--volume-backend', subject.pool(backend))
    command(cloud, *words, '--check')
    progress.say('round %d: nova-dedup-migrate %s' % (number,
                                                      ' '.join(words)))
    # What the driver has noted is on the source.
    out = command(cloud, *words)
    print(out)

    # The guest has written nothing since it rests. It stands still while its
    # files are read, so that none of QEMU's writes is half done. By libvirt:
    # for Nova it stays active, as "the same command again" needs it.
    with subject.stopped():
        differing = {disk: subject.different(files[disk], volumes[disk])
                     for disk in DISKS}

    def add(name, value, unit, target, is_ok):
        found.add('round %d: %s' % (number, name), value, unit, target,
                  is_ok)

    add('host', subject.host.name, '', goal.name, subject.host is goal)
    for disk in DISKS:
        noted = volume_moves.noted(source, subject.id, disk)
        sources = noted.sources if noted else {}
        filled = sources.get('backup', 0) + sources.get('zero', 0)
        add('%s: not read from the old volume' % disk,
            filled / 2 ** 20, 'MiB', 'more than 0', filled)
        add('%s: read from the old volume' % disk,
            sources.get('volume', 0) / 2 ** 20, 'MiB', '-', True)
        host, _path = subject.file(volumes[disk])
        add('%s: backend' % disk, host.name, '', backend,
            host.name == backend)
        add('%s: all bytes' % disk, differing[disk] or 'equal', '', 'equal',
            not differing[disk])
        ours = [one.id for one in subject.backups(volumes[disk])]
        add('%s: backups' % disk, len(ours), '', len(kept[disk]),
            ours == kept[disk])
        problems = list(subject.unsettled(disk))
        add('%s: attachments' % disk, '; '.join(problems) or 'right', '',
            'right', not problems)
    problems = [*subject.wrong(), *instance_checks.leftovers(cloud, known)]
    add('memory, files and hosts', '; '.join(problems) or 'right', '',
        'right', not problems)
    again = command(cloud, *words)
    add('the same command again', again.count('is there'), '', 3,
        again.count('is there') == 3)


def _together(subject):
    """Return the backend to move to; both volumes are on the other."""
    backend = subject.other(DISKS[0])
    if subject.other(DISKS[1]) != backend:
        # Cinder's scheduler has put them apart.
        subject.swap(DISKS[1])
        subject.back_up(DISKS[1])
        subject.rest()
    return backend


def command(cloud, *words):
    """Run nova-dedup-migrate as an administrator; what it has printed.

    :raises LabError: it has failed
    """
    env = {**os.environ, 'OS_AUTH_URL': cloud.url('identity'),
           'OS_USERNAME': 'admin', 'OS_PASSWORD': cloud.settings.password,
           'OS_PROJECT_NAME': 'admin', 'OS_USER_DOMAIN_NAME': 'Default',
           'OS_PROJECT_DOMAIN_NAME': 'Default', 'OS_REGION_NAME':
           cloud.region}
    done = subprocess.run(
        [cloud.python, '-W', 'ignore', '-m', 'nova_dedup_migrate.cmd.main',
         *words], env=env, capture_output=True, text=True, timeout=_LIMIT,
        check=False)
    if done.returncode:
        raise errors.LabError('nova-dedup-migrate %s has failed: %s' % (
            ' '.join(words), done.stderr.strip()[-2000:]))
    return done.stdout
