# SPDX-License-Identifier: Apache-2.0
"""Errors of volumes that are swapped.

After a SwapError Nova's own swap copies all.
"""

from nova_dedup_migrate import errors


class SwapError(errors.DedupMigrateError):
    template = 'the new volume is not filled from a backup: {reason}'


class NotFillable(SwapError):
    """There is nothing to fill it from, or it cannot be filled."""


class NotKept(SwapError):
    """The file of what has been read of a volume is not to be trusted."""


class Aborted(errors.DedupMigrateError):
    """An administrator has requested that the swap end."""

    template = ('the move of volume {volume} was aborted by an '
                'administrator; the instance keeps its volume')


class NotSettled(errors.DedupMigrateError):
    """An interrupted swap cannot be settled now."""

    template = '{reason}'


class LeftToOperator(NotSettled):
    """An interrupted swap cannot be settled by a program."""
