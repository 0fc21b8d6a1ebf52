# SPDX-License-Identifier: Apache-2.0
"""What Nova sees of a guest while it swaps one of its volumes.

Nova starts a mirror, polls it, and has the guest pivot to the new volume.
The record of the swap is written before each of these, so that whoever
finds it later knows which volume the guest may have; and a request to end
the swap ends the mirror, as an error of it would.
"""

from __future__ import annotations

import contextlib
import typing

import libvirt
from nova.virt.libvirt import guest as libvirt_guest
from oslo_log import log as logging

from nova_dedup_migrate.swaps import errors
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.swaps import running

LOG = logging.getLogger(__name__)


class SwappedGuest:
    """Nova's Guest; everything else is the guest's own.

    :param guest: nova.virt.libvirt.guest.Guest
    """

    def __init__(self, guest: libvirt_guest.Guest,
                 swap: running.RunningSwap) -> None:
        self._guest = guest
        self._swap = swap

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._guest, name)

    def get_block_device(self, disk: str) -> SwappedDisk:
        return SwappedDisk(self._guest.get_block_device(disk), self._swap)


class SwappedDisk:
    """Nova's BlockDevice; everything else is its own.

    :param device: nova.virt.libvirt.guest.BlockDevice
    """

    def __init__(self, device: libvirt_guest.BlockDevice,
                 swap: running.RunningSwap) -> None:
        self._device = device
        self._swap = swap
        self._said = ''

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._device, name)

    def copy(self, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        """Start the mirror.

        :raises Aborted: it is not wanted any more
        :raises OSError: the record cannot be written
        """
        self._swap.check()
        self._swap.enter(operations.MIRRORING)
        return self._device.copy(*args, **kwargs)

    def is_job_complete(self) -> bool:
        """Return whether the guest can pivot.

        :raises Aborted: there is no mirror any more
        """
        self._end_if_requested()
        with contextlib.suppress(libvirt.libvirtError):
            # Nova gets the same error.
            job = self._device.get_job_info()
            if job is not None:
                self._swap.see_mirror(job.cur, job.end)
        return self._device.is_job_complete()

    def abort_job(self, *args: typing.Any, pivot: bool = False,
                  **kwargs: typing.Any) -> None:
        """End the mirror, or pivot.

        :raises Aborted: there is no mirror any more
        :raises OSError: likewise; the record cannot be written
        """
        if pivot:
            self._end_if_requested()
            try:
                self._swap.enter(operations.PIVOTING)
            except OSError:
                self._device.abort_job()
                raise
        self._device.abort_job(*args, pivot=pivot, **kwargs)

    def _end_if_requested(self) -> None:
        try:
            self._swap.check()
        except errors.Aborted:
            try:
                self._device.abort_job()
            except libvirt.libvirtError as error:
                # To raise now would leave the mirror without an owner.
                if str(error) != self._said:
                    self._said = str(error)
                    LOG.warning('The mirror of volume %s of instance %s is '
                                'not ended, as was requested: %s',
                                self._swap.swap.old_volume,
                                self._swap.swap.instance, error)
                return
            raise
