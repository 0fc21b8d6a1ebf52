# SPDX-License-Identifier: Apache-2.0
"""A real OpenStack with two compute hosts on this machine.

    python -m lab up | status | migrate | faults | logs | down
"""

import shlex
import subprocess
import sys
import time

from guests.errors import GuestError
from lab import arguments
from lab import check
from lab import client
from lab import cloud as clouds
from lab import demonstration
from lab import errors
from lab import fault_campaign
from lab import instances
from lab import server_moves
from lab import settings
from lab import steps
from lab import tempest_run
from lab import tempest_tests
from lab import topology
from lab import trials
from lab import up
from lab import upgrade
from lab import volume_pairs
from lab import volume_trials
from lab.hosts import lab as labs
from lab.services import horizon
from testkit import results
from testkit import table


def _settings(args):
    if args.backups and args.profile != 'volume':
        raise errors.LabError('--backups needs --profile volume')
    return settings.Settings(
        args.profile, args.driver, args.qemu, args.migration_rate,
        args.storage_rate, args.tls, args.tracking, args.disks, args.flat,
        args.controller or args.dashboard, args.dashboard, args.backups,
        args.delay)


def _demonstration(args, known, keep=False):
    return demonstration.Demonstration(
        args.kinds, args.rounds,
        instances.Disks.of(known, args.disk, args.second_disk),
        args.at_once, keep, args.lister, args.write)


def _up(args):
    progress = steps.Progress()
    cloud = up.up(args.name, args.directory, _settings(args), progress)
    print()
    _print_services(cloud)
    print('\nThe lab is up after %.0f s. To use it:\n\n  source %s\n'
          '  openstack server list\n%s%s\n'
          'make lab-migrate demonstrates it, make lab-down ends it.' % (
              progress.seconds, cloud.directory / 'openrc',
              '  openstack dedup host list\n' * cloud.settings.controller,
              '\nHorizon: %s, user admin, password %s\n' % (
                  horizon.url(cloud), cloud.settings.password)
              if cloud.settings.dashboard else ''))


def _check(args):
    ours = _settings(args)
    return check.run(args.name, args.directory, ours,
                     _demonstration(args, ours))


def _print_services(cloud):
    rows = [(host.name, network, host.link(network).address)
            for host in cloud.lab.hosts.values()
            for network in clouds.NETWORKS if host.has_link(network)]
    print(table.text(('host', 'network', 'address'), rows))
    print()
    print(table.text(
        ('host', 'service', 'state', 'log'),
        [(host, name, 'runs' if alive else 'HAS ENDED',
          cloud.directory / host / (name + '.log'))
         for name, host, alive in up.services(cloud)]))


def _status(args):
    cloud = clouds.Cloud.load(args.name, args.directory)
    value = cloud.settings
    print('profile %s, drivers %s, QEMUs %s; links: migration %s%s, '
          'storage %s\n' % (value.profile, ', '.join(value.drivers),
                            ', '.join(value.qemus),
                            topology.text(value.migration_rate,
                                          value.migration_delay),
                            ' with TLS' if value.tls else '',
                            topology.text(value.storage_rate)))
    _print_services(cloud)
    print()
    try:
        print(table.text(('service', 'host', 'state in Nova'),
                         up.nova_services(cloud)))
    except client.ERRORS as error:
        print('Nova cannot be asked: %s' % error)
    return 0 if all(alive for *_, alive in up.services(cloud)) else 1


def _migrate(args):
    cloud = clouds.Cloud.load(args.name, args.directory)
    if args.profile not in (None, cloud.settings.profile):
        raise errors.LabError('the lab has the profile %s' % (
            cloud.settings.profile))
    words = shlex.join(args.words[args.words.index('migrate') + 1:])
    found = results.Results('make lab-migrate' + (
        ' ARGS="%s"' % words if words else ''))
    if args.move:
        server_moves.run(cloud, args.rounds, found, steps.Progress())
    else:
        demonstration.run(cloud, _demonstration(args, cloud.settings,
                                                args.keep), args.json, found,
                          steps.Progress())
    print('\n' + found.text())
    found.write(settings.TOP / 'build/lab-migrate/report.json')
    return found.status()


def _volumes(args):
    found = results.Results(shlex.join(['python', '-m', 'lab', *args.words]))
    cloud = clouds.Cloud.load(args.name, args.directory)
    progress = steps.Progress()
    subject = volume_trials.boot(cloud, progress)
    try:
        if args.pairs:
            runs = volume_pairs.measure(subject, args.pairs, args.rate,
                                        progress)
            volume_pairs.judge(runs, found)
            text = volume_pairs.show(runs) + '\n\n' + found.text()
        else:
            tried = volume_trials.run(subject, args.only, progress)
            volume_trials.judge(tried, found)
            text = volume_trials.show(tried)
    finally:
        if not args.keep:
            subject.delete()
    print('\n' + text)
    found.write(settings.TOP / 'build/lab-volumes/report.json')
    return found.status()


def _upgrade(args):
    found = results.Results('make lab-upgrade' + (
        ' ARGS=--quick' if args.quick else ''))
    upgrade.run(args.name, args.directory, args.revision, found,
                steps.Progress(), args.quick)
    print('\n' + found.text())
    found.write(upgrade.REPORT)
    return found.status()


def _faults(args):
    found = results.Results(shlex.join(['python', '-m', 'lab', *args.words]))
    if args.show:
        tried = [one for profile in settings.PROFILES
                 for one in trials.Ledger(profile).trials()]
        return _judge_faults(tried, found)
    cloud = clouds.Cloud.load(args.name, args.directory)
    ledger = trials.Ledger(cloud.settings.profile)
    if args.fresh:
        ledger.clear()
    if args.retry:
        ledger.forget_failed()
    wanted = (
        fault_campaign.quick_pairs(cloud.settings) if args.quick
        else fault_campaign.pairs(args.only, args.moments, cloud.settings))
    try:
        fault_campaign.FaultCampaign(
            cloud, instances.Disks.of(cloud.settings, args.disk,
                                      args.second_disk),
            ledger, steps.Progress()).run(ledger.missing(wanted, args.repeat))
    finally:
        status = _judge_faults([one for one in ledger.trials()
                                if (one.fault, one.moment) in wanted], found)
    return status


def _judge_faults(tried, found):
    """Print the trials, write the report; the exit status."""
    print('\n' + trials.show(tried) + '\n\n' + trials.summary(tried))
    trials.judge(tried, found)
    found.write(trials.DIRECTORY / 'report.json')
    return found.status()


def _tempest(args):
    words = args.words[args.words.index('tempest') + 1:]
    chosen = tempest_tests.QUICK if args.quick else tempest_tests.GROUPS
    return tempest_run.run(
        args.name, args.directory, ' '.join(['make tempest', *(
            ['ARGS="%s"' % shlex.join(words)] if words else [])]),
        {'profile': args.profile,
         'concurrencies': args.concurrency or ((1,) if args.quick else (1, 2)),
         'groups': {name: tests for name, tests in chosen.items()
                    if name in args.only},
         'quick': args.quick, 'progress': steps.Progress(),
         'drivers': args.drivers or (
             ('dedup',) if args.quick else ('stock', 'dedup'))})


def _logs(args):
    cloud = clouds.Cloud.load(args.name, args.directory)
    wanted = args.service
    files = [cloud.directory / host / (name + '.log')
             for name, host, alive in up.services(cloud)
             if (not alive if not wanted else host in wanted
                 or '%s/%s' % (host, name) in wanted)]
    if not files:
        print('nothing has ended' if not wanted
              else 'there is no such service')
        return 0 if not wanted else 2
    return subprocess.run(
        ['tail', '-n', str(args.lines), *(['-f'] if args.follow else []),
         '-v', '--', *files], check=False).returncode


def _down(args):
    started = time.monotonic()
    lab = labs.Lab.load(args.name)
    if lab is None:
        print('there is no lab')
        return
    lab.destroy()
    print('the lab is gone (%.1f s); its logs stay in %s' % (
        time.monotonic() - started, args.directory))


_COMMANDS = {
    'up': _up,
    'check': _check,
    'status': _status,
    'migrate': _migrate,
    'volumes': _volumes,
    'faults': _faults,
    'tempest': _tempest,
    'upgrade': _upgrade,
    'logs': _logs,
    'down': _down,
}


def main(argv=None):
    args = arguments.parser().parse_args(argv)
    args.words = sys.argv[1:] if argv is None else argv
    if args.directory is None:
        args.directory = settings.TOP / 'build' / (
            'lab' if args.name == 'stack' else 'lab-' + args.name)
    clouds.forget_proxies()
    try:
        return _COMMANDS[args.command](args) or 0
    except errors.LabError as error:
        for line in error.last_lines():
            print('  | ' + line, file=sys.stderr)
        print('error: %s%s' % (error, '' if error.log is None
                               else ', see %s' % error.log),
              file=sys.stderr)
        return 1
    except GuestError as error:
        print('error: %s' % error, file=sys.stderr)
        return 1
    except client.ERRORS as error:
        print('error: the cloud answers: %s' % error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        # who reads has enough
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        print('interrupted: the lab is as it was then', file=sys.stderr)
        return 130
