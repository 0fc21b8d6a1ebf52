# SPDX-License-Identifier: Apache-2.0
"""The daemon, put together."""

from __future__ import annotations

import logging
import threading

from cinder import context as cinder_context
from oslo_config import cfg
import oslo_messaging as messaging

from cinder_backup_assist import leases
from cinder_backup_assist import policy
from cinder_backup_assist.service import endpoint
from cinder_backup_assist.service import metrics
from cinder_backup_assist.service import tickets
from cinder_backup_assist.service import web
from cinder_backup_assist.store import backups
from cinder_backup_assist.store import drivers
from nova_dedup_migrate.backups import api
from nova_dedup_migrate.rpc import transport as rpc_transport

LOG = logging.getLogger(__name__)


class AssistDaemon:
    """The daemon of one host.

    :param conf: Cinder's options, with [backup_assist]
    :param transport: default that of [backup_assist] transport_url
    :raises DriverRefused: backups of this host cannot be served
    :raises ValueError: an option is missing or cannot be used
    """

    def __init__(self, conf: cfg.ConfigOpts,
                 transport: messaging.RPCTransport | None = None) -> None:
        options = conf.backup_assist
        self._host = conf.host
        self._metrics = metrics.Metrics()
        store = drivers.BackupStore(conf, cinder_context.get_admin_context())
        self._tickets = tickets.Tickets(conf.host, options.ticket_lifetime,
                                        options.connections)
        self._leases = leases.Leases(options.lease_directory)
        self.web = web.DataServer(conf, store, self._tickets, self._leases,
                                  self._metrics)
        address = options.advertised_address or conf.my_ip
        if ':' in address:
            address = '[%s]' % address
        self._server = rpc_transport.get_server(
            transport or messaging.get_rpc_transport(
                conf, options.transport_url),
            conf.host, [endpoint.Endpoint(
                conf.host, 'https://%s:%d' % (address, self.web.port),
                options.ticket_lifetime, store, backups.Backups(store),
                self._tickets, policy.Policy(conf), self._metrics)],
            topic=api.TOPIC)
        self._listening = threading.Event()

    def start(self) -> None:
        """Begin to serve, as soon as the bus is there."""
        self.web.start()
        threading.Thread(target=self._listen, name='assist-listen',
                         daemon=True).start()

    def _listen(self) -> None:
        # It waits for the bus without end, which stop() must not do.
        self._server.start()
        LOG.info('cinder-backup-assist of %s serves backups on port %d',
                 self._host, self.web.port)
        self._listening.set()

    def wait_ready(self, seconds: float) -> bool:
        """Return whether requests are served, within seconds."""
        return self._listening.wait(seconds)

    def reload(self) -> None:
        """Read certificates again."""
        try:
            self.web.reload()
        except ValueError as error:
            LOG.error('The certificates in use stay: %s', error)

    def stop(self) -> None:
        """End requests and connections."""
        if self._listening.is_set():
            self._server.stop()
            self._server.wait()
        self._tickets.close_all()
        self.web.stop()
        self._leases.stop()
