# SPDX-License-Identifier: Apache-2.0
"""The Debian guest of make lab-disks, which serves while its disk moves.

Both hosts have the image in their caches; the instance has its own changes
to it: what a machine writes when it boots, and its database's tables and
logs.  Web server or database are loaded from inside, at a rate that an idle
host serves with ease, so that what a migration takes from them is seen.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time

from guests import errors
from guests import line
from guests.debian import client as debian
from guests.debian import image
from lab import client
from lab import cloud as clouds
from lab import guest
from lab import instances
from lab import migrations

#: What each variant loads.
LOADS = {'stock-web': 'web', 'web': 'web', 'stock-db': 'db', 'db': 'db'}
#: Requests a second.  With more the guest dirties more than a link of
#: 100 Mbit/s carries, and Nova's own migration takes six minutes and longer.
_RATES = {'web': 5, 'db': 5}
#: Seconds of load before a migration, of which the last half is measured.
_BEFORE = 30
_DISK_GB = 3


@dataclasses.dataclass(frozen=True)
class Served:
    """What the load got, before a migration and while it went on.

    :ivar share: requests a second that were served, against before
    :ivar before, meanwhile: seconds that 99 % of them took at most
    """

    share: float
    before: float
    meanwhile: float


def cache_image(cloud: clouds.Cloud) -> None:
    """Have each host keep the image."""
    guest.upload_debian(cloud)
    compute = client.connect(cloud).compute
    for host in cloud.computes:
        server = _boot(cloud, 'cache-' + host.name, 'stock', host=host.name)
        instances.wait_active(compute, server, 600)
        instances.delete(compute, server)


def _boot(cloud: clouds.Cloud, name: str, kind: str, **more):
    return instances.boot_image(cloud, name, kind, guest.DEBIAN_IMAGE,
                                image.MEMORY_MIB, _DISK_GB, **more)


class Guest:
    """One instance that serves.

    :param load: of debian.LOADS
    """

    def __init__(self, cloud: clouds.Cloud, name: str, kind: str, load: str
                 ) -> None:
        self._cloud = cloud
        self._kind = kind
        self._load = load
        self._compute = client.connect(cloud).compute
        self._server = _boot(cloud, name, kind)
        self._stack = contextlib.ExitStack()
        self._stack.callback(instances.delete, self._compute, self._server)

    def __enter__(self) -> Guest:
        with self._stack:
            self._server = instances.wait_active(self._compute, self._server,
                                                 600)
            self._talk = self._stack.enter_context(
                debian.DebianGuest(self._line()))
            self._talk.wait_ready(1200)
            self._talk.warm(self._load)
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_exception) -> None:
        self._stack.close()

    def _line(self) -> line.TerminalLine:
        self._server = self._compute.get_server(self._server.id)
        return line.TerminalLine(guest.console(
            instances.host_of(self._cloud, self._server), self._server.id))

    def migrate(self) -> tuple[migrations.Outcome, Served]:
        """Migrate it under load; then it verifies what is on its disk.

        :raises LabError: it does not arrive
        :raises GuestFailed: it does not answer, or served nothing before
        """
        talk, load = self._talk, self._load
        talk.start(load, rate=_RATES[load])
        time.sleep(_BEFORE)
        begun = talk.clock().guest
        moved = migrations.move(self._cloud, self._kind, self._server)
        talk.attach(self._line())
        ended = talk.clock().guest
        talk.stop(load)
        before = talk.window(load, begun - _BEFORE / 2, begun)
        meanwhile = talk.window(load, begun, ended)
        # From its disk, not from what it has in its memory.
        talk.drop()
        found = [talk.verify(what) for what in debian.VERIFIED]
        return dataclasses.replace(
            moved, verified=sum(one.bytes for one in found),
            errors=sum(one.errors for one in found) + meanwhile.errors
        ), served(before, meanwhile)


def served(before: debian.Window, meanwhile: debian.Window) -> Served:
    """Return what two windows of a load come to.

    :raises GuestFailed: it served nothing before
    """
    if not before.requests:
        raise errors.GuestFailed(
            'the load got no answer before the migration')
    return Served(_rate(meanwhile) / _rate(before), before.p99,
                  meanwhile.p99)


def _rate(window: debian.Window) -> float:
    return window.requests / (window.end - window.begin)
