# SPDX-License-Identifier: Apache-2.0
"""Makes the estimates that the API has stored."""

from __future__ import annotations

from collections.abc import Mapping
import concurrent.futures
import json
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging
import sqlalchemy as sa

from nova_dedup_migrate import errors as base_errors
from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import estimates as stored
from nova_dedup_migrate.db import facade
from nova_dedup_migrate.db import models
from nova_dedup_migrate.engine import blockers as blocking
from nova_dedup_migrate.engine import cloud as clouds
from nova_dedup_migrate.engine import errors
from nova_dedup_migrate.engine import estimates
from nova_dedup_migrate.engine import overheads
from nova_dedup_migrate.planner import plan

LOG = logging.getLogger(__name__)

_CHECKS = 8


class Estimator:
    """:param cloud: engine.cloud.Cloud
    :param conf: with conf.engine
    """

    def __init__(self, database: facade.Database, cloud: clouds.Cloud,
                 conf: cfg.ConfigOpts) -> None:
        self._database = database
        self._cloud = cloud
        self._conf = conf

    def one(self) -> bool:
        """Make the oldest estimate that waits; return whether one did."""
        row = self._database.retrying(stored.claim)
        if row is None:
            return False
        try:
            result = self._make(row)
        except base_errors.DedupMigrateError as error:
            self._finish(row, None, str(error))
        except Exception:
            LOG.exception('Estimate %s failed', row['id'])
            self._finish(row, None, 'the engine failed; see its log')
        else:
            self._finish(row, json.dumps(result, allow_nan=False), '')
        return True

    def _finish(self, row: Mapping[str, Any], result: str | None,
                error: str) -> None:
        self._database.retrying(lambda session: stored.finish(
            session, row['id'], result, error))

    def _make(self, row: Mapping[str, Any]) -> dict[str, Any]:
        if row['server_id'] is not None:
            server = self._cloud.server(row['server_id'])
            if row['project_id'] not in (None, server.project_id):
                # As if there were none: the caller may not know of it.
                raise errors.NoSuchServer(server_id=row['server_id'])
            servers, host = [server], server.host
        else:
            host = row['host']
            servers = self._cloud.servers(host)
            if not servers and self._cloud.service(host) is None:
                raise errors.CloudRefused(
                    doing='show host %s' % host, status=404,
                    reason='it has no nova-compute of that name')
        service = self._cloud.service(host)
        known = self._host(host)
        finder = blocking.Blockers(self._cloud)
        with concurrent.futures.ThreadPoolExecutor(_CHECKS) as pool:
            blockers = list(pool.map(
                lambda server: finder.find(server, service), servers))
        found = estimates.ordered(
            [estimates.estimate(server, known, why)
             for server, why in zip(servers, blockers, strict=True)],
            'longest')
        if row['project_id'] is not None:
            found = [_without_hosts(one, host) for one in found]
        return {'servers': found, 'total_time': estimates.total(
            [one for one in found if not one['blockers']], known.slots,
            self._overhead())}

    def _overhead(self) -> plan.Band:
        with self._database.read() as session:
            return overheads.band(session)

    def _host(self, name: str) -> estimates.HostFacts:
        options = self._conf.engine
        table = models.hosts
        with self._database.read() as session:
            row = session.execute(sa.select(table).where(
                table.c.name == name)).mappings().one_or_none()
            patched = any(
                facts.get('patched') for facts in session.scalars(
                    sa.select(table.c.facts).where(
                        table.c.name != name, table.c.seen_at
                        > clock.now() - options.agent_timeout).limit(64)))
        return estimates.host_facts(None if row is None else dict(row), {},
                                    options, patched)


def _without_hosts(one: Mapping[str, Any], host: str) -> dict[str, Any]:
    """Return an estimate for somebody who may not know of hosts."""
    return {**one, 'blockers': [
        {**blocker, 'message': blocker['message'].replace(
            host, 'its host')} for blocker in one['blockers']],
        'explanation': [text.replace(host, 'its host')
                        for text in one['explanation']]}
