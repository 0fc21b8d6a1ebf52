# SPDX-License-Identifier: Apache-2.0
"""Errors of filling volumes; Nova's own swap then copies all."""

from nova_dedup_migrate import errors


class SwapError(errors.DedupMigrateError):
    template = 'the new volume is not filled from a backup: {reason}'


class NotFillable(SwapError):
    """There is nothing to fill it from, or it cannot be filled."""


class BackupDiffers(SwapError):
    """A block that nobody has written is not as the backup has it."""

    template = ('backup {backup_id} differs from volume {volume_id} at byte '
                '{offset}, although the guest has not written there since. '
                'The new volume is copied from the volume alone. Check who '
                'else writes to the volume')
