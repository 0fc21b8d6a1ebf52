# SPDX-License-Identifier: Apache-2.0
"""How fast links were, from the reports of earlier migrations."""

import datetime
import threading
import typing

from oslo_log import log as logging

from nova_dedup_migrate.reports import report as reports
from nova_dedup_migrate.reports import rounds

LOG = logging.getLogger(__name__)

#: Reports that are read for it.
_RECENT = 50
#: For how long the figure of an earlier migration is used.
_AGE = datetime.timedelta(days=7)


class ReportSource(typing.Protocol):
    """operations.store.OperationStore."""

    def reports(self, limit: int | None = None) -> tuple[
            list[reports.Report], list]:
        """Return the Reports, the newest first, and what is damaged."""


class LinkHistory:
    """:param source: of reports, read when a rate is first needed"""

    def __init__(self, source: ReportSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self._rates: dict[str, tuple[datetime.datetime, float]] | None = None

    def rate(self, destination: str) -> float | None:
        """Return bytes/s of the last migration there; None: not known.

        :param destination: host, as Nova names it
        :raises StoreUnusable: the reports cannot be read
        """
        with self._lock:
            if self._rates is None:
                rates: dict[str, tuple[datetime.datetime, float]] = {}
                # the newest one last
                for report in reversed(self._source.reports(_RECENT)[0]):
                    self._learn(rates, report)
                self._rates = rates
            found = self._rates.get(destination)
        if found is None or _now() - found[0] > _AGE:
            return None
        return found[1]

    def learn(self, report: reports.Report) -> None:
        """Take the rate of a migration that has ended."""
        with self._lock:
            if self._rates is not None:
                self._learn(self._rates, report)

    @staticmethod
    def _learn(rates: dict[str, tuple[datetime.datetime, float]],
               report: reports.Report) -> None:
        rate = rounds.link_rate(report.rounds)
        if report.outcome == 'completed' and rate and report.finished_at:
            rates[report.destination] = report.finished_at, rate


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.timezone.utc)
