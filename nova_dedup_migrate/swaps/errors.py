# SPDX-License-Identifier: Apache-2.0
"""Errors of filling volumes; Nova's own swap then copies all."""

from nova_dedup_migrate import errors


class SwapError(errors.DedupMigrateError):
    template = 'the new volume is not filled from a backup: {reason}'


class NotFillable(SwapError):
    """There is nothing to fill it from, or it cannot be filled."""


class NotKept(SwapError):
    """The file of what has been read of a volume is not to be trusted."""
