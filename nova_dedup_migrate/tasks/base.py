# SPDX-License-Identifier: Apache-2.0
"""What the tasks of a migration share.

A task of ours never fails a migration: what goes wrong in it is noted
in the record, and the flow goes on as stock Nova would.  Only the task
that runs Nova's operation lets errors through.
"""

import functools

from taskflow import task


class Task(task.Task):
    """A task about one migration.

    :param record: the MigrationRecord all tasks share.  It is no result
        that taskflow hands on, because results are copied.
    """

    def __init__(self, record, **kwargs):
        super().__init__(**kwargs)
        self.record = record


def harmless(doing, otherwise=None):
    """Decorate an execute() or revert() that must not raise.

    :param doing: for people: what the task was doing
    :param otherwise: returned where it failed
    """
    def decorate(function):
        @functools.wraps(function)
        def guarded(self, *args, **kwargs):
            try:
                return function(self, *args, **kwargs)
            except Exception as error:
                self.record.warn(doing, error)
                return otherwise
        return guarded
    return decorate
