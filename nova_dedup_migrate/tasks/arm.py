# SPDX-License-Identifier: Apache-2.0
"""Arming the source's QEMU for the migration that follows."""

from collections.abc import Callable
import time

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.tasks import base
from nova_dedup_migrate.tasks import undo

#: QEMU refuses like this for a moment after an earlier migration's end.
_BUSY = 'migration is running'
_BUSY_S = 3.0
_RETRY_S = 0.2


class Arm(base.Task):
    """Arm the source's QEMU as the plan says.

    QEMU keeps the order until a migration starts, so it would otherwise
    hold for a later migration that is none of ours: the undo log has it.

    :param guest: hypervisor.base.Guest on the source
    """

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest,
                 sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(operation)
        self._guest = guest
        self._sleep = sleep

    def execute(self) -> None:
        plan = self.operation.plan
        if plan is None or plan.strategy == planner_plan.STOCK:
            return
        try:
            self.operation.will(operations.UNDO_ARM)
            self._arm(plan)
        except Exception as error:
            self.operation.explain('QEMU on the source could not be armed: '
                                   '%s' % error)
            self.operation.warn('arming', error)
            # QEMU may have carried it out and its answer been lost.
            undo.undo(self.operation, self._guest)

    def _arm(self, plan: planner_plan.Plan) -> None:
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                self._guest.arm_dedup(
                    copy=plan.copy, resend=plan.resend,
                    disks=[_argument(disk) for disk in plan.disks],
                    fetch_rate=plan.fetch_rate, fetch_iops=plan.fetch_iops,
                    lazy=plan.fetch_in_postcopy,
                    defer_redirtied=plan.defer_redirtied_pages,
                    records=plan.strategy != planner_plan.COMPRESS,
                    compression=({'threads': plan.compression_threads}
                                 if plan.compression_threads else None))
                return
            except errors.QmpError as error:
                if (_BUSY not in error.description
                        or time.monotonic() > deadline):
                    raise
                self._sleep(_RETRY_S)


def _argument(disk: planner_plan.PlanDisk) -> dict:
    """Return planner.plan.PlanDisk as DedupDisk of the QMP schema."""
    return {'device': disk.device, 'copy': disk.copy, 'use': disk.use}
