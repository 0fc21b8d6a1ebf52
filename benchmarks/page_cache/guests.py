# SPDX-License-Identifier: Apache-2.0
"""The guests of the bench, as it handles them.

    begin()              the load starts; returns when it has run a while
    drop()               the page cache goes
    arrived(...)         after the migration: the points of the series
    verify()             the load ends; (bytes, errors)
    noticed(...)         what its users noticed, for the record
"""

import abc
import collections
from pathlib import Path
import time

from benchmarks.page_cache import arrival
from benchmarks.page_cache import series
from benchmarks.page_cache.cells import AFTER_S
from benchmarks.page_cache.cells import BEFORE_S
from benchmarks.page_cache.cells import Workload
from guests import line
from guests.debian import client as debian_client
from guests.debian import image
from guests.debian import web
from guests.synthetic import console
from lab import client
from lab import guest
from lab import instances
from lab.services import instance_network

#: KB/s at which the small guest reads.
READ_RATE = 8000
#: Requests a second of the web server, which come from outside: 6 MB/s.
WEB_RATE = 20
#: Transactions a second of the database.  As fast as it can it dirties more
#: in a second than a link of 100 Mbit/s carries beside what it writes to its
#: disk, and no migration ends.
DB_RATE = 5
DEBIAN_GB = 3


def boot_debian(cloud, name: str, kind: str, **more):
    """Request an instance of Debian; more: as boot_image takes it."""
    return instances.boot_image(
        cloud, name, kind,
        guest.SILENT_IMAGE if instances.KINDS[kind].index
        else guest.DEBIAN_IMAGE, image.MEMORY_MIB, DEBIAN_GB, **more)


class Guest(abc.ABC):
    """One instance.

    :ivar server: as the Compute API has it
    """

    #: Whether the console tells each second what was done.
    reports = False

    @staticmethod
    @abc.abstractmethod
    def image() -> Path:
        """The disk it boots from; what is in it is part of the path."""

    @staticmethod
    @abc.abstractmethod
    def upload(cloud, kind: str) -> None:
        """Have the image in the cloud.

        :param kind: of lab.instances.KINDS
        """

    def __init__(self, cloud, server, workload: Workload) -> None:
        self._cloud = cloud
        self._workload = workload
        self.server = server

    def console(self):
        """Path of the terminal on the host it is on now."""
        compute = client.connect(self._cloud).compute
        self.server = compute.get_server(self.server.id)
        return guest.console(instances.host_of(self._cloud, self.server),
                             self.server.id)

    def attach(self) -> None:
        """Find it where it is now."""
        self.console()

    @abc.abstractmethod
    def begin(self) -> None:
        pass

    @abc.abstractmethod
    def drop(self) -> None:
        pass

    @abc.abstractmethod
    def arrived(self, seen: arrival.Arrival) -> list[series.Point]:
        """Wait until the load has run long enough, return its points."""

    @abc.abstractmethod
    def verify(self) -> tuple[int, int]:
        pass

    def noticed(self, resumed: float) -> dict:
        """What users of its services noticed, after verify().

        :param resumed: host's time at which it was seen to run
        """
        return {}

    def close(self) -> None:
        """Leave it alone; idempotent."""
        return


class SmallGuest(Guest):

    reports = True

    @staticmethod
    def image() -> Path:
        return guest.disk_image()

    @staticmethod
    def upload(cloud, kind: str) -> None:
        guest.upload(cloud)

    @classmethod
    def boot(cls, cloud, name: str, kind: str, workload: Workload):
        server = instances.wait_active(
            client.connect(cloud).compute,
            instances.boot(cloud, name, kind,
                           instances.Disks.of(cloud.settings)), 600)
        made = cls(cloud, server, workload)
        console.ready(made.console(), 600)
        return made

    def begin(self) -> None:
        self._before: list = []
        if not self._workload.load:
            return
        console.ask(self.console(), 'start read readrate=%d' % READ_RATE)
        listener = arrival.Listener(self.console())
        time.sleep(BEFORE_S)
        listener.close()
        self._before = listener.reports

    def drop(self) -> None:
        console.ask(self.console(), 'drop')

    def arrived(self, seen: arrival.Arrival) -> list[series.Point]:
        if not self._workload.load or seen.listener is None:
            return []
        time.sleep(max(0.0, seen.resumed + AFTER_S + 1 - time.monotonic()))
        seen.listener.close()
        return [*series.of_reports(self._before, seen.resumed),
                *series.of_reports(seen.listener.reports, seen.resumed)]

    def verify(self) -> tuple[int, int]:
        terminal = self.console()
        if self._workload.load:
            console.ask(terminal, 'stop')
        return console.verify(terminal)[:2]


class DebianGuest(Guest):
    """:ivar talk: guests.debian.client.DebianGuest"""

    @staticmethod
    def image() -> Path:
        return image.build()

    @staticmethod
    def upload(cloud, kind: str) -> None:
        if instances.KINDS[kind].index:
            guest.upload_silent(cloud)
        else:
            guest.upload_debian(cloud)

    @classmethod
    def boot(cls, cloud, name: str, kind: str, workload: Workload):
        server = instances.wait_active(
            client.connect(cloud).compute,
            boot_debian(cloud, name, kind,
                        attached=workload.load == 'web'), 600)
        made = cls(cloud, server, workload)
        made.talk = debian_client.DebianGuest(
            line.TerminalLine(made.console()))
        made.talk.wait_ready(1200)
        made._web = None
        if workload.rounds:
            # Whatever the page cache has, some of it has to go each time.
            made.talk.age(workload.rounds, made.talk.memory()['MemTotal'] // 4)
        if workload.load == 'web':
            made._web = web.WebLoad(instance_network.address(cloud, server))
            made._web.learn()
        return made

    def attach(self) -> None:
        self.talk.attach(line.TerminalLine(self.console()))

    def begin(self) -> None:
        self._clock = self.talk.clock()
        if not self._workload.load:
            return
        self.talk.warm(self._workload.load)
        if self._web is not None:
            self._web.start(WEB_RATE)
        else:
            self.talk.start(self._workload.load, rate=DB_RATE)
        self._clock = self.talk.clock()
        time.sleep(BEFORE_S)

    def drop(self) -> None:
        self.talk.drop()

    def arrived(self, seen: arrival.Arrival) -> list[series.Point]:
        self.attach()
        if not self._workload.load:
            return []
        time.sleep(max(0.0, seen.resumed + AFTER_S + 1 - time.monotonic()))
        if self._web is not None:
            return series.of_requests(self._web.requests(), seen.resumed,
                                      self._web.began, time.monotonic())
        now = self.talk.clock()
        resumed = now.guest - (now.host - seen.resumed)
        return series.of_windows(
            self.talk.series(self._workload.load, self._clock.guest),
            resumed)

    def verify(self) -> tuple[int, int]:
        found = []
        if self._web is not None:
            self._web.stop()
        elif self._workload.load:
            self.talk.stop(self._workload.load)
        for what in debian_client.VERIFIED:
            found.append(self.talk.verify(what))
        return (sum(one.bytes for one in found),
                sum(one.errors for one in found))

    def noticed(self, resumed: float) -> dict:
        if self._web is None:
            return {}
        requests = self._web.requests()
        outcomes = collections.Counter(one.outcome for one in requests)
        return {
            'outage_s': series.outage(requests, resumed, self._web.began,
                                      self._web.ended),
            'answers': outcomes[web.GOOD],
            'failed_requests': outcomes[web.FAILED],
            'wrong_answers': outcomes[web.WRONG],
        }

    def close(self) -> None:
        if self._web is not None:
            self._web.stop()
        self.talk.close()


GUESTS = {'small': SmallGuest, 'debian': DebianGuest}
