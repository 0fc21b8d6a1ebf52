# SPDX-License-Identifier: Apache-2.0
"""Identification of the guest's disks with those of QEMU.

A listing has the PCI path of the controller of each disk, the address
behind it and the serial number.  All values known on both sides have to
agree, at least the path or the serial number has to be known, and exactly
one disk has to be left on either side.  Ambiguous disks are not used.

An error here would only cost reads: the destination checks a digest.
"""

from collections.abc import Sequence

from nova_dedup_migrate.pagecache import devices as qemu
from nova_dedup_migrate.pagecache import listingformat

#: virtio-blk and ATA show a guest that much of a serial number.
_SHORT_SERIAL = 20


def match(disks: Sequence[listingformat.Disk],
          devices: Sequence[qemu.Device]
          ) -> tuple[dict[int, str], dict[int, str]]:
    """Return (ids, reasons).

    :param disks: listingformat.Disk, as the guest lists them
    :param devices: devices.Device, as QEMU has them
    :returns: by index of the guest's disk its Device.id, for those that
        were identified; and for the others the reason
    """
    ids: dict[int, str] = {}
    reasons: dict[int, str] = {}
    found = [[device for device in devices if _same(disk, device)]
             for disk in disks]
    for index, candidates in enumerate(found):
        name = disks[index].name or 'disk %d' % index
        if not candidates:
            reasons[index] = '%s matches no disk of the instance' % name
        elif len(candidates) > 1:
            reasons[index] = '%s matches %d disks of the instance' % (
                name, len(candidates))
        elif any(candidates[0] in others
                 for other, others in enumerate(found) if other != index):
            reasons[index] = ('%s is not the only disk that matches %s'
                              % (name, candidates[0].id))
        else:
            ids[index] = candidates[0].id
    return ids, reasons


def _same(disk: listingformat.Disk, device: qemu.Device) -> bool:
    """Whether they match: no value contradicts, one identifies."""
    if 'unknown' not in (disk.bus, device.bus) and disk.bus != device.bus:
        return False
    return _all((_path(disk, device), _serial(disk, device)),
                _address(disk, device))


def _all(identifying: tuple[bool | None, ...],
         address: bool | None) -> bool:
    """Combine True, False and None (not known)."""
    return (False not in (*identifying, address)) and True in identifying


def _path(disk: listingformat.Disk, device: qemu.Device) -> bool | None:
    if disk.pci is None or device.pci is None:
        return None
    return (disk.pci_domain == 0 and disk.pci_root == 0
            and disk.pci == device.pci)


def _address(disk: listingformat.Disk,
             device: qemu.Device) -> bool | None:
    if disk.bus == 'nvme' and device.bus == 'nvme':
        return disk.unit == device.unit
    if disk.scsi is None or device.scsi is None:
        return None
    return disk.scsi == device.scsi and disk.unit == device.unit


def _serial(disk: listingformat.Disk, device: qemu.Device) -> bool | None:
    if not disk.serial or not device.serial:
        return None
    return device.serial == disk.serial or (
        len(disk.serial) >= _SHORT_SERIAL
        and device.serial.startswith(disk.serial))
