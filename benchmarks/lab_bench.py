# SPDX-License-Identifier: Apache-2.0
"""What benches that compare Nova drivers in a lab have in common."""

import argparse
from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import sys

from guests.errors import GuestError
from lab import client
from lab import cloud as clouds
from lab import errors
from lab import settings
from lab import steps
from lab import topology
from lab import up
from lab.services import nova
from testkit import results


@dataclasses.dataclass(frozen=True)
class Driver:
    """A configuration of nova-compute.

    :ivar name: of lab.services.nova.DRIVERS
    :ivar enabled: [dedup_migrate] enabled
    """

    title: str
    name: str
    enabled: bool = True


PLAIN = Driver('LibvirtDriver', 'stock')
OFF = Driver('ours, enabled = false', 'dedup', enabled=False)
OURS = Driver('ours', 'dedup')


#: What labs are made like unless a bench wants another one.
UNLIMITED = settings.Settings(migration_rate=0)


def parser(name: str, about: str, lab: str = 'stack'
           ) -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog=name, description=about.splitlines()[0], allow_abbrev=False)
    result.add_argument('--quick', action='store_true',
                        help='fewer migrations: ends within 15 minutes')
    result.add_argument(
        '--lab', default=lab, metavar='NAME',
        help='lab to use, of profile shared; if there is none it is brought '
             'up, and ended afterwards (default: %(default)s)')
    return result


@contextlib.contextmanager
def opened(name: str, progress: steps.Progress,
           wanted: settings.Settings = UNLIMITED) -> Iterator[clouds.Cloud]:
    """Yield a lab whose migrations have the rate that is wanted.

    One that was there is as before afterwards.

    :param wanted: Settings of a lab that is made
    :raises LabError: it is of another profile or has no controller, or
        cannot be brought up
    """
    clouds.forget_proxies()
    directory = settings.TOP / 'build' / (
        'lab' if name == 'stack' else 'lab-' + name)
    made = False
    try:
        cloud = clouds.Cloud.load(name, directory)
    except errors.LabError:
        made = True
        cloud = up.up(name, directory, wanted, progress)
    if cloud.settings.profile != 'shared':
        raise errors.LabError(
            f'lab {name} is of profile {cloud.settings.profile}: this needs '
            'profile shared; end it with make lab-down, or give --lab')
    if wanted.controller and not cloud.settings.controller:
        raise errors.LabError(
            f'lab {name} has no controller: this needs one; end it with '
            'make lab-down, or give --lab')
    usual = cloud.settings
    rate = wanted.migration_rate or None
    try:
        for host in cloud.computes:
            host.link('migration').limit(send=rate, receive=rate)
        yield cloud
    finally:
        if made:
            cloud.lab.destroy()
        else:
            use_qemus(cloud, usual.qemus)
            nova.restart_computes(cloud)
            topology.limit(cloud)


def use_qemus(cloud: clouds.Cloud, qemus: tuple[str, ...]) -> None:
    """Have libvirt start guests with other QEMUs.

    nova-compute has to be restarted after it.

    :param qemus: of settings.QEMUS, one for each compute host
    """
    if cloud.settings.qemus == qemus:
        return
    cloud.settings = dataclasses.replace(cloud.settings, qemus=qemus)
    cloud.settings.save(cloud.directory)
    # It would disable its host for a libvirtd that ends, and Nova's own
    # driver may not enable it again for a minute.
    for host in cloud.computes:
        process = host.process('nova-compute')
        if process is not None:
            process.end(20)
    for name in cloud.settings.hosts:
        daemon = topology.libvirtd(cloud, name)
        daemon.stop()
        daemon.start()


def use_driver(cloud: clouds.Cloud, driver: Driver, **values) -> None:
    """Restart nova-compute of both hosts with a driver."""
    nova.restart_computes(cloud, driver.name, enabled=driver.enabled,
                          **values)


def main(target: str, about: str,
         measure: Callable[..., list[results.Row]],
         arguments: list[str] | None = None,
         wanted: settings.Settings = UNLIMITED, lab: str = 'stack') -> int:
    """Measure in a lab, write the report; the exit status.

    :param measure: called with the Cloud, whether it is to be quick, and a
        steps.Progress
    :param wanted: see opened
    :param lab: name of the lab that is used unless another one is given
    """
    given = parser(target, about, lab).parse_args(arguments)
    typed = ' '.join(sys.argv[1:] if arguments is None else arguments)
    found = results.Results(
        f'make {target}' + (f' ARGS="{typed}"' if typed else ''))
    progress = steps.Progress()
    try:
        with opened(given.lab, progress, wanted) as cloud:
            found.rows = measure(cloud, given.quick, progress)
    except (errors.LabError, GuestError, RuntimeError, OSError,
            *client.ERRORS) as error:
        print(f'{target}: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'{target}: interrupted', file=sys.stderr)
        return 130
    path = settings.TOP / 'build' / target / 'report.json'
    found.write(path)
    print(f'\n{found.text()}\n\nIn {path}.')
    return found.status()
