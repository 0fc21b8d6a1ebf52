# SPDX-License-Identifier: Apache-2.0
"""Compares the disks of an instance byte by byte, before and after.

Nova removes the files of the source when an instance has left.  A second
name keeps each until it has been compared with that of the destination.
The guest stands still meanwhile and must not write to its disks between its
arrival and the comparison: the lab's guest writes only if it is told to.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil

from lab import errors
from lab import faults

_INSTANCES = 'var/lib/nova/instances'
#: Beside them, so in the same file system.
_KEPT = _INSTANCES + '/kept-disks'
_READ = 1 << 20


@dataclasses.dataclass(frozen=True)
class Compared:
    """:ivar bytes: that were compared, of all disks
    :ivar problems: what is not equal, sentences
    """

    bytes: int = 0
    problems: tuple = ()


def files(host, uuid):
    """Return the files of an instance's disks that are on a host."""
    return sorted(path for path in (host.root / _INSTANCES / uuid).glob(
        'disk*') if path.suffix != '.info')


class Kept:
    """The disks of an instance at its source.

    :param cloud: cloud.Cloud
    :param host: the source
    :param uuid: of the instance
    """

    def __init__(self, cloud, host, uuid):
        self._cloud = cloud
        self._host = host
        self._uuid = uuid
        self._directory = host.root / _KEPT / uuid

    def __enter__(self):
        shutil.rmtree(self._directory, ignore_errors=True)
        self._directory.mkdir(parents=True)
        for path in files(self._host, self._uuid):
            os.link(path, self._directory / path.name)
        return self

    def __exit__(self, *_exception):
        shutil.rmtree(self._directory, ignore_errors=True)

    def compare(self, destination):
        """Compare them with those of the host that it is on now.

        :returns: Compared
        """
        kept = sorted(self._directory.iterdir())
        there = files(destination, self._uuid)
        names = [[path.name for path in paths] for paths in (kept, there)]
        if names[0] != names[1]:
            return Compared(problems=('%s has the disks %s instead of %s' % (
                destination.name, ', '.join(names[1]) or 'none',
                ', '.join(names[0])),))
        total, problems = 0, []
        tool = _qemu_img(self._cloud)
        with _paused(destination, self._uuid):
            for before, after in zip(kept, there, strict=True):
                total += _size(tool, destination, after)
                problems += _differences(tool, destination, before, after)
        return Compared(total, tuple(problems))


@contextlib.contextmanager
def _paused(host, uuid):
    """Have the guest stand still; QEMU writes back what it holds."""
    host.run(['virsh', 'suspend', uuid])
    try:
        yield
    finally:
        host.run(['virsh', 'resume', uuid])


def _qemu_img(cloud):
    return cloud.qemu(cloud.settings.qemus[0]) / 'qemu-img'


def _form(path):
    """Return the format of a disk that Nova has made."""
    with path.open('rb') as file:
        return 'qcow2' if file.read(4) == b'QFI\xfb' else 'raw'


def _size(tool, host, path):
    done = host.run([tool, 'info', '-U', '--output', 'json', '-f',
                     _form(path), path])
    return json.loads(done.stdout)['virtual-size']


def _differences(tool, host, before, after):
    """Yield what qemu-img says; a backing file is the host's own."""
    done = host.run([tool, 'compare', '-U', '-f', _form(before), '-F',
                     _form(after), before, after], timeout=600.0,
                    check=False)
    if done.returncode == 1:
        yield 'disk %s: %s' % (after.name, done.stdout.strip())
    elif done.returncode:
        raise errors.LabError('%s: the disks %s and %s cannot be compared: '
                              '%s' % (host.name, before, after,
                                      done.stderr.strip()))


def digests(cloud, host, uuid, paused):
    """Return the SHA-256 of all that the guest sees of its disks, by name.

    :param paused: whether the guest runs and has to be paused for it
    """
    with _paused(host, uuid) if paused else contextlib.nullcontext():
        return {path.name: _digest(cloud, host, path)
                for path in files(host, uuid)}


def _digest(cloud, host, path):
    if _form(path) != 'raw':
        plain = host.root / _KEPT / 'plain'
        plain.parent.mkdir(exist_ok=True)
        try:
            host.run([_qemu_img(cloud), 'convert', '-U', '-f', _form(path),
                      '-O', 'raw', path, plain], timeout=600.0)
            return _digest(cloud, host, plain)
        finally:
            plain.unlink(missing_ok=True)
    found = hashlib.sha256()
    with path.open('rb') as file:
        while data := file.read(_READ):
            found.update(data)
    return found.hexdigest()


def left(host):
    """Yield what building disks has left on a host.

    To be called when nothing migrates.
    """
    for directory, what in (('dedup_journals', 'journal'),
                            ('dedup_replicas', 'replica')):
        for path in sorted((host.directory / 'var/lib/nova' / directory).glob(
                '*')):
            yield '%s: %s %s' % (host.name, what, path.name)
    for one in faults.writers(host):
        yield '%s: qemu-storage-daemon %d' % (host.name, one.pid)


def watched(host, uuid):
    """Yield what a guest's QEMU still has of disks that were built."""
    for command, what in (('x-dedup-disk-query', 'watches a disk'),
                          ('query-block-exports', 'exports a disk')):
        done = host.run(['virsh', 'qemu-monitor-command', uuid,
                         json.dumps({'execute': command})], check=False)
        if done.returncode == 0 and json.loads(done.stdout).get('return'):
            yield 'the QEMU of the instance %s: %s' % (
                what, done.stdout.strip())
