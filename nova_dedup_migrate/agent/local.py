# SPDX-License-Identifier: Apache-2.0
"""The libvirt of this host."""

import logging
import threading
from xml.etree import ElementTree

import libvirt

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.hypervisor import libvirt_monitor

LOG = logging.getLogger(__name__)

#: Seconds between two looks at the connection.
INTERVAL = 5.0
#: Files that libvirt does not remove with what it knows of a guest.
_KEEP = (libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
         | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM)


class LocalLibvirt:
    """What the agent asks libvirt, and the events it hears from it.

    :param uri: of libvirt
    :param on_event: as LibvirtHost.subscribe
    """

    def __init__(self, uri, on_event):
        self._host = libvirt_host.LibvirtHost(uri)
        self._on_event = on_event
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, daemon=True,
                                        name='dedup-libvirt')

    def start(self):
        """Connect, and again whenever the connection is lost."""
        self._keeper.start()

    def stop(self):
        self._stopping.set()
        if self._keeper.is_alive():
            self._keeper.join(INTERVAL)
        self._host.close()

    def _keep(self):
        subscribed = False
        problem = None
        while True:
            try:
                if not subscribed:
                    self._host.subscribe(self._on_event)
                    subscribed = True
                # Where it is lost, this connects and subscribes again.
                connection = self._host.connection
                if problem is not None:
                    LOG.info('%s is there again', connection.getURI())
                problem = None
            except errors.HypervisorError as error:
                if problem is None:
                    LOG.warning('No events of QEMU: %s', error)
                problem = error
            if self._stopping.wait(INTERVAL):
                return

    def emulators(self):
        """Return the paths of the emulators, the host's own first.

        :raises HypervisorError:
        """
        try:
            capabilities = ElementTree.fromstring(
                self._host.connection.getCapabilities())
        except libvirt.libvirtError as error:
            raise errors.HypervisorUnavailable(
                uri=self._host.uri,
                reason=error.get_error_message()) from error
        own = capabilities.findtext('host/cpu/arch')
        guests = sorted(capabilities.findall("guest[os_type='hvm']/arch"),
                        key=lambda arch: arch.get('name') != own)
        return list(dict.fromkeys(
            emulator.text for arch in guests
            for emulator in arch.iter('emulator') if emulator.text))

    def guest_state(self, uuid):
        """Return one of rpc.objects.GUEST_STATES.

        :raises HypervisorError: libvirt does not say
        """
        try:
            domain = self._host.domain(uuid, uuid)
            with libvirt_monitor.converting(uuid, 'look at'):
                return libvirt_monitor.guest_state(domain)
        except errors.GuestNotRunning:
            return 'none'

    def forget_guest(self, uuid):
        """Have libvirt forget a guest that does not run here.

        Its firmware's variables, its TPM and a state that it was saved in
        are kept; where there is one of those, libvirt may refuse.

        :returns: whether there was one
        :raises HypervisorError: libvirt refuses, or does not answer
        """
        try:
            domain = self._host.domain(uuid, uuid)
        except errors.GuestNotRunning:
            return False
        with libvirt_monitor.converting(uuid, 'forget'):
            if domain.isActive():
                return False
            domain.undefineFlags(_KEEP)
        LOG.info('Guest %s, which was to migrate to this host and has '
                 'ended, is forgotten', uuid)
        return True

    def ceph_key(self, secret):
        """Return the bytes that a secret of libvirt holds.

        :param secret: its UUID
        :raises HypervisorError, libvirtError:
        """
        return self._host.connection.secretLookupByUUIDString(secret).value()
