# SPDX-License-Identifier: Apache-2.0
"""What can go wrong with a guest or its image, each in one sentence."""

from collections.abc import Sequence
from pathlib import Path
import subprocess

from nova_dedup_migrate.errors import DedupMigrateError


class GuestError(DedupMigrateError):
    """Base of all.

    :param reason: one sentence for the user
    """

    template = '{reason}'

    def __init__(self, reason: str) -> None:
        super().__init__(reason=reason)


class BuildError(GuestError):
    """The guest image or a data disk cannot be made."""


class GuestFailed(GuestError):
    """The guest does not boot, answer, or verify."""


def run(command: Sequence[str | Path], **options: object) -> str:
    """Standard output of a command, or BuildError with its last line."""
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words, check=True, capture_output=True, text=True, **options
        )
    except FileNotFoundError:
        raise BuildError(f'{words[0]} is not installed') from None
    except subprocess.CalledProcessError as failed:
        lines = (failed.stderr or failed.stdout or '').strip().splitlines()
        why = lines[-1] if lines else f'exit status {failed.returncode}'
        raise BuildError(f'{words[0]} failed: {why}') from None
    return done.stdout
