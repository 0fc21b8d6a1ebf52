# SPDX-License-Identifier: Apache-2.0
"""What Akiyama, Hirofuchi, Takano and Honiden published (CloudCom'13).

Table II: memory that was transferred, MB, original and proposed, by workload
and Mbit/s; an idle guest, of which only the difference is told.
"""

from benchmarks.page_cache import cells

TRANSFERRED = {
    (cells.WEB.name, 100): (487, 110),
    (cells.WEB.name, 50): (498, 110),
    (cells.DATABASE.name, 100): (440, 142),
    (cells.DATABASE.name, 50): (415, 139),
}
IDLE_SAVES = 45
