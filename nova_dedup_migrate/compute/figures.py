# SPDX-License-Identifier: Apache-2.0
"""Nova's figures of a migration, with fetched pages counted."""

import libvirt


class MigratingGuest:
    """Nova's Guest while its monitor looks at it.

    libvirt passes on QEMU's figures, which are about the link: a page the
    destination read from storage is in none of them, and a page it has
    been told to read but has not confirmed is missing from what remains.
    Everything else is the guest's own.

    :param guest: nova.virt.libvirt.guest.Guest
    :param attempt: attempt.Attempt
    """

    def __init__(self, guest, attempt):
        self._guest = guest
        self._attempt = attempt

    def __getattr__(self, name):
        return getattr(self._guest, name)

    def get_job_info(self):
        """Return JobInfo; see nova.virt.libvirt.guest.Guest."""
        info = self._guest.get_job_info()
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
