# SPDX-License-Identifier: Apache-2.0
"""The place of each disk of a guest in the object tree of its QEMU.

The tree has the bus of each device and the owner of each bus, up to the
host bridge.  Unlike query-pci and bus numbers it does not depend on how
the guest has configured its bridges::

    /machine/peripheral/virtio-disk0     addr 0x00 (device 0, function 0)
        parent_bus /machine/peripheral/pci.1/pci.1
    /machine/peripheral/pci.1            addr 0x11 (device 2, function 1)
        parent_bus /machine/q35/pcie.0
    /machine/q35                         the host bridge
"""

import dataclasses
import typing

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.pagecache import listingformat

_TOP = '/machine'
_PERIPHERAL = '/machine/peripheral/'
#: Host bridges that QEMU adds to the guest's own one.
_EXTRA_HOST = 'pxb'


@dataclasses.dataclass(frozen=True)
class Device:
    """A disk of the guest.

    :ivar id: as hypervisor.base.Guest.disks() names it
    :ivar bus: one of listingformat.BUSES
    :ivar pci: as of listingformat.Disk; None if not known
    :ivar scsi: likewise
    :ivar unit: likewise
    :ivar serial: as configured, '' if none is
    """

    id: str
    bus: str = 'unknown'
    pci: tuple[tuple[int, int], ...] | None = None
    scsi: tuple[int, int] | None = None
    unit: int = 0
    serial: str = ''


def find(guest: hypervisor.Guest) -> tuple[Device, ...]:
    """Return a Device for each of the guest's disks.

    :param guest: hypervisor.base.Guest
    """
    tree = _Tree(guest)
    return tuple(tree.device(name)
                 for name in list(guest.disks().values())[
                     :4 * listingformat.MAX_DISKS])


class _Tree:
    """QEMU's objects; each property is read once."""

    def __init__(self, guest: hypervisor.Guest) -> None:
        self._guest = guest
        self._known: dict[tuple[str, str], typing.Any] = {}

    def device(self, name: str) -> Device:
        path = name if name.startswith('/') else _PERIPHERAL + name
        kind = self._text(path, 'type')
        found: dict[str, typing.Any] = {
            'id': name, 'serial': self._text(path, 'serial')}
        if kind.startswith('virtio-blk'):
            found.update(bus='virtio-blk', pci=self._own_pci(path))
        elif kind.startswith('scsi-'):
            found.update(
                bus='scsi', pci=self._pci(path),
                scsi=self._pair(path, 'channel', 'scsi-id'),
                unit=self._number(path, 'lun') or 0)
        elif kind.startswith('ide-'):
            # Linux has a SCSI host for each port, so the port is unknown.
            unit = self._number(path, 'unit')
            found.update(bus='scsi', pci=self._pci(path),
                         scsi=None if unit is None else (0, unit))
        elif kind == 'nvme':
            found.update(bus='nvme', pci=self._own_pci(path), unit=1)
        return Device(**found)

    def _own_pci(self, path: str) -> tuple[tuple[int, int], ...] | None:
        """Return the steps to a device that is a PCI function itself."""
        own = self._number(path, 'addr') is not None
        return self._pci(path) if own else None

    def _pci(self, path: str) -> tuple[tuple[int, int], ...] | None:
        """Return the steps to the controller of path, None if unknown."""
        steps: list[tuple[int, int]] = []
        at = path
        while len(steps) <= listingformat.MAX_PCI_STEPS:
            function = self._function(at)
            if function is None:
                return None
            address = self._number(function, 'addr')
            if address is None:
                return None
            steps.insert(0, (address >> 3, address & 7))
            above, _, _ = self._text(function, 'parent_bus').rpartition('/')
            if not above.startswith(_TOP + '/'):
                return None
            kind = self._text(above, 'type')
            if not kind or kind.startswith(_EXTRA_HOST):
                # the guest chooses the number of its bus
                return None
            if self._number(above, 'addr') is None:
                return tuple(steps)
            at = above
        return None

    def _function(self, path: str) -> str | None:
        """Return the PCI function that path is, is part of or is below."""
        for _ in range(listingformat.MAX_PCI_STEPS):
            above = path
            while above.startswith(_TOP + '/'):
                if self._number(above, 'addr') is not None:
                    return above
                above = above.rpartition('/')[0]
            bus = self._text(path, 'parent_bus')
            if not bus.startswith(_TOP + '/'):
                return None
            path = bus.rpartition('/')[0]
        return None

    def _pair(self, path: str, first: str,
              second: str) -> tuple[int, int] | None:
        one, two = self._number(path, first), self._number(path, second)
        return None if one is None or two is None else (one, two)

    def _number(self, path: str, name: str) -> int | None:
        value = self._get(path, name)
        if isinstance(value, int) and not isinstance(value, bool) and (
                value >= 0):
            return value
        return None

    def _text(self, path: str, name: str) -> str:
        value = self._get(path, name)
        return value if isinstance(value, str) else ''

    def _get(self, path: str, name: str) -> typing.Any:
        key = path, name
        if key not in self._known:
            try:
                self._known[key] = self._guest.qmp('qom-get', path=path,
                                                   property=name)
            except hypervisor_errors.QmpError:
                self._known[key] = None
        return self._known[key]
