# SPDX-License-Identifier: Apache-2.0
"""Nova's own operation."""

from nova_dedup_migrate.tasks import base


class OperationFailed(Exception):
    """Nova's operation ended with an exception: see record.error.

    taskflow may hand on a copy of an exception.  Nova must get back the
    very one it raised, so that one is kept aside.
    """


class Operate(base.Task):
    """Let Nova migrate, with the watch beside it.

    :param operate: callable that returns when Nova is done, completed or
        rolled back, and raises what Nova raises
    :param watch: watch.Watch
    """

    def __init__(self, record, operate, watch):
        super().__init__(record)
        self._operate = operate
        self._watch = watch

    def execute(self, facts, plan):
        with self._watch.during(facts, plan):
            self.record.operating = True
            try:
                self._operate()
            except Exception as error:
                self.record.error = error
                self.record.finish('failed')
                raise OperationFailed() from error
            self.record.finish('completed')

    def revert(self, **kwargs):
        """Nova has rolled back, or has said that it could not."""
