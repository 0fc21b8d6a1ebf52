# SPDX-License-Identifier: Apache-2.0
"""The Debian guest of make lab-disks, which serves while its disk moves.

Both hosts have the image in their caches; the instance has its own changes
to it: what a machine writes when it boots, and its database's tables and
logs.  Web server or database are loaded from inside, at a rate that an idle
host serves with ease, so that what a migration takes from them is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import time

from benchmarks.page_cache import cells
from benchmarks.page_cache import guests
from guests import errors
from guests.debian import client as debian
from lab import client
from lab import cloud as clouds
from lab import instances
from lab import migrations

#: What each variant loads.
LOADS = {'stock-web': 'web', 'web': 'web', 'stock-db': 'db', 'db': 'db'}
#: Requests a second.  With many more the guest dirties more than a link of
#: 100 Mbit/s carries, and Nova's own migration hardly ends.
_RATES = {'web': 5, 'db': 5}
#: Seconds of load before a migration, of which the last half is measured.
_BEFORE = 30


@dataclasses.dataclass(frozen=True)
class Served:
    """What the load got, before a migration and while it went on.

    :ivar share: requests a second that were served, against before
    :ivar before, meanwhile: seconds that 99 % of them took at most
    """

    share: float
    before: float
    meanwhile: float


@contextlib.contextmanager
def guest(cloud: clouds.Cloud, name: str, kind: str, load: str
          ) -> Iterator[Callable[[], tuple[migrations.Outcome, Served]]]:
    """Yield what migrates an instance that serves.

    :param load: of debian.LOADS
    """
    one = guests.DebianGuest.boot(cloud, name, kind,
                                  cells.Workload(name, 'debian'))
    try:
        one.talk.warm(load)
        yield lambda: _migrate(cloud, one, kind, load)
    finally:
        one.close()
        instances.delete(client.connect(cloud).compute, one.server)


def _migrate(cloud: clouds.Cloud, one: guests.DebianGuest, kind: str,
             load: str) -> tuple[migrations.Outcome, Served]:
    """Migrate it under load; then it verifies what is on its disk.

    :raises LabError: it does not arrive
    :raises GuestFailed: it does not answer, or served nothing before
    """
    talk = one.talk
    talk.start(load, rate=_RATES[load])
    time.sleep(_BEFORE)
    begun = talk.clock().guest
    moved = migrations.move(cloud, kind, one.server)
    one.attach()
    ended = talk.clock().guest
    talk.stop(load)
    before = talk.window(load, begun - _BEFORE / 2, begun)
    meanwhile = talk.window(load, begun, ended)
    # From its disk, not from what it has in its memory.
    talk.drop()
    verified, wrong = one.verify()
    return dataclasses.replace(
        moved, verified=verified,
        errors=wrong + meanwhile.errors), served(before, meanwhile)


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
