# SPDX-License-Identifier: Apache-2.0
"""Kinds of storage the destination can have.

shared   both QEMUs open the same image
own      the destination has a copy from before the guest started, which a
         mirror job over NBD keeps up to date (the guest's writes only),
         as block migration does after its first pass
slow     shared, behind a throttle node
failing  shared, behind a blkdebug node that fails every read
"""

import dataclasses
from pathlib import Path

from guests.synthetic.disk import DataDisk
from testkit import direct
from testkit import spec
from testkit.guest import Guest

DISK = 'disk0'
BASE = DISK + '-base'
_GROUP = 'storage'
_EXPORT = 'own-copy'
_JOB = 'mirror-' + DISK


class Storage:
    """Shared storage; the other kinds change parts of this.

    :param disk: the source's
    :param device: see spec.Disk
    :param directory: for what belongs to the destination
    """

    #: what the source is told when it is armed
    copy = 'shared'

    def __init__(
        self, disk: DataDisk, device: str, directory: Path, rate: int
    ) -> None:
        self.disk = disk
        self.device = device
        self.directory = directory
        self.rate = rate

    def source_disk(self) -> spec.Disk:
        return spec.Disk(
            path=self.disk.path,
            format=self.disk.format,
            device=self.device,
            id=DISK,
        )

    def destination_disk(self) -> spec.Disk:
        return self.source_disk()

    def destination_args(self) -> tuple[str, ...]:
        """Further command line of the destination."""
        return ()

    def connect(
        self, source: Guest, destination: direct.DirectGuest
    ) -> None:
        """Before the guest runs; the destination is not started yet."""

    def switch_over(self, source: Guest, timeout: float) -> None:
        """The guest stands still at the source and will not go on there."""

    def arrived(self, destination: Guest) -> None:
        """The guest is at the destination, not running yet: make the
        storage good, the migration is over."""

    def disconnect(self, source: Guest) -> None:
        """The migration was given up; the source goes on alone."""

    def _behind(self, filter: dict | None) -> spec.Disk:
        """The source's disk, each layer's file seen through a filter."""
        nodes = []
        if self.disk.base is not None:
            nodes += self._layer(BASE, filter)
        return spec.Disk(
            device=self.device,
            id=DISK,
            blockdev=(*nodes, *self._layer(DISK, filter)),
        )

    def _layer(self, name: str, filter: dict | None) -> list[dict]:
        """Nodes of one layer of the backing chain, children first."""
        path = self.disk.base if name == BASE else self.disk.path
        assert path is not None
        nodes = [
            {
                'driver': 'file',
                'node-name': name + '-file',
                'filename': str(path),
                **self._common(name),
            }
        ]
        if filter is not None:
            nodes.append(self._filter(name, filter))
        return [*nodes, self._format(name, nodes[-1]['node-name'])]

    def _common(self, name: str) -> dict:
        return {
            'cache': {'direct': True, 'no-flush': False},
            'read-only': name == BASE,
        }

    def _filter(self, name: str, filter: dict) -> dict:
        child = 'image' if filter['driver'] == 'blkdebug' else 'file'
        return {
            **filter,
            child: name + '-file',
            'node-name': name + '-filter',
            **self._common(name),
        }

    def _format(self, name: str, file: str) -> dict:
        node = {
            'driver': 'raw' if name == BASE else self.disk.format,
            'node-name': name + '-format',
            'file': file,
            **self._common(name),
        }
        if name != BASE and self.disk.base is not None:
            node['backing'] = BASE + '-format'
        return node


class OwnCopy(Storage):
    copy = 'own'

    def __init__(self, *args, **keywords) -> None:
        super().__init__(*args, **keywords)
        self.own = self.disk.own_copy(self.directory)

    def destination_disk(self) -> spec.Disk:
        return dataclasses.replace(self.source_disk(), path=self.own.path)

    def connect(
        self, source: Guest, destination: direct.DirectGuest
    ) -> None:
        destination.start_incoming()
        path = destination.migration_socket.with_name('nbd.sock')
        address = {'type': 'unix', 'path': str(path)}
        destination.qmp(
            'nbd-server-start',
            addr={'type': 'unix', 'data': {'path': str(path)}},
        )
        destination.qmp(
            'block-export-add',
            type='nbd',
            id=_EXPORT,
            name=DISK,
            writable=True,
            **{'node-name': DISK + '-format'},
        )
        source.qmp(
            'blockdev-add',
            driver='nbd',
            server=address,
            export=DISK,
            **{'node-name': _EXPORT},
        )
        source.qmp(
            'blockdev-mirror',
            device=DISK + '-format',
            target=_EXPORT,
            sync='none',
            **{'job-id': _JOB, 'copy-mode': 'write-blocking'},
        )

    def _end_job(self, source: Guest, timeout: float) -> None:
        mark = source.events.mark()
        source.qmp('block-job-cancel', device=_JOB)
        source.events.wait(
            'JOB_STATUS_CHANGE',
            mark,
            timeout,
            lambda data: data == {'id': _JOB, 'status': 'null'},
        )

    def switch_over(self, source: Guest, timeout: float) -> None:
        self._end_job(source, timeout)

    def disconnect(self, source: Guest) -> None:
        if any(job['id'] == _JOB for job in source.qmp('query-jobs')):
            self._end_job(source, 30.0)

    def arrived(self, destination: Guest) -> None:
        destination.qmp('nbd-server-stop')


class Slow(Storage):
    def destination_disk(self) -> spec.Disk:
        return self._behind({'driver': 'throttle', 'throttle-group': _GROUP})

    def destination_args(self) -> tuple[str, ...]:
        return (
            '-object',
            f'throttle-group,id={_GROUP},x-bps-read={self.rate}',
        )

    def arrived(self, destination: Guest) -> None:
        destination.qmp(
            'qom-set',
            path=f'/objects/{_GROUP}',
            property='limits',
            value={'bps-read': 0},
        )


class Failing(Storage):
    """The fault comes after the image was opened and goes before the
    guest runs, so that only the migration meets it."""

    _FAULT = {
        'driver': 'blkdebug',
        'inject-error': [{'event': 'none', 'iotype': 'read', 'errno': 5}],
    }

    def destination_disk(self) -> spec.Disk:
        return self._behind(None)

    def _layers(self) -> list[str]:
        return [DISK] if self.disk.base is None else [BASE, DISK]

    def connect(
        self, source: Guest, destination: direct.DirectGuest
    ) -> None:
        destination.start_incoming()
        for name in self._layers():
            destination.qmp('blockdev-add', **self._filter(name, self._FAULT))
        self._read_through(destination, '-filter')

    def arrived(self, destination: Guest) -> None:
        self._read_through(destination, '-file')

    def _read_through(self, destination: Guest, node: str) -> None:
        for name in self._layers():
            destination.qmp(
                'blockdev-reopen', options=[self._format(name, name + node)]
            )


KINDS = {
    'shared': Storage,
    'own': OwnCopy,
    'slow': Slow,
    'failing': Failing,
}
