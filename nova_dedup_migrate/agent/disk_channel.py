# SPDX-License-Identifier: Apache-2.0
"""The data channel of this host, and what others may get through it.

By digest they get what this host itself may use for the same instance.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
import functools
import logging
import threading
from typing import Any

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.rpc import disk_objects
from nova_dedup_migrate.storage.channel import client
from nova_dedup_migrate.storage.channel import errors as channel_errors
from nova_dedup_migrate.storage.channel import limiter
from nova_dedup_migrate.storage.channel import server
from nova_dedup_migrate.storage.channel import services
from nova_dedup_migrate.storage.channel import tls
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.storage.sources import local

LOG = logging.getLogger(__name__)


class DiskChannel:
    """Hands out tickets, and uses those of other agents.

    :param host: name of this host
    :param address: to listen on and to be reached at
    :param port: to listen on
    :param certificates: of this host
    :param index: whose blocks are served
    :param roots: directories that indexed files may be in
    :param rate: bytes a second that are sent, 0: no limit
    :param allowed: see owners.Owners.allowed
    """

    def __init__(self, host: str, address: str, port: int,
                 certificates: tls.Certificates, index: store.Index,
                 roots: Sequence[str], rate: float,
                 allowed: Callable[[str, Collection[str]], Collection[str]]
                 ) -> None:
        self._host = host
        self._address = address
        self._port = port
        self._certificates = certificates
        self._index = index
        self._roots = roots
        self._limit = limiter.Limiter(rate)
        self._allowed = allowed
        self._guard = threading.Lock()
        self._server: server.Server | None = None
        self._disks: dict[tuple[str, str], services.Service] = {}

    def start(self) -> None:
        """Listen; without certificates, log that no one can connect."""
        try:
            self._server = server.Server(self._address, self._port,
                                         self._certificates, self._limit)
        except (channel_errors.NoCertificates, OSError) as error:
            LOG.warning('Disks are not built from this host or on it: %s',
                        error)

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()

    def add_disk(self, migration: str, target: str,
                 service: services.Service) -> None:
        """Serve a disk of a running guest to the destination."""
        with self._guard:
            self._disks[migration, target] = service

    def remove_disk(self, migration: str, target: str) -> None:
        """Serve one disk no longer."""
        with self._guard:
            self._disks.pop((migration, target), None)

    def remove_disks(self, migration: str) -> None:
        """Serve the disks of a migration no longer."""
        with self._guard:
            self._disks = {key: service
                           for key, service in self._disks.items()
                           if key[0] != migration}
        if self._server is not None:
            self._server.tickets.revoke(migration)

    def local_source(self, project: str, images: Sequence[str]
                     ) -> local.LocalSource:
        """Return the blocks of this host that an instance may have.

        :param project: of the instance
        :param images: that it was made of
        """
        return local.LocalSource(
            self._index, functools.partial(self._allowed, project, images),
            self._roots)

    def offer(self, request: disk_objects.DedupChannelRequest
              ) -> disk_objects.DedupChannelOffer:
        """Return where and with which ticket a host may connect.

        :raises ChannelUnavailable:
        """
        if self._server is None:
            raise errors.ChannelUnavailable(
                host=self._host, reason='it has no data channel; the log of '
                'its agent has the cause')
        try:
            ticket = self._server.tickets.issue(
                request.host, request.migration_uuid,
                self._service(request))
        except channel_errors.TicketRefused as error:
            raise errors.ChannelUnavailable(host=self._host,
                                            reason=error) from error
        return disk_objects.DedupChannelOffer(
            host=self._host, address=self._server.address,
            port=self._server.port, ticket=ticket.hex())

    def _service(self, request: disk_objects.DedupChannelRequest
                 ) -> services.Service:
        if request.target is None:
            return services.BlockService(self.local_source(
                request.project_id, request.images))
        with self._guard:
            service = self._disks.get((request.migration_uuid,
                                       request.target))
        if service is None:
            raise errors.ChannelUnavailable(
                host=self._host, reason='disk %s of migration %s is not '
                'watched' % (request.target, request.migration_uuid))
        return service

    def connect(self, get_offer: Callable[
            [Any], disk_objects.DedupChannelOffer], host: str,
            **request: Any) -> client.Channel:
        """Return a connection to another host.

        :param get_offer: calls the agent there with a DedupChannelRequest
        :param host: its name, which its certificate must have
        :param request: fields of the DedupChannelRequest but host
        :raises ChannelError: it cannot be made
        """
        offer = get_offer(disk_objects.DedupChannelRequest(
            host=self._host, **request))
        return client.Channel(client.Offer(
            host, offer.address, offer.port, bytes.fromhex(offer.ticket)),
            self._certificates)
