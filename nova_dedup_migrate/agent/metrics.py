# SPDX-License-Identifier: Apache-2.0
"""Metrics of the live migrations that leave this host, for Prometheus.

They are read from the operations when Prometheus reads them.  The label
instance_uuid is there only while an instance migrates, so there are never
more of them than live migrations.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from typing import Protocol

from oslo_log import log as logging
from prometheus_client import core
from prometheus_client import registry

from nova_dedup_migrate import errors
from nova_dedup_migrate.reports import report as reports

LOG = logging.getLogger(__name__)

_PREFIX = 'dedup_migrate_'
#: Reports that are looked at: those that run are among the newest.
_NEWEST = 100
_LABELS = ['instance_uuid', 'destination']


class Source(Protocol):
    """operations.store.OperationStore."""

    def reports(self, limit: int | None = None) -> tuple[
            list[reports.Report], list]:
        """Return the Reports, the newest first, and what is damaged."""


class Outbox(Protocol):
    """outbox.Outbox."""

    @property
    def waiting(self) -> int:
        """How many reports no engine has got yet."""


class Metrics(registry.Collector):
    """:param outbox: None if reports are not sent"""

    def __init__(self, source: Source, outbox: Outbox | None) -> None:
        self._source = source
        self._outbox = outbox
        self.registry = registry.CollectorRegistry()
        self.registry.register(self)

    def describe(self) -> Iterable[Any]:
        return []

    def collect(self) -> Iterable[Any]:
        """Yield the families of metrics."""
        gauges = {name: core.GaugeMetricFamily(_PREFIX + name, text,
                                               labels=_LABELS)
                  for name, text in (
                      ('data_remaining_bytes', 'Memory and disks that the '
                       'destination lacks.'),
                      ('dirty_rate_bytes', 'Bytes per second the guest '
                       'writes to memory.'),
                      ('transfer_rate_bytes', 'Bytes per second on the '
                       'link.'),
                      ('eta_seconds', 'Predicted time left.'))}
        try:
            found = self._source.reports(_NEWEST)[0]
        except errors.DedupMigrateError as error:
            LOG.warning('There are no metrics of migrations: %s', error)
            found = []
        for report in found:
            if report.outcome == 'running':
                for name, value in _values(report).items():
                    gauges[name].add_metric(
                        [report.instance_uuid, report.destination], value)
        yield from gauges.values()
        if self._outbox is not None:
            yield core.GaugeMetricFamily(
                _PREFIX + 'report_outbox', 'Reports that no engine of the '
                'controller has got yet.', value=self._outbox.waiting)


def _values(report: reports.Report) -> dict[str, float]:
    made: dict[str, float] = {}
    progress = report.progress
    if progress is not None:
        left = [one for one in (progress.memory_remaining,
                                progress.disk_remaining)
                if one is not None]
        if left:
            made['data_remaining_bytes'] = sum(left)
        if progress.seconds_left is not None:
            made['eta_seconds'] = progress.seconds_left
    if report.rounds:
        made['dirty_rate_bytes'] = report.rounds[-1].dirty_rate
        made['transfer_rate_bytes'] = report.rounds[-1].link_rate
    return made
