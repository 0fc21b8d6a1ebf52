# SPDX-License-Identifier: Apache-2.0
"""The libvirt of this host."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import logging
import threading
from typing import Any
from xml.etree import ElementTree

import libvirt

from nova_dedup_migrate import deadline
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.hypervisor import libvirt_monitor

LOG = logging.getLogger(__name__)

#: Seconds between two looks at the connection.
INTERVAL = 5.0
#: Seconds for libvirt to answer a question of little weight.
_AT_ONCE = 1.0
_LIBVIRT = deadline.Runner('libvirt', 8)


@dataclasses.dataclass(frozen=True)
class Presence:
    """Where the guest of an instance is, as this host sees it.

    :ivar state: one of rpc.objects.GUEST_STATES
    :ivar domain_id: libvirt's number of a domain that runs
    :ivar reason: libvirt's state and reason in words
    """

    state: str
    domain_id: int | None
    reason: str


class LocalLibvirt:
    """libvirt of this host, and the events of its guests.

    :param uri: of libvirt
    :param on_event: as LibvirtHost.subscribe
    :ivar host: the LibvirtHost
    """

    def __init__(self, uri: str, on_event: Callable[
            [str, str | None, Mapping[str, Any] | None], None]) -> None:
        self.host = libvirt_host.LibvirtHost(uri)
        self._on_event = on_event
        self._when_back: list[Callable[[], None]] = []
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True,
                                        name='dedup-libvirt')

    def when_back(self, function: Callable[[], None]) -> None:
        """Have a function called each time libvirt answers again."""
        self._when_back.append(function)

    def start(self) -> None:
        """Connect, and again whenever the connection is lost."""
        self._keeper.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._keeper.is_alive():
            self._keeper.join(INTERVAL)
        self.host.close()

    def _keep(self) -> None:
        subscribed = False
        problem: errors.HypervisorError | None = None
        while True:
            try:
                if not subscribed:
                    self.host.subscribe(self._on_event)
                    subscribed = True
                # If it is lost, this connects and subscribes again.
                connection = self.host.connection
                if problem is not None:
                    LOG.info('libvirt %s answers again',
                             connection.getURI())
                    problem = None
                    for function in self._when_back:
                        function()
            except errors.HypervisorError as error:
                if problem is None:
                    LOG.warning('No events of QEMU arrive until libvirt '
                                'answers: %s. The connection is tried '
                                'again every %g s.', error, INTERVAL)
                problem = error
            if self._stopping.wait(INTERVAL):
                return

    def emulators(self) -> list[str]:
        """Return the paths of the emulators, the host's own first.

        :raises HypervisorError:
        """
        try:
            capabilities = ElementTree.fromstring(
                self.host.connection.getCapabilities())
        except libvirt.libvirtError as error:
            raise errors.HypervisorUnavailable(
                uri=self.host.uri,
                reason=error.get_error_message()) from error
        own = capabilities.findtext('host/cpu/arch')
        guests = sorted(capabilities.findall("guest[os_type='hvm']/arch"),
                        key=lambda arch: arch.get('name') != own)
        return list(dict.fromkeys(
            emulator.text for arch in guests
            for emulator in arch.iter('emulator') if emulator.text))

    def guest(self, uuid: str) -> Presence:
        """Return what libvirt has of an instance.

        :raises HypervisorError: libvirt does not answer
        """
        try:
            domain = self.host.domain(uuid, uuid)
            with libvirt_monitor.converting(uuid, 'look at'):
                state = libvirt_monitor.guest_state(domain)
                number = domain.ID()
                return Presence(state, number if number >= 0 else None,
                                libvirt_monitor.state_in_words(domain))
        except errors.GuestNotRunning:
            return Presence('none', None, 'libvirt has no such domain')

    def guest_state(self, uuid: str) -> str:
        """Return one of rpc.objects.GUEST_STATES.

        :raises HypervisorError: libvirt does not answer
        """
        return self.guest(uuid).state

    def guest_state_at_once(self, uuid: str) -> str:
        """Return the same, for a caller that waits for other things.

        :raises HypervisorError: also if libvirt does not answer at once
        """
        try:
            return _LIBVIRT.run(_AT_ONCE, self.guest_state, uuid)
        except deadline.Late as error:
            raise errors.HypervisorUnavailable(
                uri=self.host.uri, reason=str(error)) from error

    def is_busy(self) -> bool:
        """Whether a guest migrates, is saved or is copied here.

        If libvirt does not answer at once, it is.
        """
        try:
            return _LIBVIRT.run(_AT_ONCE, self._has_job)
        except (errors.HypervisorError, deadline.Late) as error:
            LOG.debug('Jobs of guests are not known: %s', error)
            return True

    def _has_job(self) -> bool:
        with libvirt_monitor.converting('of this host', 'list'):
            domains = self.host.connection.listAllDomains(
                libvirt.VIR_CONNECT_LIST_DOMAINS_ACTIVE)
        for domain in domains:
            try:
                kind = domain.jobStats().get('type',
                                             libvirt.VIR_DOMAIN_JOB_NONE)
            except libvirt.libvirtError as error:
                # It is only known of the source.  Others have ended.
                if (error.get_error_code()
                        == libvirt.VIR_ERR_OPERATION_UNSUPPORTED):
                    return True
                continue
            if kind != libvirt.VIR_DOMAIN_JOB_NONE:
                return True
        return False

    def ceph_key(self, secret: str) -> bytes:
        """Return the bytes that a secret of libvirt holds.

        :param secret: its UUID
        :raises HypervisorError, libvirtError:
        """
        return self.host.connection.secretLookupByUUIDString(secret).value()
