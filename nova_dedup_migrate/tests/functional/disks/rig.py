# SPDX-License-Identifier: Apache-2.0
"""A disk that is mirrored into a target that somebody has filled before.

The target is an image of another QEMU that exports it by NBD, as libvirt
has it done; filler and mirror job write to it one after the other.
"""

import contextlib
import filecmp
import functools
import hashlib
import itertools
import json
import os
import subprocess
import threading

import nbd

from nova_dedup_migrate.hypervisor import disk_export
from nova_dedup_migrate.hypervisor import watching
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import command
from testkit import direct
from testkit import spec

GRANULE = 32768
STEP = 16 * GRANULE
_CHANNEL = 'script'
_JOB = 'mirror'
_TARGET = 'mirror-target'
_EXPORT = 'target'


class Rig:
    """One disk and its target.

    :param test: a base.TestCase
    :param disk, target: spec.Disk, without an id
    :param image, target_image: (path, format) to compare
    :param boot: whether the disk boots the scripted guest; otherwise the
        guest never runs
    :param given: further fields of the source's GuestSpec
    """

    def __init__(self, test, binary, disk, target, image, target_image,
                 boot=False, **given):
        self.test = test
        self.image, self.target_image = image, target_image
        self._binary = binary
        channels = (spec.Channel(_CHANNEL, 'uart', 'socket'),) * boot
        self.source = direct.DirectGuest(
            spec.GuestSpec(binary=binary, memory_mib=32, disks=(disk,),
                           channels=channels, **given),
            test.temporary_dir(), 'source')
        test.addCleanup(self.source.destroy)
        self.destination = direct.DirectGuest(
            spec.GuestSpec(binary=binary, memory_mib=32, extra_args=tuple(
                itertools.chain.from_iterable(
                    ('-blockdev', json.dumps(node))
                    for node in command.blockdevs('disk0', target)))),
            test.temporary_dir(), 'destination')
        test.addCleanup(self.destination.destroy)
        self._boot = boot
        self.guest = None
        self.canary = (0, os.urandom(watching.CANARY))

    # Beginning

    def start(self, target=True):
        """Start both QEMUs; without a target only that of the source."""
        self.source.start(paused=True)
        if self._boot:
            self.guest = scripted.Remote(
                self.source.channel(_CHANNEL),
                scripted.Model([bytearray(1 << 30)]))
            self.test.addCleanup(self.guest.close)
            self.source.cont()
            self.guest.wait()
        if target:
            self.start_target()

    def start_target(self):
        """Start the QEMU that has the target, and export it."""
        self.destination.start(paused=True)
        self._address = str(self.test.temporary_dir() / 'nbd')
        self.destination.qmp('nbd-server-start', addr={
            'type': 'unix', 'data': {'path': self._address}})
        self.destination.qmp('block-export-add', **{
            'type': 'nbd', 'id': _EXPORT, 'node-name': 'disk0-format',
            'name': _EXPORT, 'writable': True})

    # Filling

    @contextlib.contextmanager
    def reader(self, watch):
        """Give a connected nbd.NBD of the source's disk."""
        with self.source.exported_disk(watch.node_name) as path:
            handle = nbd.NBD()
            handle.set_export_name(disk_export.NAME)
            handle.connect_unix(path)
            try:
                yield handle
            finally:
                handle.shutdown()

    @contextlib.contextmanager
    def writer(self):
        """Give a connected nbd.NBD of the target."""
        handle = nbd.NBD()
        handle.set_export_name(_EXPORT)
        handle.connect_unix(self._address)
        try:
            yield handle
            handle.flush()
        finally:
            handle.shutdown()

    def fill(self, watch, inverted=False, skip=(), before=None,
             between=None):
        """Fill the target with all of the disk; return what is proven.

        :param inverted: read before clearing: that loses writes
        :param skip: numbers of granules not to fill
        :param before: called before anything is cleared or read
        :param between: called with the offset between the two
        """
        proven = bytearray(watch.bitmap_bytes)
        with self.reader(watch) as reader, self.writer() as writer:
            if before:
                before()
            for offset in range(0, watch.size, STEP):
                length = min(STEP, watch.size - offset)
                clear = functools.partial(self.source.clear_disk,
                                          watch.token, offset, length)
                read = functools.partial(reader.pread, length, offset)
                steps = (read, clear) if inverted else (clear, read)
                results = [steps[0]()]
                if between:
                    between(offset)
                results.append(steps[1]())
                data = results[0] or results[1]
                writer.pwrite(data, offset)
                self._prove(watch, writer, offset, data, proven, skip)
            writer.pwrite(self.canary[1], self.canary[0])
        return bytes(proven)

    @staticmethod
    def _prove(watch, writer, offset, data, proven, skip):
        for at in range(0, len(data), watch.granularity):
            number = (offset + at) // watch.granularity
            wanted = data[at:at + watch.granularity]
            if number in skip:
                writer.pwrite(b'\xaa' * len(wanted), offset + at)
                continue
            found = writer.pread(len(wanted), offset + at)
            if (hashlib.sha256(found).digest()
                    == hashlib.sha256(wanted).digest()):
                proven[number // 8] |= 1 << number % 8

    def arm(self, watch, proven):
        return self.source.arm_disk(watch.token, proven, *self.canary)

    def seeded(self, **given):
        """Watch, fill and arm; return the DiskWatch."""
        watch = self.watch()
        return self.arm(watch, self.fill(watch, **given))

    def watch(self, recorder=None):
        (device,) = self.source.disks().values()
        return self.source.watch_disk(device, recorder=recorder)

    def query(self, token=None):
        """Return the only DiskWatch, or that with a token."""
        (found,) = (watch for watch in self.source.disk_watches()
                    if token in (None, watch.token))
        return found

    def dirty(self, watch):
        """Return the numbers of granules that are dirty."""
        bits = int.from_bytes(self.source.dirty_granules(watch), 'little')
        return [number for number in range(watch.granules)
                if bits >> number & 1]

    # Mirroring

    def begin_mirror(self, device='disk0-format', export=_EXPORT, raw=False,
                     **given):
        """Start the job, as libvirt does, and return its mark of events.

        :param raw: put a node of that format over the target
        """
        client = {'driver': 'nbd', 'export': export,
                  'server': {'type': 'unix', 'path': self._address}}
        self.source.qmp('blockdev-add', **{
            **({'driver': 'raw', 'file': client} if raw else client),
            'node-name': _TARGET})
        mark = self.source.events.mark()
        given.setdefault('sync', 'full')
        self.source.qmp('blockdev-mirror', **{
            'job-id': _JOB, 'device': device, 'target': _TARGET, **given})
        return mark

    def ready(self, mark):
        """Wait until the target has it all; return bytes mirrored."""
        self.source.events.wait('BLOCK_JOB_READY', mark, 60)
        (job,) = self.source.qmp('query-block-jobs')
        return job['offset']

    def finish_mirror(self, mark):
        """Stop the guest and end the job with both sides equal."""
        if self.guest is not None:
            self.source.pause()
        self.source.qmp('block-job-cancel', device=_JOB)
        self.source.events.wait('BLOCK_JOB_COMPLETED', mark, 60)
        self.source.qmp('blockdev-del', **{'node-name': _TARGET})

    def mirror(self, **given):
        """Mirror; return bytes mirrored until it was ready."""
        mark = self.begin_mirror(**given)
        copied = self.ready(mark)
        self.finish_mirror(mark)
        return copied

    # Writing

    def io(self, *words, device='disk0'):
        """Run a command of qemu-io through a disk's own backend."""
        self.source.qmp('human-monitor-command', **{
            'command-line': 'qemu-io -d /machine/peripheral/%s/virtio-backend'
                            ' "%s"' % (device, ' '.join(map(str, words)))})

    @contextlib.contextmanager
    def guest_writes(self, sectors, seed=0):
        """Have the guest write to its disk while the block runs."""
        stop = threading.Event()
        failed = []

        def work():
            page = scripted.FIRST
            number = seed
            try:
                while not stop.is_set():
                    number += 1
                    self.guest.fill(page, number % 251 + 1)
                    self.guest.write(
                        page, sectors[number * 7919 % len(sectors)])
            except Exception as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]

    # The end

    def end(self):
        """End both QEMUs as they should end."""
        for guest in self.source, self.destination:
            if guest.is_alive():
                guest.qmp('quit')
                self.test.assertTrue(guest.wait_exit(30))
                self.test.assertNotIn('ssertion', guest.last_words())
            guest.destroy()

    def differing(self):
        """End both; return the numbers of granules that differ."""
        self.end()
        here, there = map(self._content, (self.image, self.target_image))
        self.test.assertEqual(here.stat().st_size, there.stat().st_size)
        if filecmp.cmp(here, there, shallow=False):
            return []
        one, two = here.read_bytes(), there.read_bytes()
        return [at // GRANULE for at in range(0, len(one), GRANULE)
                if one[at:at + GRANULE] != two[at:at + GRANULE]]

    def _content(self, image):
        path, form = image
        out = self.test.temporary_dir() / 'content'
        subprocess.run(
            [os.path.join(os.path.dirname(self._binary), 'qemu-img'),
             'convert', '-f', form, '-O', 'raw', str(path), str(out)],
            check=True, capture_output=True)
        return out
