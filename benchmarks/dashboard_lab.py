# SPDX-License-Identifier: Apache-2.0
"""make dashboard-lab: Horizon's panels with real migrations behind them.

A lab with Horizon and the controller has three guests on one host, which
write to memory.  In Chromium, an operator drains the host up to the banner,
begins another drain and cancels it with an abort while guests are on their
way, and migrates an instance from its page.  After each, Nova's hosts are
compared and the guests verify their memory.  Screenshots are in
build/dashboard-lab.
"""

import shutil
import sys
import time

from benchmarks import lab_bench
from benchmarks import writer_guests
from benchmarks.dashboard import driver
from lab import client
from lab import errors
from lab import settings
from lab import topology
from lab.services import horizon
from testkit import results

TARGET = 'dashboard-lab'
WANTED = settings.Settings(dashboard=True, controller=True)
_OUT = settings.TOP / 'build' / TARGET
#: KB/s that the guests write.
RATES = (1000, 200, 0)
_NAME = 'panel-%d'
_LIMIT_S, _POLL_S = 300.0, 0.5
#: Mbit/s of a link that leaves time to cancel.
_SLOW = 10


class World:
    """What the program that drives the browser may request.

    :param cloud: lab.cloud.Cloud
    """

    def __init__(self, cloud, progress):
        self._cloud = cloud
        self._compute = client.connect(cloud).compute
        self._progress = progress
        self._guests = writer_guests.WriterGuests(cloud, _NAME, RATES)

    def boot(self):
        """Have the guests run on the first host, and write."""
        first = self._guests.boot()
        self._guests.write()
        self._progress.say(f'{len(RATES)} guests run on {first}')

    def close(self):
        self._guests.close()

    def obey(self, request):
        """Do what is requested; return a line."""
        name, *arguments = request.split()
        return {'count': self._count, 'hosts': self._hosts, 'id': self._id,
                'verify': self._verify, 'service': self._service,
                'enable': self._enable, 'slow': self._slow,
                'fast': self._fast, 'under-way': self._under_way,
                }[name](*arguments)

    def _count(self):
        return str(len(self._guests.servers))

    def _id(self):
        return self._guests.servers[0].id

    def _hosts(self):
        """Return where the guests are, once they rest."""
        deadline = time.monotonic() + _LIMIT_S
        while True:
            found = [self._compute.get_server(one.id)
                     for one in self._guests.servers]
            moving = [one.name for one in found if one.status != 'ACTIVE']
            if not moving:
                return ' '.join(sorted({one.compute_host for one in found}))
            if time.monotonic() > deadline:
                return 'not ACTIVE: ' + ', '.join(moving)
            time.sleep(_POLL_S)

    def _under_way(self):
        """Wait until QEMU sends the memory of one of them."""
        deadline = time.monotonic() + _LIMIT_S
        while time.monotonic() < deadline:
            if any(one.status == 'running' for one in
                   self._compute.migrations(status='running')):
                return 'yes'
            time.sleep(_POLL_S)
        return 'no'

    def _service(self, host):
        return next(self._compute.services(binary='nova-compute',
                                           host=host)).status

    def _enable(self, host):
        self._compute.enable_service(next(self._compute.services(
            binary='nova-compute', host=host)).id)
        return 'enabled'

    def _slow(self):
        for host in self._cloud.computes:
            host.link('migration').limit(send=_SLOW * settings.MBIT,
                                         receive=_SLOW * settings.MBIT)
        return 'slow'

    def _fast(self):
        topology.limit(self._cloud)
        return 'fast'

    def _verify(self):
        """Have the guests verify their memory, and write on."""
        wrong = self._guests.verify()
        self._guests.write()
        return '; '.join(wrong) or 'right'


def measure(cloud, quick, progress):
    shutil.rmtree(_OUT, ignore_errors=True)
    _OUT.mkdir(parents=True)
    made = results.Results(f'make {TARGET}')
    world = World(cloud, progress)
    try:
        world.boot()
        driver.run(horizon.python(), 'drive_lab', [horizon.url(cloud), _OUT],
                   world.obey, made,
                   {'LAB_PASSWORD': cloud.settings.password})
    finally:
        world.close()
    if not made.rows:
        raise errors.LabError('the program that drives the browser has '
                              'checked nothing')
    return made.rows


if __name__ == '__main__':
    sys.exit(lab_bench.main(TARGET, __doc__, measure, wanted=WANTED,
                            lab='panels'))
