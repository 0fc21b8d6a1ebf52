# SPDX-License-Identifier: Apache-2.0
"""A real OpenStack with two compute hosts on this machine.

    python -m lab up | status | migrate | faults | logs | down
"""

import argparse
import pathlib
import shlex
import subprocess
import sys
import time

from guests.errors import GuestError
from guests.synthetic import console
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
from testkit import releases
from testkit import results
from testkit import table


def _parser():
    parser = argparse.ArgumentParser(
        prog='python -m lab', description=__doc__.splitlines()[0])
    parser.add_argument(
        '--name', default='stack',
        help='name of the lab, up to 6 letters; two may run at once '
             '(default: %(default)s)')
    parser.add_argument(
        '--directory', type=pathlib.Path,
        help='where it keeps everything (default: build/lab, and '
             'build/lab-NAME with another name)')
    commands = parser.add_subparsers(dest='command', required=True)
    one = commands.add_parser('up', help='bring it up')
    _add_settings(one)
    one.set_defaults(run=_up)
    one = commands.add_parser(
        'check', help='a test: up, migrations both ways, down')
    _add_settings(one)
    _add_migrations(one)
    one.set_defaults(run=_check)
    one = commands.add_parser('status', help='show hosts and services')
    one.set_defaults(run=_status)
    one = commands.add_parser(
        'migrate', help='migrate a guest, stock and dedup in alternation')
    _add_migrations(one)
    one.add_argument('--keep', action='store_true',
                     help='leave the instances in the cloud')
    one.add_argument('--json', type=pathlib.Path, metavar='FILE',
                     help='write the figures there, too')
    one.add_argument('--profile', choices=settings.PROFILES,
                     help='that the lab has to have')
    one.add_argument('--move', action='store_true',
                     help='move an instance with its volumes instead, by '
                          'nova-dedup-migrate move; the lab needs --backups')
    one.add_argument('--quick', dest='rounds', action='store_const', const=1,
                     help='the same as --rounds 1')
    one.set_defaults(run=_migrate)
    one = commands.add_parser(
        'volumes', help='move a volume in use to another backend, with and '
                        'without faults')
    one.add_argument('--only', default=','.join(volume_trials.TRIALS),
                     type=_some_of(tuple(volume_trials.TRIALS)),
                     metavar='TRIAL,...',
                     help='of %s (default: all)' % ', '.join(
                         volume_trials.TRIALS))
    one.add_argument('--keep', action='store_true',
                     help='leave the instance in the cloud')
    one.add_argument('--pairs', type=int, default=0, metavar='NUMBER',
                     help='instead, move it so often by Nova alone and from '
                          'backups, over a link of --rate')
    one.add_argument('--quick', dest='only', action='store_const',
                     const=volume_trials.QUICK, help='the same as --only %s'
                     % ','.join(volume_trials.QUICK))
    one.add_argument('--rate', type=_rate, default='100', metavar='MBIT',
                     help='Mbit/s of the link of the NAS that it leaves '
                          '(default: %(default)s)')
    one.set_defaults(run=_volumes)
    one = commands.add_parser(
        'faults', help='inject faults while an instance migrates, and check '
                       'the instance and the hosts afterwards')
    one.add_argument('--only', default=('*',), metavar='FAULT,...',
                     type=lambda text: tuple(text.split(',')),
                     help='of %s; they may have * (default: all)' % ', '.join(
                         fault_campaign.NAMES))
    one.add_argument('--moments', default=','.join(fault_campaign.USUAL),
                     type=_some_of(fault_campaign.MOMENTS),
                     metavar='MOMENT,...',
                     help='of %s (default: %%(default)s)' % ', '.join(
                         fault_campaign.MOMENTS))
    one.add_argument('--quick', action='store_true',
                     help='only %s, %s; where disks are built, %s while '
                          'that is done' % (
                              ', '.join(fault_campaign.QUICK),
                              fault_campaign.QUICK_MOMENT,
                              ', '.join(fault_campaign.QUICK_FILLING)))
    one.add_argument('--repeat', type=int, default=1,
                     help='times (default: %(default)s)')
    one.add_argument('--fresh', action='store_true',
                     help='forget what was tried with this profile before; '
                          'else only what is missing is tried')
    one.add_argument('--retry', action='store_true',
                     help='try again what was not as it should be')
    one.add_argument('--show', action='store_true',
                     help='show the trials of all profiles, and try nothing')
    _add_disks(one)
    one.set_defaults(run=_faults)
    one = commands.add_parser(
        'tempest', help="bring up a lab with Nova's driver, then with ours, "
                        'and run Tempest in each')
    one.add_argument('--quick', action='store_true',
                     help='a few tests with our driver alone')
    one.add_argument('--only', metavar='TESTS,...',
                     type=_some_of(tuple(tempest_tests.GROUPS)),
                     default=tuple(tempest_tests.GROUPS),
                     help='of %s (default: all)' % ', '.join(
                         tempest_tests.GROUPS))
    one.add_argument('--concurrency', type=int, default=2,
                     help='tests at a time of a second run with our driver; '
                          '1: there is none (default: %(default)s)')
    one.add_argument('--drivers', metavar='DRIVERS',
                     type=_some_of(('stock', 'dedup')),
                     help='stock or dedup alone (default: both, one after '
                          'the other; with --quick, dedup)')
    one.add_argument('--profile', choices=settings.PROFILES,
                     default='volume', help='where disks are (default: '
                                            '%(default)s)')
    one.set_defaults(run=_tempest)
    one = commands.add_parser(
        'upgrade', help='bring up a lab with an older release, and upgrade '
                        'its compute hosts one by one')
    one.add_argument('--from', dest='revision', metavar='REVISION',
                     default=releases.PREVIOUS,
                     help='the older release (default: %(default)s)')
    one.add_argument('--quick', action='store_true',
                     help='upgrade one host, and end')
    one.set_defaults(run=_upgrade)
    one = commands.add_parser('logs', help="show the services' last lines")
    one.add_argument('service', nargs='*',
                     help='HOST or HOST/NAME (default: what has ended)')
    one.add_argument('-n', '--lines', type=int, default=20)
    one.add_argument('-f', '--follow', action='store_true')
    one.set_defaults(run=_logs)
    one = commands.add_parser('down', help='end it; only its directory stays')
    one.set_defaults(run=_down)
    return parser


def _add_settings(parser):
    """Add the options that say what a lab is like."""
    parser.add_argument(
        '--profile', choices=settings.PROFILES, default='shared',
        help='where disks are (default: %(default)s)')
    parser.add_argument(
        '--driver', default='dedup', metavar='DRIVER[,DRIVER]',
        type=_each(settings.DRIVERS),
        help='Nova driver of both hosts, or of each: dedup or stock '
             '(default: %(default)s)')
    parser.add_argument(
        '--qemu', default='patched', metavar='QEMU[,QEMU]',
        type=_each(settings.QEMUS),
        help='QEMU of both hosts, or of each: patched or stock '
             '(default: %(default)s)')
    parser.add_argument(
        '--migration-rate', type=_rate, default='100', metavar='MBIT',
        help='Mbit/s of the link that migrations take, 0: not limited '
             '(default: %(default)s)')
    parser.add_argument(
        '--delay', type=_delay, default='0', metavar='MS',
        help='round trip between the compute hosts in the network that '
             'migrations take (default: no delay)')
    parser.add_argument(
        '--storage-rate', type=_rate, default='0', metavar='MBIT',
        help="Mbit/s of the storage's link (default: not limited)")
    parser.add_argument(
        '--no-tracking', dest='tracking', action='store_false',
        help='track_io is off: QEMU knows of the guests\' memory only what '
             'they list')
    parser.add_argument(
        '--backups', action='store_true',
        help='with profile volume: a second backend, cinder-backup and '
             'cinder-backup-assist')
    parser.add_argument(
        '--tls', action='store_true',
        help='live_migration_with_native_tls, with certificates')
    parser.add_argument(
        '--disks', choices=settings.DISKS, default='auto',
        help='whether destinations build the disks of block migrations '
             'before they are mirrored, with profile local (default: '
             '%(default)s)')
    parser.add_argument(
        '--flat', action='store_true',
        help='disks are raw files without a base (images_type = flat)')
    parser.add_argument(
        '--controller', action='store_true',
        help='with the controller: its API and an engine, openstack dedup')
    parser.add_argument(
        '--dashboard', action='store_true',
        help='with Horizon and our panels, and the controller')


def _settings(args):
    if args.backups and args.profile != 'volume':
        raise errors.LabError('--backups needs --profile volume')
    return settings.Settings(
        args.profile, args.driver, args.qemu, args.migration_rate,
        args.storage_rate, args.tls, args.tracking, args.disks, args.flat,
        args.controller or args.dashboard, args.dashboard, args.backups,
        args.delay)


def _add_migrations(parser):
    """Add the options that say what is migrated, and how."""
    parser.add_argument('--rounds', type=int, default=2,
                        help='migrations of each kind (default: '
                             '%(default)s)')
    parser.add_argument('--kinds', default='stock,dedup',
                        type=lambda text: tuple(text.split(',')),
                        help='which of %s; one may be named twice '
                             '(default: %%(default)s)' % ', '.join(
                                 instances.KINDS))
    parser.add_argument('--page-cache', dest='kinds', action='store_const',
                        const=('stock', 'page_cache'),
                        help='the same as --kinds stock,page_cache: QEMU '
                             'knows only what the guest lists')
    parser.add_argument('--lister', choices=console.LISTER_FAULTS,
                        help='what happens to the guest\'s page-cache lister '
                             'while it migrates: it hangs, is killed before '
                             'it is asked, or breaks off its answer')
    parser.add_argument('--at-once', action='store_true',
                        help='migrate all kinds at the same time, two in '
                             'opposite directions')
    parser.add_argument('--write', type=int, metavar='KB/S',
                        help='rate at which the guests rewrite their files '
                             'meanwhile; then they read all of them anew')
    _add_disks(parser)


def _add_disks(parser):
    parser.add_argument('--disk', choices=instances.ROOTS,
                        help='what the guest boots from (default: a volume '
                             'with profile volume, else an image)')
    parser.add_argument('--second-disk', choices=instances.SECONDS,
                        help='where half of its files are (default: there '
                             'is no second disk)')


def _demonstration(args, known, keep=False):
    return demonstration.Demonstration(
        args.kinds, args.rounds,
        instances.Disks.of(known, args.disk, args.second_disk),
        args.at_once, keep, args.lister, args.write)


def _some_of(choices):
    def read(text):
        chosen = tuple(text.split(','))
        for one in chosen:
            if one not in choices:
                raise argparse.ArgumentTypeError('%r is not one of %s' % (
                    one, ', '.join(choices)))
        return chosen
    return read


def _each(choices):
    def read(text):
        try:
            return settings.of_each_host(text, choices)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error
    return read


def _rate(text):
    value = float(text)
    if not 0 <= value <= 1_000_000:
        raise argparse.ArgumentTypeError('expected Mbit/s, 0 to 1000000')
    return int(value * settings.MBIT)


def _delay(text):
    value = float(text)
    if not 0 <= value <= 10_000:
        raise argparse.ArgumentTypeError('expected milliseconds, 0 to 10000')
    return value


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
        {'profile': args.profile, 'concurrency': args.concurrency,
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


def main(argv=None):
    args = _parser().parse_args(argv)
    args.words = sys.argv[1:] if argv is None else argv
    if args.directory is None:
        args.directory = settings.TOP / 'build' / (
            'lab' if args.name == 'stack' else 'lab-' + args.name)
    clouds.forget_proxies()
    try:
        return args.run(args) or 0
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
