# SPDX-License-Identifier: Apache-2.0
"""A libvirtd, and the events of its guests."""

from collections.abc import Callable
import functools
import json
import threading
import typing

import libvirt
import libvirt_qemu

from nova_dedup_migrate import native
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt_monitor

#: Called with a UUID, the name of an event and its data; see subscribe().
Callback = Callable[[str, str | None, dict | None], object]
#: Longest data of an event that is decoded, in characters.
MAX_EVENT = 1 << 20
#: Seconds between keep-alive messages, and how many may be missed.
_KEEP_ALIVE = (5, 5)


@functools.cache
def _start_event_loop() -> None:
    """Run libvirt's event loop in a thread, for all connections."""
    # instead of printing all errors, those included that are expected
    libvirt.registerErrorHandler(lambda *args: None, None)
    libvirt.virEventRegisterDefaultImpl()

    def run() -> None:
        while True:
            libvirt.virEventRunDefaultImpl()

    threading.Thread(target=run, name='libvirt-events', daemon=True).start()


class LibvirtHost:
    """A libvirtd, connected to when first used, and again when lost.

    :param uri: how to reach it from here
    """

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._connection: typing.Any = None
        self._only: libvirt.virDomain | None = None
        self._owned = True
        self._lock = threading.RLock()
        self._callbacks: list[Callback] = []
        self._registered: list[tuple[Callable, typing.Any, int]] = []

    @classmethod
    def of(cls, domain: libvirt.virDomain) -> typing.Self:
        """Use the connection of a program that runs an event loop.

        :param domain: virDomain of that connection; only its events are
            told, because libvirt lets one connection subscribe to those
            of all guests only once, and the program may have
        """
        connection = domain.connect()
        host = cls(connection.getURI())
        host._connection = connection
        host._only = domain
        host._owned = False
        return host

    @property
    def connection(self) -> libvirt.virConnect:
        """A libvirt.virConnect that works.

        :raises HypervisorUnavailable:
        """
        with self._lock:
            if self._owned and not self._works():
                self._forget()
                self._connect()
            return self._connection

    def _works(self) -> bool:
        try:
            return (self._connection is not None
                    and bool(self._connection.isAlive()))
        except libvirt.libvirtError:
            return False

    def _connect(self) -> None:
        _start_event_loop()
        try:
            connection = libvirt.open(self.uri)
            connection.setKeepAlive(*_KEEP_ALIVE)
            self._connection = connection
            if self._callbacks:
                self._register()
        except libvirt.libvirtError as error:
            self._forget()
            raise errors.HypervisorUnavailable(
                uri=self.uri, reason=error.get_error_message()) from error

    def _register(self) -> None:
        connection, only = map(native.raw, (self._connection, self._only))
        # One by one: what was registered has to be ended if not all is.
        self._registered.append((
            libvirt_qemu.qemuMonitorEventDeregister, connection,
            native.call(libvirt_qemu.qemuMonitorEventRegister, connection,
                        only, None, self._on_event, None, 0)))
        self._registered.append((
            libvirt.virConnect.domainEventDeregisterAny, connection,
            native.call(connection.domainEventRegisterAny, only,
                        libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
                        self._on_lifecycle, None)))

    def _deregister(self) -> None:
        registered, self._registered = self._registered, []
        for deregister, owner, number in registered:
            try:
                native.call(deregister, owner, number)
            except libvirt.libvirtError:
                # the connection is gone, and its callbacks with it
                continue

    def _forget(self) -> None:
        self._deregister()
        connection, self._connection = self._connection, None
        if connection is not None and self._owned:
            try:
                connection.close()
            except libvirt.libvirtError:
                # it was lost before
                pass

    def close(self) -> None:
        """End the subscriptions, and the connection if it is ours."""
        with self._lock:
            self._callbacks.clear()
            self._forget()

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        """Call callback(uuid, event, data) for all guests from now on.

        uuid is text.  event is the name of a QMP event, data its
        mapping, from QEMU and not to be trusted; or event is None: the
        guest has ended here, and data is None.  It runs in the thread of
        the event loop and must not call libvirt.  Return a function that
        ends the subscription.

        :raises HypervisorUnavailable:
        """
        with self._lock:
            connection = self.connection
            self._callbacks.append(callback)
            if not self._registered:
                try:
                    self._register()
                except libvirt.libvirtError as error:
                    self._callbacks.remove(callback)
                    self._deregister()
                    raise libvirt_monitor.convert(
                        error, connection.getURI(),
                        'subscribe to events') from error

        def end() -> None:
            with self._lock:
                if callback in self._callbacks:
                    self._callbacks.remove(callback)
        return end

    def _on_event(self, connection: object, domain: libvirt.virDomain,
                  event: str, seconds: int, micros: int,
                  details: str | None, opaque: object) -> None:
        try:
            data = (json.loads(details)
                    if details and len(details) <= MAX_EVENT else {})
        except (ValueError, RecursionError):
            data = {}
        if isinstance(data, dict):
            self._publish(domain.UUIDString(), event, data)

    def _on_lifecycle(self, connection: object, domain: libvirt.virDomain,
                      event: int, detail: int, opaque: object) -> None:
        if event in (libvirt.VIR_DOMAIN_EVENT_STOPPED,
                     libvirt.VIR_DOMAIN_EVENT_CRASHED):
            self._publish(domain.UUIDString(), None, None)

    def _publish(self, uuid: str, event: str | None,
                 data: dict | None) -> None:
        for callback in list(self._callbacks):
            callback(uuid, event, data)

    def domain(self, uuid: str, name: str) -> libvirt.virDomain:
        """Look up a guest's libvirt.virDomain.

        :param name: for the error
        :raises GuestNotRunning: there is none
        :raises HypervisorUnavailable:
        """
        connection = self.connection
        with libvirt_monitor.converting(name, 'look up'):
            return connection.lookupByUUIDString(uuid)
