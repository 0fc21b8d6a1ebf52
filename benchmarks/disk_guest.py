# SPDX-License-Identifier: Apache-2.0
"""A guest whose disk moves: its images, and the QEMU of the other side.

::

    flat                      layered
    disk (raw)                base (raw) <- old (qcow2) <- disk (qcow2)

The layered disk is one of which there are snapshots: base is the image that
it was made of, old what it was at its snapshot, disk what was written since.
The guest's images are on storage that it shares with others.
"""

from __future__ import annotations

import filecmp
import json
import os
from pathlib import Path
import subprocess
import time
import uuid

from guests import cache
from guests.synthetic import channel
from guests.synthetic import disk as disks
from guests.synthetic import image
from guests.synthetic import workload
from testkit import direct
from testkit import qemus
from testkit import spec

#: The top one has what the guest writes now.
TOP = 'disk'
LAYERS = ('base', 'old', TOP)
#: The device.
TARGET = 'disk0'
_CHANNEL = 'workload'
_JOB = 'mirror'
#: Bytes of a qcow2 image besides its data: its file cannot grow on storage
#: that exports it.
_ROOM = 64 << 20
#: As the watch of a disk has it.
_GRANULARITY = 32 << 10
_SINCE = 'since'
#: Seconds for a copy of a disk.
_COPY = 7200
#: What a load of it writes to: so many granules, again and again.
_WRITTEN = 16


class Guest:
    """One guest.

    :param number: among those that move at once
    :param mib: of files on the disk
    :param layered: whether its disk is
    :param directory: of its own; is made
    :ivar files: layer -> path; the bottom one first
    :ivar targets: layer -> path at the destination
    :ivar source: its QEMU, after prepare()
    :ivar monitor: socket of a monitor of it, for a load
    """

    def __init__(self, binary: Path, number: int, mib: int, layered: bool,
                 directory: Path) -> None:
        self.instance = str(uuid.uuid4())
        self.number = number
        self.directory = directory
        self.monitor = directory / 'load'
        self._binary = binary
        self._img = qemus.tool(binary, 'qemu-img')
        bottom = disks.make_disk(directory, mib=mib, name='bottom').path
        self.size = bottom.stat().st_size
        self.layers = LAYERS if layered else (TOP,)
        self.files = {self.layers[0]: bottom}
        #: the image that the disk was made of
        self.base = cache.copy(bottom, directory / 'base.img')
        for layer in self.layers[1:]:
            self.files[layer] = self._overlay(directory / layer)
            os.truncate(self.files[layer], self.size + _ROOM)
        self.targets = {layer: directory / ('target-' + layer)
                        for layer in self.layers}

    def _overlay(self, path: Path) -> Path:
        subprocess.run([self._img, 'create', '-q', '-f', 'qcow2', path,
                        str(self.size)], check=True)
        return path

    def exports(self) -> dict[str, Path]:
        """Return the names on the storage of the images."""
        return {self._export(layer): path
                for layer, path in self.files.items()}

    def _export(self, layer: str) -> str:
        return 'guest%d-%s' % (self.number, layer)

    def prepare(self, storage: Path) -> None:
        """Make the two QEMUs, which are not started.

        :param storage: socket of the storage, which has the exports()
        """
        self._storage = storage
        work = workload.Workload(mode='pagecache-writer', cache=64, wss=8,
                                 rate=200, readrate=2000)
        kernel = image.guest_image()
        # The snapshot of a layered disk comes later.
        layers = self.layers[:-1] or self.layers
        self.source = direct.DirectGuest(spec.GuestSpec(
            binary=self._binary, name='bench%d' % self.number,
            memory_mib=256, kernel=kernel.kernel, initrd=kernel.initrd,
            append=work.append, disks=(spec.Disk(blockdev=tuple(
                self._stored(layer) for layer in layers)),),
            channels=(spec.Channel(_CHANNEL, 'uart', 'socket'),),
            extra_args=(
                '-no-reboot', '-chardev', 'socket,id=load,server=on,wait=off,'
                'path=%s' % self.monitor, '-mon',
                'chardev=load,mode=control')), self.directory / 'source')
        self.destination = direct.DirectGuest(
            spec.GuestSpec(binary=self._binary, memory_mib=32),
            self.directory / 'destination')

    def _stored(self, layer: str) -> dict:
        """Return the -blockdev of a layer on the storage."""
        return self._node(layer, layer != 'base', {
            'driver': 'nbd', 'export': self._export(layer),
            'server': {'type': 'unix', 'path': str(self._storage)}})

    def _node(self, layer: str, below: bool, file: dict) -> dict:
        """Return a -blockdev.

        :param below: whether to name the layer below
        """
        index = self.layers.index(layer)
        found = {'driver': 'qcow2' if index else 'raw',
                 'node-name': node(layer), 'file': file}
        if index:
            found['backing'] = (node(self.layers[index - 1]) if below
                                else None)
        return found

    # At the source

    def boot(self, rewrite: int) -> None:
        """Have the guest work, with a part of the disk of its own.

        :param rewrite: MiB that differ from the image
        """
        self.source.start(paused=True)
        # Behind the file system's files, where the guest does not look.
        for number in range(rewrite):
            self._io('write -q -P %d %d 1M' % (
                (number + 101 * self.number) % 250 + 1,
                self.size - (number + 1 << 20)))
        with channel.GuestChannel(self.source.channel(_CHANNEL)) as guest:
            self.source.cont()
            guest.wait_ready()
            guest.wait_report()

    def places(self) -> list[int]:
        """Return offsets that a load may write to."""
        return [self.size - (number + 1) * _GRANULARITY
                for number in range(_WRITTEN)]

    def _io(self, line: str) -> None:
        self.source.qmp('human-monitor-command', **{
            'command-line': 'qemu-io -d /machine/peripheral/disk0/'
            'virtio-backend "%s"' % line})

    def snapshot(self, copies: dict[str, Path]) -> None:
        """Copy images as they are now; a layered disk gets its snapshot.

        From now on what the guest writes is counted.

        :param copies: layer -> path of the copy
        """
        self.source.pause()
        if len(self.layers) > 1:
            self.source.qmp('blockdev-add', **self._node(
                TOP, False, self._stored(TOP)['file']))
            self.source.qmp('blockdev-snapshot', node=node('old'),
                            overlay=node(TOP))
        for layer, path in copies.items():
            cache.copy(self.files[layer], path)
        self.source.qmp('block-dirty-bitmap-add', node=node(TOP),
                        name=_SINCE, granularity=_GRANULARITY)
        self.source.cont()

    def written(self) -> int:
        """Return bytes of blocks written to since the snapshot."""
        for found in self.source.qmp('query-named-block-nodes', flat=True):
            for one in found.get('dirty-bitmaps', ()):
                if (found['node-name'], one.get('name')) == (
                        node(TOP), _SINCE):
                    return one['count']
        raise RuntimeError('QEMU has lost the record of writes of %s'
                           % self.files[TOP])

    def write_bytes(self) -> int:
        """Return what its own processors have written since it started."""
        return sum(device['stats']['wr_bytes'] for device
                   in self.source.qmp('query-blockstats'))

    # To the destination

    def make_targets(self) -> None:
        """Make the images that are not there yet, which are empty."""
        for index, layer in enumerate(self.layers):
            path = self.targets[layer]
            if path.exists():
                continue
            if index:
                self._overlay(path)
            else:
                with path.open('wb') as file:
                    file.truncate(self.size)

    def start_destination(self, link) -> None:
        """Start it.

        :param link: volume_servers.Link, which it is reached by
        """
        self.destination.start(paused=True)
        address = str(self.directory / 'nbd')
        self.destination.qmp('nbd-server-start', addr={
            'type': 'unix', 'data': {'path': address}})
        self._peer = link.target(address)

    def open_target(self, layer: str) -> None:
        """Have the destination open a layer over those below."""
        self.destination.qmp('blockdev-add', **self._node(layer, True, {
            'driver': 'file', 'filename': str(self.targets[layer]),
            'cache': {'direct': True}}))

    def send(self, layer: str) -> None:
        """Copy an image that is not written to any more over the link."""
        mark = self._begin('blockdev-backup', layer, 'full' if layer == 'base'
                           else 'top')
        self._completed(mark)
        self.source.qmp('blockdev-del', **{'node-name': _target(layer)})
        gone = self.destination.events.mark()
        self.destination.qmp('block-export-del', id=layer, mode='hard')
        self.destination.events.wait('BLOCK_EXPORT_DELETED', gone, 60)

    def mirror(self) -> None:
        """Mirror what is written to, until it is ready."""
        self._mark = self._begin('blockdev-mirror', TOP, 'top')
        self.source.events.wait('BLOCK_JOB_READY', self._mark, _COPY)

    def _begin(self, command: str, layer: str, sync: str) -> int:
        """Start a job and return its mark of events."""
        self.destination.qmp('block-export-add', **{
            'type': 'nbd', 'id': layer, 'node-name': node(layer),
            'name': layer, 'writable': True})
        self.source.qmp('blockdev-add', **{
            'driver': 'nbd', 'node-name': _target(layer), 'export': layer,
            'server': {'type': 'unix', 'path': self._peer}})
        mark = self.source.events.mark()
        self.source.qmp(command, **{
            'job-id': _JOB, 'device': node(layer), 'sync': sync,
            'target': _target(layer)})
        return mark

    def _completed(self, mark: int) -> None:
        done = self.source.events.wait('BLOCK_JOB_COMPLETED', mark, _COPY)
        if done.data.get('error'):
            raise RuntimeError('a copy of the disk of guest %d failed: %s'
                               % (self.number, done.data['error']))

    def end(self) -> float:
        """Stop the guest, end the mirror with both sides equal.

        :returns: seconds from the stop until the target has everything
        """
        begun = time.monotonic()
        self.source.pause()
        self.source.qmp('block-job-cancel', device=_JOB)
        self._completed(self._mark)
        return time.monotonic() - begun

    def quit(self) -> None:
        for each in self.source, self.destination:
            each.qmp('quit')
            each.wait_exit(30)

    def equal(self) -> bool:
        """Compare every byte of the disk, and of its snapshot if it has."""
        return equal(self._img, list(self.files.values()),
                     list(self.targets.values()))


def equal(img: Path, here: list[Path], there: list[Path]) -> bool:
    """Compare every byte of two disks, and of each layer of them.

    :param img: path of qemu-img
    :param here, there: the images, the bottom one first, each over the one
        before; the bottom one is raw, the others qcow2
    """
    if not filecmp.cmp(here[0], there[0], shallow=False):
        return False
    return all(subprocess.run(
        [img, 'compare', '-q', *('json:' + json.dumps(_chain(paths[:count]))
                                 for paths in (here, there))],
        check=False).returncode == 0 for count in range(2, len(here) + 1))


def node(layer: str) -> str:
    """Return the name of a layer's node; the top one's is libvirt's."""
    return 'disk0-format' if layer == TOP else 'disk0-' + layer


def _target(layer: str) -> str:
    return 'target-' + layer


def _chain(paths: list[Path]) -> dict:
    """Return the -blockdev of the last of images, each over the one before."""
    found: dict = {}
    for index, path in enumerate(paths):
        found = {'driver': 'qcow2' if index else 'raw',
                 'file': {'driver': 'file', 'filename': str(path)},
                 **({'backing': found} if index else {})}
    return found
