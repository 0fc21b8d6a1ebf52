# SPDX-License-Identifier: Apache-2.0
"""Published figures of Jo, Gustafsson, Son and Egger: Efficient Live
Migration of Virtual Machines Using Shared Storage, VEE'13.

Theirs: Xen 4.1, 2 GB guest, 1 GbE, NFS.  Times in seconds.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Row:
    """Table 2: one application at one rate, unmodified and optimised.

    *_down: downtime in seconds
    """

    stock_s: float
    dedup_s: float
    stock_down: float
    dedup_down: float

    @property
    def ratio(self) -> float:
        return self.dedup_s / self.stock_s


#: Table 2: application -> rate -> Row
APPLICATIONS = {
    'RDesk I': {
        'unlimited': Row(61.0, 41.2, 1.02, 7.95),
        '200/500': Row(94.6, 51.0, 0.59, 2.50),
        '100/250': Row(175.8, 76.3, 0.57, 0.97),
    },
    'RDesk II': {
        'unlimited': Row(53.2, 35.2, 1.04, 1.13),
        '200/500': Row(83.3, 45.9, 1.05, 1.16),
        '100/250': Row(165.4, 90.2, 1.01, 1.05),
    },
    'Admin I': {
        'unlimited': Row(82.5, 52.6, 6.96, 2.33),
        '200/500': Row(171.4, 72.6, 3.13, 0.33),
        '100/250': Row(224.1, 96.5, 1.12, 2.43),
    },
    'Admin II': {
        'unlimited': Row(62.4, 56.8, 5.37, 5.31),
        '200/500': Row(88.8, 84.8, 7.13, 6.47),
        '100/250': Row(155.7, 147.5, 8.57, 9.06),
    },
    'File I/O I': {
        'unlimited': Row(92.6, 53.2, 19.49, 7.31),
        '200/500': Row(176.6, 69.3, 4.52, 1.02),
        '100/250': Row(127.7, 79.1, 22.81, 9.41),
    },
    'File I/O II': {
        'unlimited': Row(51.8, 54.3, 8.49, 8.09),
        '200/500': Row(85.0, 79.5, 7.35, 7.75),
        '100/250': Row(147.1, 149.5, 9.04, 9.81),
    },
}

#: Share of memory that was duplicated, in percent (Table 2, column 2)
DUPLICATES = {
    'RDesk I': 45,
    'RDesk II': 46,
    'Admin I': 18,
    'Admin II': 10,
    'File I/O I': 24,
    'File I/O II': 12,
}

#: Section 5.2: idle guest, 512 MB of duplicates at 100/500
IDLE_512MB = (165.0, 64.0)
#: Section 5.2: downtime of the worst case, 1024 MB of duplicates, unlimited
WORST_DOWNTIME = (0.55, 20.8)
