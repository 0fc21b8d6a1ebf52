# SPDX-License-Identifier: Apache-2.0
"""The options of python -m lab."""

import argparse
import pathlib

from guests.synthetic import console
from lab import fault_campaign
from lab import instances
from lab import settings
from lab import tempest_tests
from lab import volume_trials
from testkit import releases


def parser():
    """Return that of python -m lab; command has the command's name."""
    parser = argparse.ArgumentParser(
        prog='python -m lab',
        description='A real OpenStack with two compute hosts on this machine.')
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
    one = commands.add_parser(
        'check', help='a test: up, migrations both ways, down')
    _add_settings(one)
    _add_migrations(one)
    one = commands.add_parser('status', help='show hosts and services')
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
    one.add_argument('--concurrency', type=_numbers, metavar='N,...',
                     help='tests at a time with our driver, a run each '
                          '(default: 1,2; with --quick, 1)')
    one.add_argument('--drivers', metavar='DRIVERS',
                     type=_some_of(('stock', 'dedup')),
                     help='stock or dedup alone (default: both, one after '
                          'the other; with --quick, dedup)')
    one.add_argument('--profile', choices=settings.PROFILES,
                     default='volume', help='where disks are (default: '
                                            '%(default)s)')
    one = commands.add_parser(
        'upgrade', help='bring up a lab with an older release, and upgrade '
                        'its compute hosts one by one')
    one.add_argument('--from', dest='revision', metavar='REVISION',
                     default=releases.PREVIOUS,
                     help='the older release (default: %(default)s)')
    one.add_argument('--quick', action='store_true',
                     help='upgrade one host, and end')
    one = commands.add_parser('logs', help="show the services' last lines")
    one.add_argument('service', nargs='*',
                     help='HOST or HOST/NAME (default: what has ended)')
    one.add_argument('-n', '--lines', type=int, default=20)
    one.add_argument('-f', '--follow', action='store_true')
    one = commands.add_parser('down', help='end it; only its directory stays')
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


def _some_of(choices):
    def read(text):
        chosen = tuple(text.split(','))
        for one in chosen:
            if one not in choices:
                raise argparse.ArgumentTypeError('%r is not one of %s' % (
                    one, ', '.join(choices)))
        return chosen
    return read


def _numbers(text):
    numbers = tuple(int(one) for one in text.split(','))
    if min(numbers) < 1:
        raise argparse.ArgumentTypeError('expected numbers from 1 on')
    return numbers


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
