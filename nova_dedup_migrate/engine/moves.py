# SPDX-License-Identifier: Apache-2.0
r"""One server of a drain, from the queue to another host.

::

    queued ---> submitting ---> migrating ---> verifying ---> moved
      ^   \         |               |              |
      |    +--------+---------------+--------------+--> stopped
      |             |               |
      +-- retry_wait <--------------+--> failed

submitting is written before Nova gets the request, with what Nova has of
the server at that time: its migrations and the IDs of its requests.  An
engine that finds a server in this state, its own or that of an engine
that was killed, never repeats the request.  It looks for a migration or a
request that was not there before:

* there is one: it is ours, and is followed;
* there is none, and submit_grace has passed since: Nova's API notes a
  request before it answers it, so none has arrived.  The server goes back
  to the queue.

A server has moved if Nova's migration has completed and Nova has the
server on another host.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import time
from typing import Any

from oslo_config import cfg
from oslo_log import log as logging

from nova_dedup_migrate.db import clock
from nova_dedup_migrate.db import drains
from nova_dedup_migrate.engine import cloud as clouds
from nova_dedup_migrate.engine import errors
from nova_dedup_migrate.engine import records as recording

LOG = logging.getLogger(__name__)

LIVE = 'live-migration'
COLD = 'migrate'
STOP = 'stop'
_ABORTED = 'its migration is being aborted'
#: Kind of the migration that an action makes.
_KINDS = {LIVE: clouds.LIVE, COLD: clouds.COLD}
#: Shares of the time of a lease: for which it has to hold when a request
#: is sent, and after which the request is not sent any more.
_LEFT = 0.4
_LATE = 0.2


@dataclasses.dataclass(frozen=True)
class View:
    """What Nova has, at one time.

    :ivar now: of the database
    :ivar servers: on the host, by ID
    :ivar migrations: from the host, by server, the oldest first
    """

    now: float
    servers: Mapping[str, clouds.Server]
    migrations: Mapping[str, Sequence[clouds.Migration]]


class Moves:
    """Moves the servers of one drain.

    :param records: records.Records
    :param cloud: engine.cloud.Cloud
    :param conf: with conf.engine
    """

    def __init__(self, records: recording.Records, cloud: clouds.Cloud,
                 conf: cfg.ConfigOpts) -> None:
        self._records = records
        self._cloud = cloud
        self._options = conf.engine

    def submit(self, row: Mapping[str, Any], host: str, most: int,
               view: View) -> bool:
        """Send the request that moves a server; return whether it has a slot.

        :param most: slots of the host
        :raises LeaseLost: another engine owns the drain; nothing was sent
        """
        server_id, action = row['server_id'], row['action']
        try:
            before = {
                'migrations': [one.uuid for one
                               in view.migrations.get(server_id, ())],
                'requests': self._cloud.requests(server_id, action)}
        except errors.CloudUnavailable as error:
            LOG.warning('Server %(server)s of drain %(drain)s waits: '
                        '%(error)s', {
                            'server': server_id, 'error': error,
                            'drain': self._records.drain_id})
            return False

        def write(writer: recording.Writer) -> bool:
            if not writer.claim(host, server_id, most):
                return False
            return writer.server(
                row, state=drains.SUBMITTING, submitted_at=view.now,
                started_at=row['started_at'] or view.now, before=before,
                migration_uuid=None, reason='', tries=row['tries'] + 1)

        began = time.monotonic()
        if not self._records.write(write,
                                   _LEFT * self._options.lease_time):
            return False
        row = {**row, 'state': drains.SUBMITTING,
               'tries': row['tries'] + 1}
        if time.monotonic() - began > _LATE * self._options.lease_time:
            # The lease may be over; whoever owns it now decides.
            return True
        self._send(row, action)
        return True

    def _send(self, row: Mapping[str, Any], action: str) -> None:
        server_id = row['server_id']
        send = {LIVE: self._cloud.live_migrate, COLD: self._cloud.migrate,
                STOP: self._cloud.stop}[action]
        try:
            send(server_id)
        except errors.CloudRefused as error:
            self._failed(row, str(error))
            return
        except errors.CloudUnavailable as error:
            message = ('It is not known whether Nova has got the request: '
                       '%s' % error)
            self._records.write(
                lambda writer: writer.event(message, server_id))
            return
        self._records.write(lambda writer: (
            writer.server(row, state=drains.MIGRATING),
            writer.event('Requested: %s' % action, server_id)))

    def follow(self, row: Mapping[str, Any], view: View) -> None:
        """Take note of what has become of a server in flight.

        :raises CloudUnavailable: Nova does not answer
        """
        if row['action'] == STOP:
            self._follow_stop(row, view)
            return
        found = self._migration(row, view)
        if found is None:
            self._without_migration(row, view)
        elif found.status in clouds.FAILED:
            self._failed(row, "Nova's migration %s has status %s"
                         % (found.uuid, found.status), found)
        elif found.status == clouds.FINISHED:
            self._confirm(row, found)
        elif found.status in clouds.COMPLETED:
            self._completed(row, found, view)
        elif (row['migration_uuid'], row['destination'], row['state']) != (
                found.uuid, found.destination, drains.MIGRATING):
            self._records.write(lambda writer: writer.server(
                row, state=drains.MIGRATING, migration_uuid=found.uuid,
                destination=found.destination))

    def _migration(self, row: Mapping[str, Any], view: View
                   ) -> clouds.Migration | None:
        """Return the migration that the request has made, if any."""
        own = row['migration_uuid']
        before = set((row['before'] or {}).get('migrations', ()))
        for one in reversed(view.migrations.get(row['server_id'], ())):
            if own is not None:
                if one.uuid == own:
                    return one
            elif (one.uuid not in before
                  and one.kind == _KINDS[row['action']]):
                return one
        return None

    def _without_migration(self, row: Mapping[str, Any], view: View
                           ) -> None:
        """There is none yet, or never will be."""
        if view.now - row['submitted_at'] < self._options.submit_grace:
            return
        server_id = row['server_id']
        server = view.servers.get(server_id)
        if server is None:
            # It is gone, or has moved and the list of migrations is late.
            self._elsewhere(row, None)
            return
        if server.task_state is not None:
            return
        before = set((row['before'] or {}).get('requests', ()))
        asked = set(self._cloud.requests(server_id,
                                         row['action'])) - before
        if asked and row['state'] == drains.SUBMITTING:
            self._records.write(lambda writer: writer.server(
                row, state=drains.MIGRATING))
        elif asked:
            self._failed(row, 'Nova has accepted request %s and made no '
                         'migration of it' % ', '.join(sorted(asked)))
        else:
            self._records.write(lambda writer: (
                writer.server(row, state=drains.QUEUED,
                              tries=max(0, row['tries'] - 1)),
                writer.event('Nova has not got the request; it is sent '
                             'again', server_id)))

    def _completed(self, row: Mapping[str, Any], found: clouds.Migration,
                   view: View) -> None:
        if row['server_id'] not in view.servers:
            self._elsewhere(row, found)
        elif row['state'] != drains.CONFIRMING:
            self._records.write(lambda writer: writer.server(
                row, state=drains.CONFIRMING, migration_uuid=found.uuid,
                destination=found.destination,
                reason='Nova has not yet set its host'))

    def _elsewhere(self, row: Mapping[str, Any],
                   found: clouds.Migration | None) -> None:
        """The host does not have it any more: it has moved, or is gone."""
        try:
            server = self._cloud.server(row['server_id'])
        except errors.NoSuchServer:
            self._records.write(lambda writer: (
                writer.server(row, state=drains.GONE,
                              reason='it was deleted'),
                writer.event('The server was deleted', row['server_id'])))
            return
        if not server.host:
            return
        uuid = found.uuid if found is not None else row['migration_uuid']
        self._records.write(lambda writer: (
            writer.server(row, state=drains.MOVED, migration_uuid=uuid,
                          destination=server.host, reason=''),
            writer.event('Moved to %s' % server.host, row['server_id'])))

    def _confirm(self, row: Mapping[str, Any], found: clouds.Migration
                 ) -> None:
        try:
            self._cloud.confirm(row['server_id'])
        except (errors.CloudRefused, errors.CloudUnavailable) as error:
            # It is repeated: to confirm twice does nothing more.
            LOG.info('Server %(server)s: %(error)s', {
                'server': row['server_id'], 'error': error})
        if row['state'] != drains.CONFIRMING:
            self._records.write(lambda writer: writer.server(
                row, state=drains.CONFIRMING, migration_uuid=found.uuid,
                destination=found.destination,
                reason='Nova confirms the migration'))

    def _follow_stop(self, row: Mapping[str, Any], view: View) -> None:
        server = view.servers.get(row['server_id'])
        if server is None:
            self._elsewhere(row, None)
        elif not server.running and server.task_state is None:
            self._records.write(lambda writer: (
                writer.server(row, state=drains.STOPPED,
                              reason='it was shut down and stays here'),
                writer.event('Shut down', row['server_id'])))
        elif (server.task_state is None and view.now - row['submitted_at']
              > self._options.submit_grace):
            self._failed(row, 'it does not shut down')

    def _failed(self, row: Mapping[str, Any], reason: str,
                found: clouds.Migration | None = None) -> None:
        """Try again later, or give up."""
        cancelled = found is not None and found.status == 'cancelled'
        tries, most = row['tries'], self._options.max_tries
        final = cancelled or tries >= most

        def write(writer: recording.Writer) -> None:
            uuid = found.uuid if found is not None else None
            if row['reason'] == _ABORTED:
                writer.server(row, state=drains.SERVER_CANCELLED,
                              reason=reason, migration_uuid=uuid)
            elif final:
                writer.server(row, state=drains.SERVER_FAILED,
                              reason=reason, migration_uuid=uuid)
            else:
                delay = self._options.retry_delay * 2 ** (tries - 1)
                writer.server(row, state=drains.RETRY_WAIT, reason=reason,
                              migration_uuid=uuid,
                              retry_at=clock.now() + delay)
            writer.event('Failed, try %d of %d: %s' % (tries, most, reason),
                         row['server_id'])

        self._records.write(write)

    def abort(self, row: Mapping[str, Any], view: View) -> None:
        """Request that a migration in flight ends; once."""
        found = self._migration(row, view)
        if (row['action'] != LIVE or found is None
                or found.status not in clouds.ABORTABLE
                or row['reason'] == _ABORTED):
            return
        self._records.write(lambda writer: (
            writer.server(row, reason=_ABORTED),
            writer.event('Abort requested', row['server_id'])))
        try:
            self._cloud.abort(row['server_id'], found)
        except (errors.CloudRefused, errors.CloudUnavailable) as error:
            LOG.warning('Drain %(drain)s: %(error)s. The migration goes on '
                        'to its end.', {'drain': self._records.drain_id,
                                        'error': error})

