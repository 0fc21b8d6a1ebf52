# SPDX-License-Identifier: Apache-2.0
"""Facts for tests."""

import dataclasses

from nova_dedup_migrate.planner import facts

GIB = 1 << 30
MB = 1e6


def disk(**changes):
    return facts.Disk(**{'device': 'virtio-disk0', 'target': 'vda',
                         'copy': facts.SHARED, 'size': 20 * GIB,
                         'storage_rate': 100 * MB, **changes})


def make(guest=(), disks=None, link=(), options=(), **changes):
    """Return Facts: 4 GiB, 3 of them in use, 1.5 on disk; 100 Mbit/s."""
    made = facts.Facts(
        guest=facts.Guest(memory=4 * GIB, resident=3 * GIB,
                          hint_pages=3 * GIB // 2 // 4096, dirty_rate=0.0),
        disks=(disk(),), source=facts.End('compute1', True, '10.0.13'),
        destination=facts.End('compute2', True, '10.0.13'),
        link=facts.Link(configured=12.5 * MB, measured=12.5 * MB),
        options=facts.Options())
    return dataclasses.replace(
        made, guest=dataclasses.replace(made.guest, **dict(guest)),
        disks=made.disks if disks is None else disks,
        link=dataclasses.replace(made.link, **dict(link)),
        options=dataclasses.replace(made.options, **dict(options)),
        **changes)
