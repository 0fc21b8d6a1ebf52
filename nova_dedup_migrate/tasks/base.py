# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a migration share.

A task of ours never fails a migration: an error in it becomes a warning
of the operation, and the migration continues as stock Nova's would.  Only
the task that runs Nova's operation lets errors through.

Tasks write to the operation and nowhere else; taskflow carries no results
between them.
"""

from collections.abc import Callable
import functools
import typing

from taskflow import task

from nova_dedup_migrate.operations import operation as operations


class Task(task.Task):
    """A task about one migration.

    :param operation: the Operation that all tasks share
    """

    def __init__(self, operation: operations.Operation,
                 **kwargs: typing.Any) -> None:
        super().__init__(**kwargs)
        self.operation = operation


def harmless(doing: str) -> Callable[[Callable], Callable]:
    """Decorate an execute() or revert() that must not raise.

    :param doing: for people: what the task was doing
    """
    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def guarded(self: Task, *args: typing.Any,
                    **kwargs: typing.Any) -> None:
            try:
                function(self, *args, **kwargs)
            except Exception as error:
                self.operation.warn(doing, error)
        return guarded
    return decorate
