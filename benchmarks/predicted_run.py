# SPDX-License-Identifier: Apache-2.0
"""A measured migration, and what is known just before it begins.

That is found out as nova-compute and the agent do it: a survey of the
guest that runs, and a probe of the storage.
"""

import dataclasses
import os
from typing import Any

from benchmarks import options
from benchmarks import run
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import survey
from nova_dedup_migrate.images import rates
from nova_dedup_migrate.planner import facts
from nova_dedup_migrate.planner import working_set

#: As of [dedup_migrate] in nova.conf.
_PROBE_S = 0.5
_PROBE_BYTES = 64 << 20
#: QEMU's own.
_DOWNTIME_MS = 300


@dataclasses.dataclass(frozen=True)
class Cell:
    """A guest and a link, as they are named in the table."""

    name: str
    options: options.Options


def cells(memory: int, links: list[int]) -> list[Cell]:
    """What is migrated.

    :param memory: MiB
    :param links: Mbit/s
    """
    guests = {
        'idle, 60 %': {'workload': 'idle', 'duplicates': 60},
        'idle, 80 %': {'workload': 'idle', 'duplicates': 80},
        'read': {'workload': 'read', 'read_rate': 20},
        'anon-writer': {'workload': 'anon-writer', 'write_rate': 4,
                        'wss': 48, 'duplicates': 50},
        'pagecache-writer': {'workload': 'pagecache-writer',
                             'write_rate': 5, 'duplicates': 60},
        'mixed': {'workload': 'mixed', 'write_rate': 4, 'read_rate': 8,
                  'wss': 32, 'duplicates': 50},
        'small-files': {'workload': 'small-files', 'write_rate': 4,
                        'duplicates': 60},
        'slow storage': {'workload': 'idle', 'storage': 'slow',
                         'storage_rate': 10},
    }
    return [
        Cell(f'{name}, {link}',
             options.Options(memory=memory, link=link, wire=1000,
                             timeout=180, **given))
        for link in links
        for name, given in guests.items()
    ]


def facts_of(record: dict) -> facts.Facts:
    """Facts as dataclasses.asdict() and JSON have left them."""
    guest = facts.Guest(**record['guest'])
    return facts.Facts(
        guest=dataclasses.replace(guest, windows=tuple(
            working_set.Window(**one) for one in guest.windows)),
        disks=tuple(facts.Disk(**disk) for disk in record['disks']),
        source=facts.End(**record['source']),
        destination=facts.End(**record['destination']),
        link=facts.Link(**record['link']),
        options=facts.Options(**record['options']))


class PredictedRun(run.Run):
    """Runs a run.Plan once, and finds out before what there is to know.

    :ivar known: facts.Facts, of the moment before the migration
    """

    known: facts.Facts | None = None

    def _migrate(self) -> None:
        self.known = self._gather()
        super()._migrate()

    def _gather(self) -> facts.Facts:
        asked = self._options
        found = survey.survey(self._source)
        hints = found.hints.pages if found.hints is not None else 0
        in_use = found.in_use
        return facts.Facts(
            guest=facts.Guest(
                memory=asked.memory << 20, resident=asked.memory << 20,
                hint_pages=hints, dirty_rate=found.dirty_rate or 0.0,
                disk_write_rate=found.disk_write_rate,
                in_use=in_use.bytes if in_use is not None else None,
                in_use_error=in_use.error if in_use is not None else 0.0),
            disks=(facts.Disk('disk', 'vda', facts.SHARED, size=1 << 30,
                              storage_rate=self._storage_rate(),
                              **_hints(found.disk_hints)),),
            source=facts.End('source', True),
            destination=facts.End('destination', True),
            link=facts.Link(configured=asked.link * 125e3 or None,
                            measured=asked.wire * 125e3 or None),
            options=facts.Options(
                downtime_ms=_DOWNTIME_MS, postcopy=asked.postcopy,
                auto_converge=asked.auto_converge,
                multifd_channels=asked.multifd))

    def _storage_rate(self) -> float | None:
        if self._options.storage == 'slow':
            # The limit is in the destination's QEMU, where no probe is.
            return self._options.storage_rate * 1e6
        file = os.open(self._storage.disk.path, os.O_RDONLY)
        try:
            return rates.measure(file, _PROBE_BYTES, _PROBE_S)
        finally:
            os.close(file)


def _hints(counted: tuple[statistics.DiskHints, ...] | None
           ) -> dict[str, Any]:
    """Return the fields of facts.Disk that say how many hints hold."""
    if counted is None:
        return {}
    sampled = sum(one.sampled for one in counted)
    return {'hint_pages': sum(one.pages for one in counted),
            'valid_share': (sum(one.valid for one in counted) / sampled
                            if sampled else None)}
