# SPDX-License-Identifier: Apache-2.0
"""The guest of a migration as Nova's monitor sees it."""

import time

import libvirt
from nova import exception
from nova.virt.libvirt import guest as libvirt_guest
from oslo_log import log as logging

from nova_dedup_migrate.hypervisor import libvirt_monitor

LOG = logging.getLogger(__name__)

#: Seconds within which a libvirtd that has ended is started again.
LIBVIRT_S = 120.0
#: Seconds within which libvirt knows that a QEMU has ended.
QEMU_S = 10.0
_INTERVAL_S = 1.0


class MigratingGuest:
    """Nova's Guest while its monitor looks at it.

    libvirt passes on QEMU's figures, which are about the link: a page the
    destination read from storage is in none of them, and a page it has
    been told to read but has not confirmed is missing from what remains.
    Everything else is the guest's own.

    Nova's monitor gives up, and sets the instance to ERROR, where libvirtd
    or QEMU end while it looks.  Without libvirtd the instance's QEMU goes
    on, and a libvirtd that comes back ends the migration properly; without
    QEMU, libvirt knows a moment later that the guest is gone.

    :param guest: nova.virt.libvirt.guest.Guest
    :param attempt: attempt.Attempt
    :param reopen: callable that returns the Guest once more, from a new
        connection if it has to be; raises what Host.get_guest does
    """

    def __init__(self, guest, attempt, reopen):
        self._guest = guest
        self._attempt = attempt
        self._reopen = reopen

    def __getattr__(self, name):
        return getattr(self._guest, name)

    def get_job_info(self):
        """Return JobInfo; see nova.virt.libvirt.guest.Guest."""
        info = self._job_info()
        if info.type == libvirt.VIR_DOMAIN_JOB_UNBOUNDED:
            self._attempt.job_seen(self._guest)
        latest = self._attempt.record.latest
        source = (latest.dedup.source if latest is not None
                  and latest.dedup is not None else None)
        if source is not None and info.memory_total:
            size = latest.page_size
            info.memory_processed += source.storage_pages * size
            info.memory_remaining = min(
                info.memory_remaining + source.outstanding * size,
                info.memory_total)
        return info

    def _job_info(self):
        try:
            return self._guest.get_job_info()
        except libvirt.libvirtError as error:
            LOG.warning('libvirt does not tell how the migration of '
                        'instance %(uuid)s goes: %(error)s',
                        {'uuid': self._attempt.record.instance_uuid,
                         'error': error})
            lost = error
        deadline = time.monotonic() + (
            LIBVIRT_S if libvirt_monitor.is_unavailable(lost) else QEMU_S)
        while time.monotonic() < deadline:
            time.sleep(_INTERVAL_S)
            try:
                self._guest = self._reopen()
                return self._guest.get_job_info()
            except exception.InstanceNotFound:
                # as Nova takes it; the attempt finds out what it means
                return libvirt_guest.JobInfo(
                    type=libvirt.VIR_DOMAIN_JOB_COMPLETED)
            except (libvirt.libvirtError, exception.NovaException) as error:
                LOG.debug('libvirt still does not tell: %s', error)
        raise lost
