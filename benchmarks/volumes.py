# SPDX-License-Identifier: Apache-2.0
"""A volume in use moves to other storage: from its backups, and in full.

A QEMU has the volume on storage of a given rate.  Cinder's own posix driver
makes a full backup and an increment; a daemon serves them over TLS, as in a
cloud.  Then the volume is mirrored to a new one, once as Nova does it and
once filled from the backups before.  All bytes of both copies are compared
with the volume.

Not in it: the guest's own I/O, Nova and Cinder's API, a real network.
"""

import argparse
import datetime
import filecmp
import os
import pathlib
import sys
import time
import unittest

from cinder_backup_assist.tests.cinder_functional import test_service
from nova_dedup_migrate.storage import rebuild
from nova_dedup_migrate.storage import writer
from nova_dedup_migrate.storage.sources import backup as backup_source
from nova_dedup_migrate.swaps import fill
from nova_dedup_migrate.swaps import watches
from nova_dedup_migrate.tests.functional.disks import rig
from testkit import qemus
from testkit import results
from testkit import spec

_TOP = pathlib.Path(__file__).parents[1]
_MIB = 1 << 20
#: The share of the volume that is written to after the backup.
_CHANGED = 0.02
#: Of bytes read and of time, against a copy of all.
_READ_TARGET = 0.10
_TIME_TARGET = 4.0


class Bench(test_service.ServiceTestCase):
    """One run; its figures are in the attributes.

    :cvar size: bytes of the volume
    :cvar rate: bytes a second that its storage gives
    :cvar binary: path of the patched QEMU
    :cvar figures: what was measured, by name; the test is not kept
    """

    size = 0
    rate = 0
    binary = ''
    figures: dict = {}
    object_size = 32 * _MIB

    def runTest(self):
        self.directory = pathlib.Path(self.directory)
        self.path = self.directory / 'volume'
        self.path.write_bytes(self.content(self.size))
        self.start_daemon()
        self.figures['full'] = self.measure(self.copy_all)
        self.figures['ours'] = self.measure(self.copy_newer)

    def temporary_dir(self):
        """As rig.Rig has it of its test."""
        path = self.directory / ('run%d' % len(os.listdir(self.directory)))
        path.mkdir()
        return path

    def measure(self, copy):
        """Return (bytes read from the volume, seconds) of a copy."""
        target = self.directory / copy.__name__
        with open(target, 'wb') as file:
            file.truncate(self.size)
        one = self.rig(target)
        one.source.start(paused=True)
        try:
            return copy(one, target)
        finally:
            one.end()
            if not filecmp.cmp(self.path, target, shallow=False):
                self.fail('%s is not the volume' % target)
            target.unlink()

    def rig(self, target):
        return rig.Rig(
            self, self.binary, disk=spec.Disk(blockdev=(
                {'driver': 'file', 'node-name': 'disk0-file',
                 'filename': str(self.path), 'cache': {'direct': True}},
                {'driver': 'throttle', 'node-name': 'disk0-slow',
                 'throttle-group': 'storage', 'file': 'disk0-file'},
                {'driver': 'raw', 'node-name': 'disk0-format',
                 'file': 'disk0-slow'})),
            target=spec.Disk(path=target), image=(self.path, 'raw'),
            target_image=(target, 'raw'),
            extra_args=('-object', 'throttle-group,id=storage,'
                        'x-bps-read=%d' % self.rate))

    def change(self, one):
        """Write to some of the volume, as a guest would."""
        count = int(self.size * _CHANGED) // 65536
        for number in range(count):
            at = number * (self.size // count) // 4096 * 4096
            one.io('write', '-P', number % 255 + 1, at, 65536)

    def copy_all(self, one, target):
        one.start_target()
        before, begun = _read(one.source.pid), time.monotonic()
        one.mirror()
        return _read(one.source.pid) - before, time.monotonic() - begun

    def copy_newer(self, one, target):
        volume = self.make_volume()
        (device,) = one.source.disks().values()
        watch, found = watches.begin(
            one.source, device, lambda: self.find(volume.id))
        record = watches.Record('instance', 'vda', volume.id, watch.token,
                                (), found.now)
        full = self.back_up(volume, self.path.read_bytes(),
                            **self.at(found))
        self.change(one)
        self.back_up(volume, self.path.read_bytes(), full, **self.at(found))
        self.change(one)
        before, begun = _read(one.source.pid), time.monotonic()
        backup = self.reader(volume.id)
        backup._accept = record.refusal
        self.figures['filled'] = fill.fill(
            one.source, record, backup_source.BackupSource(backup),
            'backup', writer.Image(str(target), 'raw'),
            str(self.directory / 'journal'), rebuild.Limits(reserve=0),
            os.path.join(os.path.dirname(self.binary),
                         'qemu-storage-daemon'), everything=False)
        one.start_target()
        one.mirror()
        return _read(one.source.pid) - before, time.monotonic() - begun

    def at(self, found):
        """Return the fields of a backup that is begun now."""
        self._time += self._step
        return {'data_timestamp': self._time}

    def setUp(self):
        super().setUp()
        self._step = datetime.timedelta(hours=1)
        self._time = datetime.datetime.now(
            datetime.timezone.utc).replace(tzinfo=None)


def _read(pid):
    """Return the bytes that a process has read from files."""
    for line in pathlib.Path('/proc/%d/io' % pid).read_text().splitlines():
        name, value = line.split(': ')
        if name == 'rchar':
            return int(value)
    raise ValueError('/proc/%d/io has no rchar' % pid)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true',
                        help='a volume of 256 MiB instead of 2 GiB')
    parser.add_argument('--rate', type=float, default=20.0,
                        help='MB/s that the storage of the volume gives '
                             '(default: %(default)g)')
    args = parser.parse_args(argv)
    Bench.size = (256 if args.quick else 2048) * _MIB
    Bench.rate = int(args.rate * 1e6)
    # Not in the test, which has another home directory.
    Bench.binary = os.fspath(qemus.find('patched'))
    out = results.Results('make bench-volumes'
                          + (' ARGS=--quick' if args.quick else ''))
    outcome = unittest.TextTestRunner(stream=sys.stderr).run(Bench())
    if not outcome.wasSuccessful():
        return 1
    full_read, full_time = Bench.figures['full']
    our_read, our_time = Bench.figures['ours']
    read, gain = our_read / full_read, full_time / our_time
    out.add('volume', Bench.size / _MIB, 'MiB', '-', True)
    out.add('storage', args.rate, 'MB/s', '-', True)
    out.add('full copy: read from storage', full_read / _MIB, 'MiB',
            '-', True)
    out.add('full copy: time', full_time, 's', '-', True)
    out.add('from backups: read from storage', our_read / _MIB, 'MiB',
            '-', True)
    out.add('from backups: time', our_time, 's', '-', True)
    out.add('from backups: fetched',
            Bench.figures['filled'].fetched / _MIB, 'MiB', '-', True)
    out.add('read against full copy', read, '',
            '%g or less' % _READ_TARGET, read <= _READ_TARGET)
    out.add('faster than full copy', gain, 'times',
            '%g or more' % _TIME_TARGET, gain >= _TIME_TARGET)
    out.add('bytes compared', 'equal', '', 'equal', True)
    print(out.text())
    out.write(_TOP / 'build/bench-volumes/report.json')
    return out.status()


if __name__ == '__main__':
    sys.exit(main())
