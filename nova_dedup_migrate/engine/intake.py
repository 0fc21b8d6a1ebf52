# SPDX-License-Identifier: Apache-2.0
"""What agents send: the methods of rpc.engine_api.EngineAPI.

A call returns when the database has what it brought; so an agent that
gets no answer sends it again, and may do so as often as it likes.

An agent may report only what its host takes part in.  The report has to
name the host as source, as reports are kept there, and Nova must not know
of another source.
"""

from __future__ import annotations

import json
from typing import Any

from oslo_log import log as logging
import oslo_messaging as messaging
from sqlalchemy import orm

from nova_dedup_migrate.db import errors as db_errors
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import hosts
from nova_dedup_migrate.db import migrations
from nova_dedup_migrate.engine import errors
from nova_dedup_migrate.engine import metrics as engine_metrics
from nova_dedup_migrate.engine import summary
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report as reports
from nova_dedup_migrate.rpc import objects
from nova_dedup_migrate.rpc import replica_objects  # noqa: F401 registers

LOG = logging.getLogger(__name__)


class Intake:
    """:param database: facade.Database
    :param metrics: metrics.Metrics
    """

    target = messaging.Target(version='1.0')

    def __init__(self, database: facade.Database,
                 metrics: engine_metrics.Metrics) -> None:
        self._database = database
        self._metrics = metrics

    @messaging.expose
    @messaging.expected_exceptions(errors.ReportRefused)
    def put_report(self, ctxt: Any, report: objects.DedupReport) -> bool:
        """Store a report; return whether it was newer than what is there.
        """
        if not isinstance(report, objects.DedupReport):
            raise ValueError('the report is no DedupReport')
        found = _decoded(report)
        values = summary.of_report(found, report.revision)

        def store(session: orm.Session) -> tuple[bool, bool]:
            known = _known(session, report.migration_uuid)
            _check_ends(report, known)
            new_end = (found.outcome != 'running' and (
                known is None or known['state'] == 'running'
                or known['revision'] == 0))
            if (known is not None and found.outcome != 'running'
                    and known['state'] == 'running'):
                # The clock of the host may have been set back.
                values['revision'] = max(report.revision,
                                         known['revision'] + 1)
            return migrations.put(session, values,
                                  report.report.encode()), new_end

        stored, ended = self._database.retrying(store)
        if stored:
            self._metrics.report(found, ended)
        return stored

    @messaging.expose
    def put_host(self, ctxt: Any, host: objects.DedupHostReport) -> bool:
        """Store what is known of a host."""
        if not isinstance(host, objects.DedupHostReport):
            raise ValueError('the argument is no DedupHostReport')
        facts = _plain(host)
        name = facts.pop('host')
        self._database.retrying(
            lambda session: hosts.put(session, name, facts))
        return True


def _decoded(report: objects.DedupReport) -> reports.Report:
    def refused(reason: object) -> errors.ReportRefused:
        return errors.ReportRefused(migration=report.migration_uuid,
                                    host=report.host, reason=reason)

    try:
        found = codec.structure(json.loads(report.report))
    except (ValueError, RecursionError) as error:
        raise refused('it cannot be read: %s' % str(error)[:200]
                      ) from error
    if found.migration_uuid != report.migration_uuid:
        raise refused('it is about migration %.40s' % found.migration_uuid)
    if found.source != report.host:
        raise refused('its source is %.80s' % found.source)
    if found.outcome not in reports.OUTCOMES:
        raise refused('its outcome is %.40r' % found.outcome)
    return found


def _known(session: orm.Session, uuid: str) -> Any:
    try:
        return migrations.get(session, uuid)
    except db_errors.NotFound:
        return None


def _check_ends(report: objects.DedupReport, known: Any) -> None:
    if known is not None and known['source'] not in ('', report.host):
        raise errors.ReportRefused(
            migration=report.migration_uuid, host=report.host,
            reason='the source of the migration is %s' % known['source'])


def _plain(value: Any) -> Any:
    """Return an object as dicts, lists and values."""
    if isinstance(value, objects.DedupObject):
        return {name: _plain(getattr(value, name)) for name in value.fields}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value
