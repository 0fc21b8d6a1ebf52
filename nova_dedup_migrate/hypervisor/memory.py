# SPDX-License-Identifier: Apache-2.0
"""Where the RAM of a guest is."""

import dataclasses

from nova_dedup_migrate.hypervisor import base
from nova_dedup_migrate.hypervisor import decode

GIB = 1 << 30
PAGE = 4096


@dataclasses.dataclass(frozen=True)
class RamRange:
    """Guest physical addresses [start, start + size) that are RAM."""

    start: int
    size: int


def boot_ranges(machine: str, size: int) -> tuple[RamRange, ...]:
    """RAM of a PC without memory devices.

    RAM that does not fit below the PCI hole goes on at 4 GiB.  Source:
    pc_init1() in hw/i386/pc_piix.c, pc_q35_init() in hw/i386/pc_q35.c.

    :param machine: QEMU's name of the type, as pc-q35-10.0 or pc
    :param size: bytes
    """
    if 'q35' in machine:
        below = 2 * GIB if size >= 0xb0000000 else size
    else:
        below = 3 * GIB if size >= 0xe0000000 else size
    ranges = [RamRange(0, below)]
    if size > below:
        ranges.append(RamRange(4 * GIB, size - below))
    return tuple(ranges)


def ranges(guest: base.Guest) -> tuple[RamRange, ...]:
    """Find the RAM of a guest, plugged memory devices included."""
    machine = decode.text(
        guest.qmp('qom-get', path='/machine', property='type'), 'type')
    summary = decode.mapping(guest.qmp('query-memory-size-summary'),
                             'query-memory-size-summary')
    found = list(boot_ranges(
        machine, decode.count(summary['base-memory'], 'base-memory')))
    for device in guest.qmp('query-memory-devices'):
        data = device['data']
        if device['type'] in ('dimm', 'nvdimm') and data.get('addr'):
            found.append(RamRange(data['addr'], data['size']))
    return tuple(found)
