# SPDX-License-Identifier: Apache-2.0
"""Metrics of an engine for Prometheus.

Labels are names of hosts, states and the like, never of servers or
projects.  What the database has is read when Prometheus reads it; what
happens is counted by the engine that got the report.
"""

from __future__ import annotations

from collections.abc import Iterable
import math
import time
from typing import Any

from oslo_log import log as logging
import prometheus_client
from prometheus_client import core
from prometheus_client import registry
import sqlalchemy as sa

from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import drains
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import models
from nova_dedup_migrate.planner import plan
from nova_dedup_migrate.reports import report as reports

LOG = logging.getLogger(__name__)

_PREFIX = 'dedup_migrate_'
_SECONDS = (1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600, math.inf)
_DOWNTIMES = (.01, .03, .1, .2, .3, .5, 1, 2, 5, 10, 30, math.inf)
_RATIOS = (.25, .5, .75, .9, 1.1, 1.25, 1.5, 2, 4, math.inf)
_STRATEGIES = (plan.STOCK, plan.SHARED_NAS, plan.PAGE_CACHE, plan.SNAPSHOT,
               plan.COMPRESS)


class Metrics:
    """:ivar registry: what Prometheus reads"""

    def __init__(self) -> None:
        self.registry = registry.CollectorRegistry()

        def counter(name: str, text: str, *labels: str
                    ) -> prometheus_client.Counter:
            return prometheus_client.Counter(_PREFIX + name, text, labels,
                                             registry=self.registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]
                      ) -> prometheus_client.Histogram:
            return prometheus_client.Histogram(
                _PREFIX + name, text, buckets=buckets,
                registry=self.registry)

        self._ended = counter('migrations', 'Live migrations that ended.',
                              'outcome', 'strategy')
        self._fallbacks = counter(
            'fallbacks', 'Live migrations that were ordinary ones for a '
            'reason.')
        self._bytes = counter('bytes', 'Guest memory by the path it took.',
                              'path')
        self._digests = counter(
            'digest_failures', 'Pages whose bytes on disk had another '
            'digest.')
        self.takeovers = counter(
            'lease_takeovers', 'Drains taken over from another engine.')
        self._time = histogram('migration_duration_seconds',
                               'Of completed live migrations.', _SECONDS)
        self._downtime = histogram('migration_downtime_seconds',
                                   'Of completed live migrations.',
                                   _DOWNTIMES)
        self._error = histogram('prediction_error_ratio',
                                'Duration, divided by the predicted one.',
                                _RATIOS)
        self._lag = prometheus_client.Gauge(
            _PREFIX + 'report_lag_seconds', 'Age of the last progress when '
            'it arrived.', registry=self.registry)

    def report(self, report: reports.Report, ended: bool) -> None:
        """Take note of a report that was stored.

        :param ended: whether the migration was not known to have ended
        """
        if report.progress is not None:
            self._lag.set(max(0.0, time.time() - report.progress.at))
        if not ended:
            return
        strategy = (report.strategy_used
                    if report.strategy_used in _STRATEGIES else 'other')
        self._ended.labels(report.outcome, strategy).inc()
        if report.fallback_reason:
            self._fallbacks.inc()
        for path in ('peer', 'zero', 'storage'):
            self._bytes.labels(path).inc(
                max(0, getattr(report.bytes, path)))
        self._digests.inc(max(0, report.digest_failures))
        if report.outcome != 'completed':
            return
        if report.total_time is not None:
            self._time.observe(report.total_time)
        if report.downtime_ms is not None:
            self._downtime.observe(report.downtime_ms / 1000)
        error = report.prediction_error
        if error is not None and error.time_percent is not None:
            self._error.observe(1 + error.time_percent / 100)

    def watch(self, database: facade.Database, agent_timeout: float
              ) -> None:
        """Add what the database has."""
        self.registry.register(_Stored(database, agent_timeout))


class _Stored(registry.Collector):
    """Gauges of the database; each engine shows the same."""

    def __init__(self, database: facade.Database, agent_timeout: float
                 ) -> None:
        self._database = database
        self._agent_timeout = agent_timeout

    def describe(self) -> Iterable[Any]:
        return []

    def collect(self) -> Iterable[Any]:
        try:
            return list(self._collect())
        except Exception:
            LOG.exception('The metrics of the database are missing')
            return []

    def _collect(self) -> Iterable[Any]:
        m, d, s, h, c = (models.migrations, models.drains,
                         models.drain_servers, models.hosts, models.claims)
        with self._database.read() as session:
            now = float(session.scalar(sa.select(clock.now())) or 0.0)
            running = session.scalar(
                sa.select(sa.func.count()).select_from(m).where(
                    m.c.state == 'running')) or 0
            of_drains = dict(session.execute(
                sa.select(d.c.state, sa.func.count()).where(
                    d.c.active_host.is_not(None))
                .group_by(d.c.state)).all())
            of_servers = dict(session.execute(
                sa.select(s.c.state, sa.func.count())
                .join(d, d.c.id == s.c.drain_id)
                .where(d.c.active_host.is_not(None))
                .group_by(s.c.state)).all())
            oldest = session.scalar(
                sa.select(sa.func.min(s.c.updated_at))
                .join(d, d.c.id == s.c.drain_id)
                .where(d.c.active_host.is_not(None),
                       s.c.state.in_(drains.WAITING)))
            seen = session.execute(sa.select(
                h.c.name, h.c.seen_at)).all()
            used = dict(session.execute(
                sa.select(c.c.host, sa.func.count())
                .group_by(c.c.host)).all())
        yield _gauge('migrations_running', 'Live migrations under way.',
                     running)
        yield _gauges('drains', 'Drains under way.', 'state',
                      {state: of_drains.get(state, 0)
                       for state in drains.ACTIVE})
        yield _gauges('drain_servers', 'Servers of these.', 'state',
                      {state: of_servers.get(state, 0)
                       for state in drains.SERVER_STATES})
        yield _gauge('drain_oldest_wait_seconds',
                     'For how long a server of a drain has waited.',
                     0.0 if oldest is None else now - oldest)
        yield _gauges('host_slots_used', 'Servers that leave a host.',
                      'host', {name: used.get(name, 0)
                               for name, _ in seen})
        yield _gauges('host_agent_up', 'Whether the agent reports.', 'host',
                      {name: int((at or 0.0) > now - self._agent_timeout)
                       for name, at in seen})


def _gauge(name: str, text: str, value: float) -> Any:
    return core.GaugeMetricFamily(_PREFIX + name, text, value=value)


def _gauges(name: str, text: str, label: str, values: dict[str, float]
            ) -> Any:
    made = core.GaugeMetricFamily(_PREFIX + name, text, labels=[label])
    for key, value in values.items():
        made.add_metric([key], value)
    return made
