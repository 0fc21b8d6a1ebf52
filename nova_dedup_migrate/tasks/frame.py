# SPDX-License-Identifier: Apache-2.0
"""The first and the last task of a migration."""

from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.tasks import base
from nova_dedup_migrate.tasks import undo


class Open(base.Task):
    """Write that the operation is being prepared.

    Its revert, the last one of the flow, undoes on the guest what the undo
    log has.
    """

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest) -> None:
        super().__init__(operation)
        self._guest = guest

    def execute(self) -> None:
        self.operation.enter(operations.PREPARING)

    @base.harmless('undoing what was changed on the guest')
    def revert(self, **kwargs: object) -> None:
        undo.undo(self.operation, self._guest)


class Close(base.Task):
    """Undo on a guest that has stayed what the undo log has."""

    def __init__(self, operation: operations.Operation,
                 guest: hypervisor.Guest) -> None:
        super().__init__(operation)
        self._guest = guest

    @base.harmless('undoing what was changed on the guest')
    def execute(self) -> None:
        if self.operation.outcome != 'completed':
            undo.undo(self.operation, self._guest)
