# SPDX-License-Identifier: Apache-2.0
"""Switching dedup on at the source for the migration that follows."""

import time

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tasks import base

#: QEMU refuses like this for a moment after an earlier migration's end.
_BUSY = 'migration is running'
_BUSY_S = 3.0
_RETRY_S = 0.2


class Arm(base.Task):
    """Arm the source's QEMU as the plan says.

    The revert disarms it.  QEMU keeps the order until a migration starts,
    so it would otherwise hold for a later migration that is none of ours.

    :param guest: hypervisor.base.Guest at the source
    """

    def __init__(self, record, guest, sleep=time.sleep):
        super().__init__(record)
        self._guest = guest
        self._sleep = sleep

    def execute(self, plan):
        if plan is None or plan.strategy == 'stock':
            return
        try:
            self._arm(plan)
            self.record.armed = True
        except Exception as error:
            self.record.explain('the source could not be armed: %s' % error)
            self.record.warn('arming', error)
            # It may have been told and the answer been lost.
            self._disarm()

    def _arm(self, plan):
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                return self._guest.arm_dedup(
                    copy=plan.copy, resend=plan.resend,
                    disks=[_argument(disk) for disk in plan.disks])
            except errors.QmpError as error:
                if (_BUSY not in error.description
                        or time.monotonic() > deadline):
                    raise
                self._sleep(_RETRY_S)

    def revert(self, **kwargs):
        if self.record.armed:
            self._disarm()

    @base.harmless('disarming')
    def _disarm(self):
        disarm(self._guest)
        self.record.armed = False


class Disarm(base.Task):
    """See to it that a guest that stayed has no order left.

    It has none if the migration started.  There is no way back and none
    is needed: an order is only given right before a migration.
    """

    def __init__(self, record, guest):
        super().__init__(record)
        self._guest = guest

    @base.harmless('disarming')
    def execute(self):
        if self.record.armed and self.record.outcome != 'completed':
            disarm(self._guest)
        self.record.armed = False

    def revert(self, **kwargs):
        """See the class."""


def disarm(guest):
    """Disarm guest, if it is still here."""
    try:
        guest.disarm_dedup()
    except (errors.QmpDisconnected, errors.GuestNotRunning):
        # Whoever is gone leaves nothing out.
        return


def _argument(disk):
    """Return planner.plan.PlanDisk as DedupDisk of the QMP schema."""
    return {'device': disk.device, 'copy': disk.copy, 'use': disk.use}
