# SPDX-License-Identifier: Apache-2.0
"""Two agents and the disk of a QEMU, without Nova and libvirt."""

import contextlib
import importlib.util
import os
import threading
import unittest
from unittest import mock

if not all(map(importlib.util.find_spec, ('libvirt', 'cryptography',
                                          'nbd'))):
    raise unittest.SkipTest('libvirt, cryptography or nbd is not installed')

from nova_dedup_migrate.agent import disk_channel
from nova_dedup_migrate.agent import fillings
from nova_dedup_migrate.agent import owners
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.planner import disks as planner_disks
from nova_dedup_migrate.rpc import api
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.tasks import fill_disks
from nova_dedup_migrate.tests.functional.disks import case
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.unit.storage.channel import certificates
from nova_dedup_migrate.tests.unit.tasks import fakes
from testkit import qemus
from testkit import spec

#: Of these the destination has all but the last eighth.
DATA = case.SIZE - (1 << 19)
HELD = DATA // 8 * 7


class Port:
    """A disk_port.DiskPort over the agents' own objects."""

    def __init__(self, test):
        self._test = test

    def targets(self):
        return ['disk0']

    def watch(self, target):
        return self._test.watchings.watch(watch_objects.DedupWatchRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=fakes.MIGRATION,
            target=target, above_base=bool(self._test.backing)))

    def facts(self, target, watch):
        return planner_disks.DiskFacts(watch.data, len(watch.sample), 0)

    def build(self, target, watch, seconds, source_blocks=False):
        self._test.fillings.fill({}, disk_objects.DedupFillRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=fakes.MIGRATION,
            project_id='p1', target=target, image=self._test.image,
            backing=self._test.backing, size=watch.size,
            granularity=watch.granularity, watch=watch.watch,
            source='source', seconds=seconds,
            source_blocks=source_blocks), store=self._test.store)

    def state(self, target, wait):
        return self._test.fillings.filling(disk_objects.DedupFillingRequest(
            migration_uuid=fakes.MIGRATION, target=target, wait=wait))

    def show(self, total, left):
        pass

    def arm(self, target):
        return self._test.watchings.arm(fakes.MIGRATION, target)

    def release(self, target):
        return self._test.watchings.release(fakes.MIGRATION, target)

    def abort(self):
        self._test.fillings.abort(fakes.MIGRATION)

    def used(self):
        return {watch.device: (watch.dirty, watch.reason or '')
                for watch in self._test.rig_.source.disk_watches()}

    def forget(self):
        self._test.watchings.forget(fakes.MIGRATION)


class Agents:
    """Those of both hosts, for tests with a binary and a directory."""

    def begin_agents(self, guest):
        """Begin both.

        :param guest: returns the Guest of an instance, at the source
        """
        binary = qemus.find('patched', self.binary)
        self.authority = certificates.Authority(self.temporary_dir())
        self.index = store.Index(str(self.directory / 'index'))
        self.addCleanup(self.index.close)
        self.channels = channels = {}
        for host in 'source', 'destination':
            channels[host] = disk_channel.DiskChannel(
                host, '127.0.0.1', 0, self.authority.host(host), self.index,
                [str(self.directory)], 0.0, owners.allowed)
            channels[host].start()
            self.addCleanup(channels[host].stop)
        self.agents = agents = mock.create_autospec(api.AgentAPI,
                                                    instance=True)
        agents.channel_offer.side_effect = (
            lambda ctxt, host, request: channels[host].offer(request))
        self.begin = lambda: fillings.Fillings(
            channels['destination'], self.index, agents,
            [str(self.directory)], str(self.directory / 'journals'), 0,
            str(qemus.tool(binary, 'qemu-storage-daemon')), {}.get,
            str(self.directory / 'replicas'))
        self._guest = guest
        self.restart()
        self.restart_source()
        self.operation = fakes.operation()
        self.backing = []
        self.store = None

    def restart(self):
        """Have a new agent at the destination, which knows no disk."""
        self.fillings = self.begin()
        self.fillings.start()
        self.addCleanup(self.fillings.stop)

    def restart_source(self):
        """Have a new agent at the source, after a kill of the other."""
        self.watchings = watchings.Watchings(self._guest,
                                             self.channels['source'])
        self.addCleanup(self.watchings.stop)

    def hold(self, content):
        """Have the destination's index know a file with this content."""
        path = self.directory / 'held.img'
        path.write_bytes(content)
        with path.open('rb') as file:
            found = fingerprints.fingerprint(file.fileno())
        self.index.add(str(path), 'p1', found.stat, found.digests,
                       found.numbers)

    def build(self, always=True, port=None):
        """Run the task; return the report of the last disk."""
        fill_disks.FillDisks(self.operation, port or Port(self), 60.0,
                             always=always).execute()
        return self.operation.disks[-1]


class BuiltCase(Agents, case.SeedCase):

    def setUp(self):
        super().setUp()
        self.begin_agents(lambda uuid: self.rig_.source)
        self.hold(self.random()[:HELD])

    def flat(self, directory=''):
        """A raw disk and a target that nobody has opened.

        :param directory: of the target, if it is another
        """
        source = self.raw('source.img', self.random())
        target = self.raw(os.path.join(directory, 'target.img'))
        self.image = disk_objects.DedupImageFile(path=str(target),
                                                 format='raw')
        self.rig_ = rig.Rig(self, self.binary, spec.Disk(path=source),
                            spec.Disk(path=target), (source, 'raw'),
                            (target, 'raw'))
        self.rig_.start(target=False)

    def overlay(self):
        """Likewise with overlays over a base that both have."""
        base = self.raw('base.img', self.random(seed=2))
        source, target = (self.images.overlay(base, 'raw', name)
                          for name in ('source.qcow2', 'target.qcow2'))
        self.image = disk_objects.DedupImageFile(path=str(target),
                                                 format='qcow2')
        self.backing = [disk_objects.DedupImageFile(path=str(base),
                                                    format='raw')]
        self.rig_ = rig.Rig(
            self, self.binary,
            self.images.disk((base, 'raw'), (source, 'qcow2')),
            self.images.disk((base, 'raw'), (target, 'qcow2')),
            (source, 'qcow2'), (target, 'qcow2'))
        self.rig_.start(target=False)

    @contextlib.contextmanager
    def written_to(self):
        """Write all the time, in a part that the destination has."""
        stop = threading.Event()

        def write():
            number = 0
            while not stop.is_set():
                number += 1
                self.rig_.io('aio_write', '-q', '-P', number % 250 + 1,
                             number * 7 % 40 * 4096, 4096)

        thread = threading.Thread(target=write)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def finish(self, mark):
        """End a mirror after writes, with the seed that it had."""
        self.rig_.io('aio_flush')
        self.rig_.ready(mark)
        self.assertEqual('used', self.rig_.query().state)
        self.rig_.finish_mirror(mark)
        self.assert_same(self.rig_)

    def mirror(self, **given):
        """Mirror as libvirt does after that; return bytes mirrored."""
        self.rig_.start_target()
        mark = self.rig_.begin_mirror(**given)
        copied = self.rig_.ready(mark)
        fill_disks.DiskLook(self.operation, Port(self)).look()
        self.rig_.finish_mirror(mark)
        return copied
