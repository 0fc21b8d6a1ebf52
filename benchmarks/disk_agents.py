# SPDX-License-Identifier: Apache-2.0
"""The agents of three hosts that build disks, without OpenStack.

::

    source ---- link ---- destination ---- LAN ---- neighbour
    watches, reads        builds, proves            has an index as well

They are the agents' own objects, with their data channels over TLS.  Only
messages of the controller and of nova-compute are calls here.
"""

from __future__ import annotations

from collections.abc import Iterable
import os
from pathlib import Path
import time
import typing
import uuid

from benchmarks import disk_guest
from benchmarks import volume_servers
from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.agent import owners
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.planner import disks as planner
from nova_dedup_migrate.rpc import api as rpc_api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.tests.unit.storage.channel import certificates
from testkit import qemus

SOURCE, DESTINATION, NEIGHBOUR = HOSTS = (
    'source', 'destination', 'neighbour')
#: Knows what a target has from before; nobody reads it, but the survey does.
KEPT = 'kept'
PROJECT = 'bench'
#: Share of the time that has to be saved, as nova-compute has it by default.
_MIN_GAIN = 0.05


class Agents:
    """All of them.

    :param binary: the patched QEMU
    :param directory: of their files; images are below it
    :param guests: that run at the source
    :param link: from the source to the destination
    """

    def __init__(self, binary: Path, directory: Path,
                 guests: Iterable[disk_guest.Guest],
                 link: volume_servers.Link) -> None:
        authority = certificates.Authority(directory)
        self._directory = directory
        self._indexes = {host: store.Index(str(directory / (host + '-index')))
                         for host in (*HOSTS, KEPT)}
        self._channels = {host: disk_channel.DiskChannel(
            host, volume_servers.BEHIND if host == SOURCE
            else volume_servers.BEFORE, 0, authority.host(host),
            self._indexes[host], [str(directory)], 0.0, owners.allowed)
            for host in HOSTS}
        for channel in self._channels.values():
            channel.start()
        # Any ticket says which port it has.
        link.server(self._channels[SOURCE].offer(
            disk_objects.DedupChannelRequest(
                host=DESTINATION, migration_uuid=str(uuid.uuid4()),
                project_id=PROJECT)).port)
        running = {one.instance: one.source for one in guests}
        self._watchings = watchings.Watchings(
            running.__getitem__, self._channels[SOURCE])
        self._fillings = fillings.Fillings(
            self._channels[DESTINATION], self._indexes[DESTINATION],
            typing.cast(rpc_api.AgentAPI, self), [str(directory)],
            str(directory / 'journals'), 0,
            str(qemus.tool(binary, 'qemu-storage-daemon')), {}.get,
            str(directory / 'replicas'))
        self._fillings.start()
        #: instance -> (preparation, name of the watch)
        self._prepared: dict[str, tuple[str, str]] = {}
        self._neighbours: list[str] = []

    def channel_offer(self, ctxt: object, host: str,
                      request: disk_objects.DedupChannelRequest
                      ) -> disk_objects.DedupChannelOffer:
        """Stand in for AgentAPI; the source is reached by the link."""
        offer = self._channels[host].offer(request)
        offer.address = volume_servers.BEFORE
        return offer

    def hold(self, host: str, path: Path) -> None:
        """Have the index of a host know a file."""
        with path.open('rb') as file:
            found = fingerprints.fingerprint(file.fileno())
        self._indexes[host].add(str(path), PROJECT, found.stat,
                                found.digests, found.numbers)
        if host == NEIGHBOUR:
            self._neighbours = [host]

    def prepare(self, guest: disk_guest.Guest) -> None:
        """Have a replica made at the destination, from the source.

        :raises RuntimeError: it is not made
        """
        path = Path(self._fillings.replica(guest.instance,
                                           disk_guest.TARGET))
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.truncate(path, guest.size)
        preparation = str(uuid.uuid4())
        watch = self._watch(guest, preparation, replica=True)
        reply = self._fill(guest, preparation, watch, path, True,
                           source_blocks=True)
        if reply.state != 'done':
            raise RuntimeError('the replica of guest %d is not made: %s'
                               % (guest.number, reply.reason))
        self._prepared[guest.instance] = preparation, watch.watch

    def build(self, guest: disk_guest.Guest, link_rate: float,
              write_rate: float, reuse: bool = False
              ) -> tuple[dict[str, int], str, planner.Decision]:
        """Build the target of a guest's disk, and arm the disk.

        It is built whatever the planner decides; but as in a migration, it
        is built no further than that is faster than copying.

        :param link_rate: bytes/s of the link
        :param write_rate: bytes/s that the guest writes
        :param reuse: whether the target may have the content already
        :returns: bytes proven by source; why it was not built, or ''; what
            the planner decides
        """
        migration = str(uuid.uuid4())
        preparation, resume = self._prepared.pop(guest.instance,
                                                 (None, None))
        if preparation is not None and not self._fillings.hand_over(
                preparation, disk_guest.TARGET, migration):
            resume = None
        watch = self._watch(guest, migration, resume=resume)
        decision = self._decide(watch, link_rate, write_rate)
        reply = self._fill(guest, migration, watch,
                           guest.targets[disk_guest.TOP], False, decision,
                           reuse=reuse)
        if reply.state == 'done':
            self._watchings.arm(migration, disk_guest.TARGET)
        return ({one.name: one.bytes for one in reply.sources}, reply.reason,
                decision)

    def _decide(self, watch: watch_objects.DedupWatchReply, link_rate: float,
                write_rate: float) -> planner.Decision:
        """Decide by what nova-compute would know; see disk_filler.facts."""
        digests = [bytes.fromhex(text) for text in watch.sample]
        found = max((sum(place is not None for place in self._indexes[
            host].find(digests, owners.allowed(PROJECT, [])))
            for host in (DESTINATION, KEPT, *self._neighbours)
            if digests), default=0)
        return planner.decide(planner.DiskFacts(
            data=watch.data, sampled=len(digests), found=found,
            link_rate=link_rate, write_rate=write_rate,
            current=1 - min(watch.dirty, watch.size) / max(1, watch.size)),
            _MIN_GAIN)

    def _watch(self, guest: disk_guest.Guest, migration: str,
               **given: typing.Any) -> watch_objects.DedupWatchReply:
        return self._watchings.watch(watch_objects.DedupWatchRequest(
            instance_uuid=guest.instance, migration_uuid=migration,
            target=disk_guest.TARGET, **given))

    def _fill(self, guest: disk_guest.Guest, migration: str,
              watch: watch_objects.DedupWatchReply, path: Path,
              replica: bool, decision: planner.Decision | None = None,
              **given: typing.Any) -> disk_objects.DedupFillingReply:
        """Fill a file and return how that ended.

        :param decision: that says how long it may take, None: for ever
        """
        request = disk_objects.DedupFillRequest(
            instance_uuid=guest.instance, migration_uuid=migration,
            project_id=PROJECT, target=disk_guest.TARGET,
            image=disk_objects.DedupImageFile(path=str(path), format='raw'),
            size=watch.size, granularity=watch.granularity,
            watch=watch.watch, source=SOURCE,
            neighbours=self._neighbours, **given)
        self._fillings.fill({}, request, replica)
        begun = time.monotonic()
        while True:
            reply = self._fillings.filling(disk_objects.DedupFillingRequest(
                migration_uuid=migration, target=disk_guest.TARGET,
                wait=1.0))
            if reply.state != 'running':
                return reply
            proven = planner.copied(
                {one.name: one.bytes for one in reply.sources})
            if decision is not None and decision.lost(
                    time.monotonic() - begun, proven) > planner.LEAST:
                request.seconds = 0.0
                self._fillings.fill({}, request, replica)
                decision = None

    def stop(self) -> None:
        self._fillings.stop()
        for channel in self._channels.values():
            channel.stop()
        for index in self._indexes.values():
            index.close()
