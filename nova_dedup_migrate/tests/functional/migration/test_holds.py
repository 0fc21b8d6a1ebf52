# SPDX-License-Identifier: Apache-2.0
"""How long QEMU's locks are held: 64 GiB of memory, disks of 1 TiB.

Nothing of it takes room: the memory is never touched, the disks are sparse.
Records are sent for zero pages too, so there are as many as there can be.

What is asserted is how many steps are done under one hold of a lock, not how
long that takes.  The times go into the file that DEDUP_TEST_FIGURES names,
for make qemu-hardening.
"""

import base64
import dataclasses
import json
import os
import pathlib
import re
import subprocess

from nova_dedup_migrate.pagecache import mapformat
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.functional.migration import test_postcopy
from testkit import direct
from testkit import options
from testkit import qemus
from testkit import spec

#: DEDUP_STEPS of hold.h, twice: a piece may be made of two.
MOST_STEPS = 2 * 65536
#: Outstanding records, at most.
WINDOW = 1 << 20
_GIB = 1 << 30
_TIB = 1 << 40
_MEMORY = 64 * _GIB
_HUNG = 'fetch-delay-us=1000000000,no-answers'
_BACKEND = '/machine/peripheral/%s/virtio-backend'
_LINE = re.compile(r'hold: (\w+) ([\w-]+): (\d+) times, (\d+) steps, '
                   r'(\d+) us, (\d+) us on the clock')


@dataclasses.dataclass(frozen=True)
class Hold:
    """The longest hold of a lock by one piece of work."""

    lock: str
    name: str
    times: int
    steps: int
    cpu_us: int
    elapsed_us: int


def holds(guest):
    """Return the Holds of a guest's QEMU, by name."""
    text = guest.qmp('human-monitor-command',
                     **{'command-line': 'info dedup'})
    found = [Hold(lock, name, *map(int, numbers))
             for lock, name, *numbers in _LINE.findall(text)]
    return {one.name: one for one in found}


class HoldsTest(base.TestCase):

    timeout = 400

    def setUp(self):
        test_postcopy.require_userfault(self)
        self.binary = qemus.require(self, 'faulty')
        super().setUp()
        directory = self.temporary_dir()
        self.raw = directory / 'disk.raw'
        self.raw.touch()
        os.truncate(self.raw, _TIB)
        self.qcow2 = directory / 'disk.qcow2'
        img = qemus.tool(pathlib.Path(self.binary), 'qemu-img')
        for argv in (['create', '-q', '-f', 'qcow2', '-o',
                      'preallocation=metadata', self.qcow2, '64G'],
                     ['resize', '-q', self.qcow2, '1T']):
            subprocess.run([img, *argv], check=True)

    def guest(self, name, inject):
        memory = {'qom-type': 'memory-backend-ram', 'id': 'ram',
                  'size': _MEMORY, 'reserve': False}
        one = direct.DirectGuest(spec.GuestSpec(
            binary=self.binary, memory_mib=_MEMORY >> 20,
            disks=(spec.Disk(path=self.qcow2, format='qcow2'),
                   spec.Disk(path=self.raw)),
            extra_args=('-object', json.dumps(memory),
                        '-machine', 'memory-backend=ram'),
            env={'QEMU_DEDUP_INJECT': inject}), self.temporary_dir(), name)
        self.addCleanup(one.destroy)
        return one

    def started(self, inject=''):
        one = self.guest('source', ','.join(filter(None, (
            'zero-records,hold-below-ms=2000000', inject))))
        one.start()
        one.track_dedup()
        return one

    def load_map(self, source):
        """Load hints for all of the memory that is not a hole below 4 GiB."""
        pages = mapformat.PageCacheMap(
            tuple(_BACKEND % disk for disk in ('disk0', 'disk1')),
            (mapformat.Extent(0, 900 * _GIB, _GIB >> 12, 1),
             mapformat.Extent(4 * _GIB, 0, 60 * _GIB >> 12, 0)))
        fd = os.memfd_create('map')
        try:
            os.write(fd, pages.encode())
            os.lseek(fd, 0, os.SEEK_SET)
            source.load_dedup_map(fd)
        finally:
            os.close(fd)
        self.eventually(lambda: source.dedup_statistics().hints.map_state
                        == 'loaded', 'the map', 60)
        self.assertGreater(source.dedup_statistics().hints.pages, 15 << 20)

    def sampled(self, source):
        self.assertTrue(source.qmp('x-dedup-sample-hints'))
        source.qmp('x-dedup-sample-memory')

    def seeded(self, source):
        """Have a disk watched, and a mirror of it prepared."""
        watched = source.qmp('x-dedup-disk-watch', device='disk0')
        length = -(-_TIB // watched['granularity'] // 8)
        for command, key, given in (
                ('x-dedup-disk-bitmap', 'fdname', {}),
                ('x-dedup-disk-arm', 'proven', {'canary': {
                    'offset': 0,
                    'data': base64.b64encode(bytes(512)).decode()}})):
            fd = os.memfd_create('bitmap')
            try:
                # every other block is proven
                os.write(fd, b'\x55' * length)
                source.qmp(command, token=watched['token'], **given,
                           **{key: source.pass_fd(fd, 'bitmap')})
            finally:
                os.close(fd)
        source.qmp('x-dedup-disk-query')
        source.qmp('x-dedup-disk-drop', token=watched['token'])

    def migrating(self, source, **given):
        """Migrate until the window is full and all else waits for it."""
        destination = self.guest('destination', _HUNG)
        source.arm_dedup(resend=False)
        migration = source.migrate(destination, options.MigrationOptions(
            downtime_limit_ms=1, paused=True, **given))
        self.eventually(lambda: self.source(source).outstanding == WINDOW,
                        'a full window', 200)
        self.eventually(lambda: migration.progress().remaining_bytes
                        < _GIB, 'the end of the scan', 200)
        return destination, migration

    def source(self, guest):
        return guest.dedup_statistics().source

    def drained_and_cancelled(self, source):
        destination, migration = self.migrating(source)
        source.disarm_dedup()
        self.eventually(lambda: not self.source(source).outstanding,
                        'draining', 60)
        migration.cancel()
        self.eventually(lambda: source.run_state() == 'running',
                        'the guest goes on')
        destination.destroy()

    def forgotten(self, source):
        source.track_dedup(False)
        self.assertEqual(0, source.dedup_statistics().hints.pages)

    def check(self, guest):
        found = holds(guest)
        if figures := os.environ.get('DEDUP_TEST_FIGURES'):
            with open(figures, 'a') as file:
                for one in found.values():
                    file.write('%s %s %d %d %d\n' % (
                        one.lock, one.name, one.steps, one.cpu_us,
                        one.elapsed_us))
        for one in found.values():
            self.assertLessEqual(one.steps, MOST_STEPS, one)
        return found

    def test_holds(self):
        """Load a map, migrate, drain, cancel; then again, with post-copy."""
        source = self.started()
        self.load_map(source)
        self.sampled(source)
        self.seeded(source)
        self.drained_and_cancelled(source)
        destination, migration = self.migrating(source, postcopy=True)
        migration.start_postcopy()
        self.eventually(lambda: migration.progress().status
                        == 'postcopy-active', 'post-copy', 60)
        found = self.check(source)
        for name in ('map-turn', 'iterate', 'postcopy', 'finish',
                     'migration-event', 'resolver-step', 'sample-hints',
                     'x-dedup-disk-arm', 'x-dedup-disk-drop'):
            self.assertGreater(found[name].times, 0, name)
        # 64 granules are a step
        self.assertGreaterEqual(found['x-dedup-disk-watch'].times,
                                (_TIB >> 15) // 64 // 65536)
        self.check(destination)

    def test_hints_are_forgotten(self):
        source = self.started()
        self.load_map(source)
        self.forgotten(source)
        self.assertGreater(self.check(source)['forget-hints'].times, 100)

    def test_holds_broken(self):
        """All at once: a hold takes as many steps as there are pages."""
        source = self.started('no-bounds')
        self.load_map(source)
        self.sampled(source)
        self.seeded(source)
        self.drained_and_cancelled(source)
        self.forgotten(source)
        found = holds(source)
        for name in ('map-turn', 'sample-hints', 'iterate', 'forget-hints',
                     'resolver-step', 'x-dedup-disk-watch',
                     'x-dedup-disk-arm'):
            self.assertGreater(found[name].steps, MOST_STEPS, name)
