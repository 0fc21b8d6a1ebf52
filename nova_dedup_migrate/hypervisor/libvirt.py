# SPDX-License-Identifier: Apache-2.0
"""A guest that libvirt runs, and Nova starts and migrates."""

from collections.abc import Callable
import threading
import typing
import uuid as uuids

import libvirt

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt_channel
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.hypervisor import libvirt_xml
from nova_dedup_migrate.hypervisor import qmp_guest
from nova_dedup_migrate.hypervisor.events import EventLog

LibvirtHost = libvirt_host.LibvirtHost


class LibvirtGuest(qmp_guest.QmpGuest):
    """A domain.

    :param host: LibvirtHost
    :param uuid: text
    :param name: for people
    """

    def __init__(self, host: libvirt_host.LibvirtHost, uuid: str,
                 name: str | None = None) -> None:
        self.host = host
        self.uuid = str(uuids.UUID(uuid))
        self.name = name or self.uuid
        self._given: typing.Any = None
        self._owns_host = False
        self._log: EventLog | None = None
        self._end: Callable[[], None] | None = None
        self._lock = threading.Lock()

    @classmethod
    def from_domain(cls, domain: libvirt.virDomain,
                    host: libvirt_host.LibvirtHost | None = None
                    ) -> typing.Self:
        """Make one of a libvirt.virDomain.

        :param host: LibvirtHost, default one over the domain's
            connection, whose owner runs libvirt's event loop
        """
        guest = cls(host or LibvirtHost.of(domain),
                    domain.UUIDString(), domain.name())
        guest._given = domain
        guest._owns_host = host is None
        return guest

    # Events

    @property
    def events(self) -> EventLog:
        return self._follow()

    def _follow(self) -> EventLog:
        """Return the log of events, which is kept from the first call on."""
        with self._lock:
            if self._log is None:
                log = EventLog()
                self._log, self._end = log, self._record(log)
            return self._log

    def _record(self, log: EventLog) -> Callable[[], None]:
        def callback(uuid: str, event: str | None,
                     data: dict | None) -> None:
            if uuid != self.uuid:
                return
            if event is None:
                log.close()
            else:
                log.add(event, data or {})
        return self.host.subscribe(callback)

    def close(self) -> None:
        with self._lock:
            end, self._end, self._log = self._end, None, None
        if end is not None:
            end()
            if self._owns_host:
                self.host.close()

    # Life

    def domain(self) -> libvirt.virDomain:
        """Return the libvirt.virDomain.

        :raises GuestNotRunning:
        """
        if self._given is not None:
            return self._given
        return self.host.domain(self.uuid, self.name)

    def is_alive(self) -> bool:
        try:
            with libvirt_monitor.converting(self.name, 'look at'):
                return bool(self.domain().isActive())
        except errors.GuestNotRunning:
            return False

    # Monitor

    def execute(self, command: str, arguments: dict,
                timeout: float | None = None) -> typing.Any:
        return libvirt_monitor.execute(self.domain(), self.name, command,
                                       arguments,
                                       timeout or self.qmp_timeout)

    def execute_with_fd(self, fd: int, command: str,
                        arguments: dict) -> typing.Any:
        return libvirt_monitor.execute(self.domain(), self.name, command,
                                       arguments, self.qmp_timeout, fd)

    def run_state(self) -> str:
        try:
            return super().run_state()
        except errors.InvalidMigrationState:
            # of a guest that arrives libvirt tells no more
            with libvirt_monitor.converting(self.name, 'look at'):
                state = self.domain().state()[0]
            return ('running' if state == libvirt.VIR_DOMAIN_RUNNING
                    else 'inmigrate')

    def disks(self) -> dict[str, str]:
        with libvirt_monitor.converting(self.name, 'read the XML'):
            return libvirt_xml.disks(self.domain().XMLDesc())

    # Guest

    def agent(self, command: str, arguments: dict | None = None,
              timeout: float = 5.0) -> typing.Any:
        return libvirt_channel.execute(self.domain(), command, arguments,
                                       timeout)

    def channel_state(self, name: str) -> str:
        with libvirt_monitor.converting(self.name, 'read the XML'):
            return libvirt_channel.state(self.domain().XMLDesc(), name)

    def open_channel(self, name: str) -> libvirt_channel.LibvirtChannel:
        return libvirt_channel.LibvirtChannel(self.domain(), name)

    # Migration

    def allow_downtime(self, milliseconds: int) -> None:
        # behind its back libvirt would put its own value back
        with libvirt_monitor.converting(self.name, 'allow a downtime'):
            self.domain().migrateSetMaxDowntime(milliseconds)
