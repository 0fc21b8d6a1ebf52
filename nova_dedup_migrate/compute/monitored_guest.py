# SPDX-License-Identifier: Apache-2.0
"""What Nova's monitor of a live migration sees."""

from collections.abc import Callable
import time
import typing

import libvirt
from nova import exception
from nova.virt.libvirt import guest as libvirt_guest
from oslo_log import log as logging
import oslo_messaging

from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.operations import session as compute_session

LOG = logging.getLogger(__name__)

#: Seconds within which a libvirtd that has ended is started again.
LIBVIRT_S = 120.0
#: Seconds within which libvirt knows that a QEMU has ended.
QEMU_S = 10.0
_INTERVAL_S = 1.0


class MonitoredGuest:
    """Nova's Guest while its monitor looks at it.

    libvirt passes on QEMU's figures, which are about the link: a page the
    destination read from storage is in none of them, and a page that was
    announced but not confirmed is missing from what remains.

    Nova's monitor gives up, and sets the instance to ERROR, if libvirtd or
    QEMU end while it looks.  Without libvirtd the instance's QEMU runs on,
    and a libvirtd that comes back ends the migration properly; without
    QEMU, libvirt knows a moment later that the guest is gone.

    Everything else is the guest's own.

    :param guest: nova.virt.libvirt.guest.Guest
    :param session: session.Session
    :param reopen: callable that returns the Guest once more, from a new
        connection if it has to be; raises what Host.get_guest does
    """

    def __init__(self, guest: libvirt_guest.Guest,
                 session: compute_session.Session,
                 reopen: Callable[[], libvirt_guest.Guest]) -> None:
        self._guest = guest
        self._session = session
        self._reopen = reopen

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._guest, name)

    def pause(self) -> None:
        """Pause it, so that its migration ends; see Guest.pause."""
        # Nova keeps in its thread alone that it has to be resumed.
        self._session.operation.will(operations.UNDO_PAUSE)
        self._guest.pause()

    def get_job_info(self) -> libvirt_guest.JobInfo:
        """Return JobInfo; see nova.virt.libvirt.guest.Guest."""
        info = self._job_info()
        if info.type == libvirt.VIR_DOMAIN_JOB_UNBOUNDED:
            self._session.see_job(self._guest)
            self._session.operation.data_remaining = info.data_remaining
        latest = self._session.operation.latest
        source = (latest.dedup.source if latest is not None
                  and latest.dedup is not None else None)
        if source is not None and info.memory_total:
            size = latest.page_size
            info.memory_processed += source.storage_pages * size
            info.memory_remaining = min(
                info.memory_remaining + source.outstanding * size,
                info.memory_total)
        return info

    def _job_info(self) -> libvirt_guest.JobInfo:
        try:
            return self._guest.get_job_info()
        except libvirt.libvirtError as error:
            LOG.warning('Instance %(uuid)s: libvirt has no figures of its '
                        'live migration: %(error)s. Waiting for libvirtd.',
                        {'uuid': self._session.operation.instance_uuid,
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
                # as Nova takes it; the session finds out what it means
                return libvirt_guest.JobInfo(
                    type=libvirt.VIR_DOMAIN_JOB_COMPLETED)
            except (libvirt.libvirtError, exception.NovaException) as error:
                LOG.debug('libvirt still does not answer: %s', error)
        raise lost


class MonitoredRecord:
    """A record of Nova's database whose figures may be lost.

    The monitor saves figures each five seconds.  If that fails, Nova gives
    up and sets ERROR; but the guest may leave all the same, and the
    instance would be ERROR on the source and run on the destination.

    :param record: nova.objects.Instance or Migration
    """

    def __init__(self, record: typing.Any) -> None:
        object.__setattr__(self, '_record', record)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._record, name)

    def __setattr__(self, name: str, value: typing.Any) -> None:
        setattr(self._record, name, value)

    def __contains__(self, name: str) -> bool:
        return name in self._record

    def save(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        """Save it; if the message bus is away, the next time will do."""
        try:
            self._record.save(*args, **kwargs)
        except oslo_messaging.MessagingException as error:
            LOG.warning('Figures of the live migration of instance %(uuid)s '
                        'are not saved: %(error)s. The next ones are saved '
                        'when the message bus answers.',
                        {'uuid': getattr(self._record, 'instance_uuid',
                                         self._record.uuid),
                         'error': error})


class MonitoredData:
    """Nova's migrate_data with a MonitoredRecord as its migration.

    :param data: nova.objects.LibvirtLiveMigrateData
    """

    def __init__(self, data: typing.Any) -> None:
        self._data = data
        self.migration = MonitoredRecord(data.migration)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._data, name)

    def __contains__(self, name: str) -> bool:
        return name in self._data
