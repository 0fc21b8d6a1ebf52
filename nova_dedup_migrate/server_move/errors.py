# SPDX-License-Identifier: Apache-2.0
"""Errors of moves."""

from nova_dedup_migrate import errors


class MoveError(errors.DedupMigrateError):
    """Base of the errors of moves."""

    template = 'the server was not moved'


class NotFound(MoveError):
    template = 'there is no {kind} {name}'


class CallFailed(MoveError):
    template = 'cannot {doing}: {reason}'


class MoveRefused(MoveError):
    """:ivar obstacles: sentences"""

    template = ('server {server} is not moved, nothing was changed:\n'
                '  {reasons}')


class StepFailed(MoveError):
    template = ('{step} has failed: {reason}. What was done before stays; '
                'the same command goes on from there')


class StepLate(MoveError):
    template = ('{step} has not ended within {seconds} s and goes on. '
                'Run the same command again to wait for it')


class NotKept(MoveError):
    template = 'server {server} was moved, and this has changed:\n  {changes}'
