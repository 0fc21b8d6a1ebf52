# SPDX-License-Identifier: Apache-2.0
"""Checks of the packages that are installed in a system.

Each check returns what the table shows, and raises CheckFailed.
"""

import collections
import hashlib
import os
import re
import stat

from debtool import chroot
from nova_dedup_migrate import errors

#: What changes whenever packages are installed, and what is no part of a
#: system: paths from the root.
_LEFT_ALONE = re.compile(
    r'(proc|sys|dev|tmp|run|root|repo|var/cache|var/tmp|var/lib/(apt|dpkg|'
    r'systemd)|var/log/(apt|journal|alternatives\.log|dpkg\.log)|'
    r'etc/(passwd|group|shadow|gshadow|subuid|subgid)-|etc/mailcap|'
    r'etc/ld\.so\.cache)(/|$)')


class CheckFailed(errors.DedupMigrateError):
    template = '{reason}'


def check(true, reason):
    """Raise CheckFailed unless something is true."""
    if not true:
        raise CheckFailed(reason=reason)


def snapshot(system):
    """Return {path: what is there} of a system.

    Of directories it is the owner and the mode, of files the content, too;
    what Python compiles is left out.
    """
    found = {}
    for top, directories, files in os.walk(system.directory):
        inside = os.path.relpath(top, system.directory)
        inside = '' if inside == '.' else inside + '/'
        directories[:] = [name for name in directories if name !=
                          '__pycache__' and not _LEFT_ALONE.match(
                              inside + name)]
        for name in directories + files:
            if not _LEFT_ALONE.match(inside + name):
                found[inside + name] = _state(os.path.join(top, name))
    return found


def _state(path):
    status = os.lstat(path)
    content = ''
    if stat.S_ISLNK(status.st_mode):
        content = os.readlink(path)
    elif stat.S_ISREG(status.st_mode):
        with open(path, 'rb') as data:
            content = hashlib.file_digest(data, 'sha256').hexdigest()
    return (oct(status.st_mode), status.st_uid, status.st_gid, content)


def differences(before, after):
    """Return the paths at which two snapshots differ, each with + - or *."""
    return sorted(
        [(path, '+') for path in after.keys() - before.keys()]
        + [(path, '-') for path in before.keys() - after.keys()]
        + [(path, '*') for path in before.keys() & after.keys()
           if before[path] != after[path]])


def short(changes):
    """Return changes as text, the first ones."""
    return ', '.join(sign + path for path, sign in changes[:6]) + (
        ', and %d more' % (len(changes) - 6) if len(changes) > 6 else '')


def installed(system, packages, version, complete=True):
    """Check that packages are installed in a version, and are whole.

    :param complete: whether all that they depend on has to be there
    """
    text = system.read(
        'reading the packages', "dpkg-query -W -f "
        "'${Package} ${db:Status-Abbrev} ${Version}\\n'")
    found = {line.split()[0]: line.split()[1:] for line in text.splitlines()
             if len(line.split()) == 3}
    for name in packages:
        check(found.get(name) == ['ii', version], '%s is %s instead of %s' % (
            name, ' '.join(found.get(name, ['missing'])), version))
    if complete:
        system.run('checking dependencies', 'apt-get check')
    check(not system.read('auditing', 'dpkg --audit'), 'dpkg --audit finds '
          'faults')
    changed = system.read('verifying', 'dpkg --verify %s || true' %
                          ' '.join(packages))
    check(not changed, 'files differ from the packages: ' + changed)
    return version


def owners(system, wanted):
    """Check modes and owners.

    :param wanted: {path: 'mode user:group'}
    """
    for path, state in wanted.items():
        found = system.read('reading owners',
                            'stat -c "%%a %%U:%%G" %s || true' % path)
        check(found == state, '%s is %s instead of %s' % (
            path, found or 'missing', state))
    return '%d paths' % len(wanted)


def user(system, name, home):
    """Check a user that nobody logs in as."""
    found = system.read('reading users', 'getent passwd %s || true' % name)
    fields = found.split(':')
    check(len(fields) == 7 and fields[5] == home
          and fields[6] == '/usr/sbin/nologin',
          'the user %s is: %s' % (name, found or 'missing'))
    check(int(fields[2]) < 1000, '%s is no system user' % name)
    check(system.read('reading users', 'passwd --status %s' % name
                      ).split()[1] == 'L', '%s has a password' % name)
    return 'uid %s' % fields[2]


def units(system, wanted):
    """Check units with systemd-analyze, and whether they are enabled.

    :param wanted: {unit: state, as systemctl is-enabled prints it}
    """
    for unit, state in wanted.items():
        said = system.read(
            'verifying %s' % unit, 'systemd-analyze verify --man=no '
            '/usr/lib/systemd/system/%s 2>&1 || true' % unit)
        said = '\n'.join(line for line in said.splitlines() if unit in line)
        check(not said, said)
        found = system.read('reading %s' % unit, 'systemctl --root=/ '
                            'is-enabled %s || true' % unit)
        check(found == state, '%s is %s instead of %s' % (
            unit, found, state))
    return ', '.join('%d %s' % (count, state) for state, count in
                     collections.Counter(wanted.values()).items())


def rotation(system, config, log, owner):
    """Check that logrotate rotates a log, and keeps its owner.

    Two files that name one log are a fault, which logrotate finds if it reads
    all files.

    :param config: the file that names the log
    """
    system.run('making a log', 'echo one >{0}; chown {1} {0}; '
               'chmod 640 {0}'.format(log, owner))
    said = system.read('reading the configuration of logrotate',
                       'logrotate --debug /etc/logrotate.conf 2>&1')
    check('considering log %s\n' % log in said, 'no file of logrotate names '
          + log)
    # no other log is rotated
    system.run('writing a configuration', '''
sed 's|^/[^{{]*|{0} |' {1} >/root/rotated
sed 's|^include .*|include /root/rotated|' /etc/logrotate.conf \\
    >/root/logrotate.conf'''.format(log, config))
    for _ in range(2):
        system.run('rotating logs', 'echo two >>%s; logrotate --force --state '
                   '/root/logrotate /root/logrotate.conf 2>&1' % log)
    found = system.read('reading logs', 'zcat {0}.2.gz; cat {0}.1; '
                        'stat -c "%s %U:%G" {0}; rm {0}*'.format(log))
    check(found.split() == ['one', 'two', 'two', '0', owner],
          'after two rotations there is: ' + found)
    return 'twice'


def sudoers(system, path, user_name, allowed, refused):
    """Check a rule of sudo: its syntax, and what it allows.

    :param allowed: a command that the user may run as root
    :param refused: one that he may not
    """
    system.run('visudo', 'visudo --check --strict; visudo --check --strict '
               '--file=' + path)
    # Nova's own rule may allow more
    ask = '''
mv /etc/sudoers.d /root/sudoers.d
install -d -m 750 /etc/sudoers.d
cp -p /root{0} /etc/sudoers.d
sudo --list --other-user={1} {2} >/dev/null 2>&1 && echo yes || echo no
rm -r /etc/sudoers.d
mv /root/sudoers.d /etc/sudoers.d'''
    for command, answer in ((allowed, 'yes'), (refused, 'no')):
        found = system.read('sudo', ask.format(
            path.removeprefix('/etc'), user_name, command))
        check(found == answer, 'sudo for %s of "%s": %s' % (
            user_name, command, found))
    return 'visudo passes'


def refuses(system, package, reason, network=True):
    """Check that apt refuses a package, and names what it lacks.

    :param reason: regular expression
    """
    try:
        system.run('simulating', 'apt-get install --simulate --yes %s'
                   % package, network=network)
    except chroot.PackagingFailed:
        text = '\n'.join(system.log.text()[-40:])
        match = re.search(reason, text)
        check(match, 'apt refuses %s for another reason: %s' % (
            package, text[-300:]))
        return match[0]
    raise CheckFailed(reason='apt would install %s' % package)
