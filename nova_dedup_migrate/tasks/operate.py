# SPDX-License-Identifier: Apache-2.0
"""Nova's own operation."""

from collections.abc import Callable

from nova_dedup_migrate import errors
from nova_dedup_migrate.operations import operation as operations
from nova_dedup_migrate.tasks import base
from nova_dedup_migrate.tasks import watch as watching


class OperationFailed(errors.DedupMigrateError):
    """Nova's operation ended with an exception: see Operation.error.

    taskflow may hand on a copy of an exception.  Nova must get back the
    very one it raised, so that one is kept aside.
    """

    template = "Nova's live migration failed"


class Operate(base.Task):
    """Let Nova migrate, with the watch beside it.

    :param operate: callable that returns when Nova is done, completed or
        rolled back, and raises what Nova raises
    :param watch: watch.Watch
    """

    def __init__(self, operation: operations.Operation,
                 operate: Callable[[], None],
                 watch: watching.Watch) -> None:
        super().__init__(operation)
        self._operate = operate
        self._watch = watch

    def execute(self) -> None:
        with self._watch.during():
            self.operation.operating = True
            try:
                self._operate()
            except Exception as error:
                self.operation.error = error
                raise OperationFailed() from error
