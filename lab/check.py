# SPDX-License-Identifier: Apache-2.0
"""The lab as a test: up, migrations both ways, down.

Prints what a test runner does: a line for each check and their counts.
"""

import shutil
import subprocess
import sys

from guests.errors import GuestError
from lab import client
from lab import demonstration
from lab import disk_table
from lab import errors
from lab import guest
from lab import steps
from lab import topology
from lab import up
from lab.hosts import lab as labs
from lab.settings import TOP

#: A migration of the lab's guest that leaves out pages sends at most this
#: part of the bytes that a stock one does; most of its memory is page cache.
SHARE = 0.6
#: Part of the cache which the guest has verified that its list has to have.
LISTED = 0.95
#: Seconds that a guest may cost which does not answer: page_cache_time and
#: a second for what is around it.
LONGEST = 6.0
_OUTCOMES = {'hang': ('timeout',), 'kill': ('unavailable',),
             'break': ('timeout', 'partial')}
_MEMORY_MIB = 6000
_DISK_MIB = 6000
_PACKAGES = ('mariadbd', 'memcached', 'glusterd', 'libvirtd', 'syslinux')


def obstacle(directory):
    """Return why there can be no lab on this machine, None if it can."""
    reason = labs.missing()
    if reason is not None:
        return reason
    for command in _PACKAGES:
        if shutil.which(command, path='/usr/sbin:/usr/bin:/sbin') is None:
            return 'there is no %s: run tools/bootstrap lab' % command
    with open('/proc/meminfo') as info:
        known = dict(line.split(':') for line in info)
    free = int(known['MemAvailable'].split()[0]) >> 10
    if free < _MEMORY_MIB:
        return 'it needs %d MiB of memory, %d are available' % (
            _MEMORY_MIB, free)
    directory.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(directory).free >> 20
    if free < _DISK_MIB:
        return 'it needs %d MiB of disk, %d are free' % (_DISK_MIB, free)
    return None


def wrong(outcomes, settings, lister=None):
    """Return what the outcomes should not be, a list of sentences.

    :param settings: Settings of the lab
    :param lister: what happened to the guests' listers, of
        console.LISTER_FAULTS
    """
    found = []
    for one in outcomes:
        what = '%s from %s to %s' % (one.kind, one.source, one.destination)
        if one.errors:
            found.append('%s: the guest found %d wrong pages' % (
                what, one.errors))
        if not one.verified:
            found.append('%s: the guest verified nothing' % what)
        found += ['%s: %s' % (what, problem)
                  for problem in disk_table.wrong(one, settings)]
        if one.kind != 'stock' and not _can_dedup(settings):
            found += ['%s: %s' % (what, problem)
                      for problem in _ordinary(one, settings)]
        elif one.kind == 'page_cache':
            found += ['%s: %s' % (what, problem)
                      for problem in (
                          _not_named(one, lister) if lister
                          else _not_listed(one))]
    sent = {}
    for kind in {one.kind for one in outcomes}:
        ours = [one for one in outcomes if one.kind == kind]
        if len({one.source for one in ours}) < 2:
            found.append('%s: not both directions' % kind)
        sent[kind] = sum(one.link_bytes for one in ours) / len(ours)
    found += disk_table.unbuilt(outcomes, settings)
    if _can_dedup(settings) and 'stock' in sent:
        found += ['%s sent %.0f MB, stock %.0f MB' % (
            kind, sent[kind] / 1e6, sent['stock'] / 1e6)
            for kind in sent if kind != 'stock' and not lister
            and sent[kind] > SHARE * sent['stock']]
    return found


def _can_dedup(settings):
    """Whether both hosts have all it takes."""
    return (set(settings.drivers) == {'dedup'}
            and set(settings.qemus) == {'patched'})


def _ordinary(outcome, settings):
    """Yield what an ordinary migration that tells why would not be."""
    if outcome.strategy not in ('', 'stock'):
        yield '%s was used' % outcome.strategy
    driver = settings.drivers[settings.hosts.index(outcome.source)]
    if driver == 'dedup' and not outcome.reason:
        yield 'its report does not say why it was an ordinary one'


def _not_named(outcome, lister):
    """Yield what a report about a maltreated lister would not be."""
    answer = outcome.page_cache or {'outcome': 'skipped', 'reason': ''}
    if answer['outcome'] not in _OUTCOMES[lister] or not answer['reason']:
        yield 'with a lister made to %s, its list: %s: %s' % (
            lister, answer['outcome'], answer['reason'])
    elif answer['seconds'] > LONGEST:
        yield 'asking took %.1f s' % answer['seconds']


def _not_listed(outcome):
    """Yield what a migration by the guest's own list would not be."""
    if outcome.strategy != 'page_cache':
        yield '%s was used: %s' % (outcome.strategy or 'no strategy',
                                   outcome.reason)
    answer = outcome.page_cache or {'outcome': 'skipped', 'reason': ''}
    if answer['outcome'] != 'taken':
        yield 'the guest\'s list: %s: %s' % (answer['outcome'],
                                             answer['reason'])
    else:
        cached = (outcome.verified >> 20) - guest.ANONYMOUS
        listed = answer['taken_pages'] >> 8
        if listed < LISTED * cached:
            yield 'the guest lists %d MiB, and %d MiB are in its cache' % (
                listed, cached)


def left(name, directory):
    """Return what a lab that has ended left behind."""
    found = []
    if labs.Lab.load(name) is not None:
        found.append('the lab %s is still known' % name)
    with open('/proc/mounts') as mounts:
        found += ['mounted: ' + line.split()[1] for line in mounts
                  if str(directory) in line or '/lab-%s-' % name in line]
    return found


def run(name, directory, settings, wanted):
    """Run it all; returns the exit status.

    :param settings: Settings
    :param wanted: demonstration.Demonstration
    """
    reason = obstacle(directory)
    if reason is not None:
        print('lab.check ... SKIPPED: %s' % reason)
        return _count(skipped=1)
    progress = steps.Progress()
    problems = []
    # destroys the lab also when this program is killed
    guard = subprocess.Popen(
        [sys.executable, '-m', 'lab.hosts.guard', name], cwd=TOP,
        stdin=subprocess.PIPE, start_new_session=True)
    try:
        cloud = up.up(name, directory, settings, progress)
        progress.say('links: ' + topology.limit(cloud))
        problems += _migrations(cloud, wanted, progress)
    except (errors.LabError, GuestError, *client.ERRORS) as error:
        problems.append(str(error))
        for line in getattr(error, 'last_lines', list)():
            print('  | ' + line)
    finally:
        lab = labs.Lab.load(name)
        if lab is not None:
            lab.destroy()
        guard.stdin.close()
        guard.wait()
    problems += left(name, directory)
    for problem in problems:
        print('lab.check ... FAILED: %s' % problem)
    return _count(failed=1) if problems else _count(passed=1)


def _migrations(cloud, wanted, progress):
    outcomes = demonstration.measure(cloud, wanted, progress)
    print(demonstration.show(outcomes))
    return wrong(outcomes, cloud.settings, wanted.lister)


def _count(passed=0, failed=0, skipped=0):
    print('%d passed, %d failed, %d skipped' % (passed, failed, skipped))
    return 1 if failed else 0
