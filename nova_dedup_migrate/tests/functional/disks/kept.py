# SPDX-License-Identifier: Apache-2.0
"""A replica of the disk of a QEMU, and the migration that takes it."""

import contextlib
import multiprocessing
import os
import threading
from unittest import mock

from nova_dedup_migrate.agent import replicas
from nova_dedup_migrate.agent import watchings
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import replica_objects
from nova_dedup_migrate.rpc import watch_objects
from nova_dedup_migrate.storage import scan
from nova_dedup_migrate.tests.functional.disks import built
from nova_dedup_migrate.tests.functional.disks import rig
from nova_dedup_migrate.tests.unit.tasks import fakes

PREPARATION = '99999999-0000-4000-8000-000000000009'
NAME = fakes.INSTANCE + '.disk0'
GRANULE = rig.GRANULE


class Port(built.Port):
    """As compute.disk_filler: with what the replica has."""

    def watch(self, target):
        self.resume = self._test.kept.take(replica_objects.DedupTakeRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=fakes.MIGRATION,
            target=target))
        return self._test.watchings.watch(watch_objects.DedupWatchRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=fakes.MIGRATION,
            target=target, resume=self.resume or None,
            above_base=bool(self._test.backing)))


class KeptCase(built.BuiltCase):

    def setUp(self):
        super().setUp()
        self.agents.watch_disk.side_effect = (
            lambda ctxt, host, request: self.watchings.watch(request))
        self.agents.forget_disks.side_effect = (
            lambda ctxt, host, migration: self.watchings.forget(migration))
        self.read = []
        self.order = []
        self.between = lambda offset: None
        self.inverted = False
        real = scan.scan

        def scanned(disk, clear, pace, wanted, *args):
            self.read.append(0)
            one = _Reader(self, disk, clear)
            return real(one, one.clear, pace, self.counted(wanted), *args)

        patcher = mock.patch.object(watchings.scan, 'scan', scanned)
        patcher.start()
        self.addCleanup(patcher.stop)

    def counted(self, wanted):
        for offset, length in wanted:
            self.read[-1] += length
            self.order.append((offset // GRANULE, -(-length // GRANULE)))
            yield offset, length

    def restart(self):
        super().restart()
        self.kept = replicas.Replicas(
            str(self.directory / 'replicas'), 1 << 30, self.fillings,
            self.index, lambda instance: False, self.agents, 1e-6,
            lambda: False)
        # its thread does not run: refreshes come when the test has them
        os.makedirs(self.directory / 'replicas', exist_ok=True)

    def prepare(self):
        watch = self.watchings.watch(watch_objects.DedupWatchRequest(
            instance_uuid=fakes.INSTANCE, migration_uuid=PREPARATION,
            target='disk0', replica=True))
        self.kept.prepare({}, replica_objects.DedupPrepareRequest(
            lease=3600.0, data=watch.data,
            fill=disk_objects.DedupFillRequest(
                instance_uuid=fakes.INSTANCE, migration_uuid=PREPARATION,
                project_id='p1', target='disk0', size=watch.size,
                image=disk_objects.DedupImageFile(path='-', format='raw'),
                granularity=watch.granularity, watch=watch.watch,
                source='source', source_blocks=True)))
        self.done()

    def done(self):
        self.eventually(lambda: self.listed().state != 'running',
                        'the replica is made')
        self.assertEqual(('done', ''),
                         (self.listed().state, self.listed().reason))
        # take note of it
        with mock.patch.object(self.kept, '_refresh'):
            self.kept.refresh()

    def listed(self):
        (found,) = self.kept.list().replicas
        return found

    def refresh(self):
        self.kept.refresh()
        self.done()

    def write(self, granule, value, count=1):
        self.rig_.io('write', '-q', '-P', value, granule * GRANULE,
                     count * GRANULE)

    def assert_current(self):
        """Every byte of the replica is that of the disk."""
        self.assertTrue(
            (self.directory / 'replicas' / NAME).read_bytes()
            == (self.directory / 'source.img').read_bytes())

    def migrate(self):
        """Migrate; return bytes mirrored, and granules that differ."""
        found = self.build(port=Port(self))
        self.assertEqual('', found.reason)
        copied = self.mirror()
        self.assertEqual('used', self.rig_.query().state)
        return copied, self.rig_.differing()

    @contextlib.contextmanager
    def forked(self, function):
        """Run a function, and what it begins, in a process of its own.

        It calls agents through this one.
        """
        context = multiprocessing.get_context('fork')
        here, there = context.Pipe()

        def call(method, ctxt, host, request):
            with guard:
                there.send((method, host, request.obj_to_primitive()))
                return objects.DedupObject.obj_from_primitive(there.recv())

        def work():
            for method in 'watch_disk', 'channel_offer':
                getattr(self.agents, method).side_effect = (
                    lambda *args, method=method: call(method, *args))
            function()
            threading.Event().wait()

        def serve():
            with contextlib.suppress(EOFError):
                while True:
                    method, host, request = here.recv()
                    here.send(getattr(self.agents, method)(
                        {}, host, objects.DedupObject.obj_from_primitive(
                            request)).obj_to_primitive())

        guard = threading.Lock()
        process = context.Process(target=work)
        process.start()
        there.close()
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield process
        finally:
            process.kill()
            process.join()
            thread.join()


class _Reader:
    """An nbd.NBD that has the guest write between clearing and reading."""

    def __init__(self, test, disk, clear):
        self._test = test
        self._disk = disk
        self._clear = clear
        self._left = None

    def __getattr__(self, name):
        return getattr(self._disk, name)

    def clear(self, offset, length):
        if self._test.inverted:
            self._left = offset, length
        else:
            self._clear(offset, length)
            self._test.between(offset)

    def pread(self, length, offset):
        found = self._disk.pread(length, offset)
        if self._left:
            self._test.between(offset)
            self._clear(*self._left)
        return found
