# SPDX-License-Identifier: Apache-2.0
"""What clients call over the message bus.

nova_dedup_migrate.backups.api has the versions.
"""

from __future__ import annotations

from typing import Any

import oslo_messaging as messaging
from oslo_utils import timeutils

from cinder_backup_assist import errors
from cinder_backup_assist import policy as assist_policy
from cinder_backup_assist.service import metrics as service_metrics
from cinder_backup_assist.service import tickets as service_tickets
from cinder_backup_assist.store import backups as store_backups
from cinder_backup_assist.store import drivers
from nova_dedup_migrate.backups import objects

_REFUSALS = messaging.expected_exceptions(errors.AssistError)


class Endpoint:
    """:param host: of this daemon
    :param url: of the data port
    :param lifetime: seconds of a ticket
    """

    target = messaging.Target(version='1.0')

    def __init__(self, host: str, url: str, lifetime: float,
                 store: drivers.BackupStore, backups: store_backups.Backups,
                 tickets: service_tickets.Tickets,
                 policy: assist_policy.Policy,
                 metrics: service_metrics.Metrics) -> None:
        self._host = host
        self._url = url
        self._lifetime = lifetime
        self._store = store
        self._backups = backups
        self._tickets = tickets
        self._policy = policy
        self._metrics = metrics

    @messaging.expose
    def load(self, ctxt: Any) -> objects.DedupBackupLoad:
        return objects.DedupBackupLoad(connections=self._tickets.count(),
                                       limit=self._tickets.limit)

    @messaging.expose
    @_REFUSALS
    def find(self, ctxt: Any, request: objects.DedupBackupFindRequest
             ) -> objects.DedupBackupFindReply:
        self._check('find', request, objects.DedupBackupFindRequest)
        # before the database is read
        now = timeutils.utcnow().strftime(store_backups.TIME)
        return objects.DedupBackupFindReply(
            backups=self._backups.find(request.volume_id,
                                       request.project_id),
            # this one is up, whatever the record of its cinder-backup is
            hosts=sorted({self._host, *self._backups.hosts()}), now=now)

    @messaging.expose
    @_REFUSALS
    def open(self, ctxt: Any, request: objects.DedupBackupOpenRequest
             ) -> objects.DedupBackupTicket:
        self._check('open', request, objects.DedupBackupOpenRequest)
        try:
            chain = self._backups.chain(
                request.backup_id, request.volume_id, request.project_id)
            for backup in chain:
                layer = self._store.layer(backup)
                # Another host may have another store.
                layer.open(layer.prefix + '_metadata').close()
            ticket = self._tickets.issue(request.host, chain)
        except errors.AssistError:
            self._metrics.add('requests_refused_total')
            raise
        self._metrics.add('tickets_issued_total')
        return objects.DedupBackupTicket(url=self._url, ticket=ticket,
                                         lifetime=float(self._lifetime))

    @messaging.expose
    @_REFUSALS
    def close(self, ctxt: Any, request: objects.DedupBackupCloseRequest
              ) -> bool:
        if not isinstance(request, objects.DedupBackupCloseRequest):
            raise errors.RequestRefused(reason='it is no '
                                        'DedupBackupCloseRequest')
        return self._tickets.close(request.ticket)

    def _check(self, rule: str, request: Any, expected: Any) -> None:
        if not isinstance(request, expected):
            raise errors.RequestRefused(reason='it is no %s'
                                        % expected.__name__)
        try:
            self._policy.check(rule, request.host, request.project_id,
                               request.volume_id)
        except errors.RequestRefused:
            self._metrics.add('requests_refused_total')
            raise
