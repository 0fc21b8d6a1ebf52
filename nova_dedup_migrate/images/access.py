# SPDX-License-Identifier: Apache-2.0
"""Operations on images, with as little privilege as possible.

Each is done in this process or, if that is not permitted, in the
privileged helper: it is started when it is needed first, by
[dedup_migrate_privileged] helper_command.
"""

from __future__ import annotations

from collections.abc import Callable
import logging
import os
import threading
import time
from typing import Any

from oslo_privsep import comm
from oslo_privsep import daemon

from nova_dedup_migrate.images import operations
from nova_dedup_migrate.images import privileged

LOG = logging.getLogger(__name__)

#: Seconds until a helper that could not be started is tried again.
RETRY = 600.0

_guard = threading.Lock()
_not_before = 0.0


def hold_lock(path: str, roots: operations.Roots, offset: int
              ) -> Callable[[], None]:
    """Lock as operations.hold_lock; return a function that unlocks."""
    number, module = _call('hold_lock', path, roots, offset)
    return lambda: module.release_lock(number)


def is_locked(path: str, roots: operations.Roots, offset: int) -> bool:
    return _call('is_locked', path, roots, offset)[0]


def sample(path: str, roots: operations.Roots, key: str,
           block: bool = False) -> str | None:
    return _call('sample', path, roots, key, block)[0]


def read_rates(path: str, roots: operations.Roots, limit: int,
               seconds: float, block: bool = False
               ) -> tuple[float | None, float | None]:
    """Measure as operations.read_rates; return both rates."""
    sequential, scattered = _call('read_rates', path, roots, limit, seconds,
                                  block)[0]
    return sequential, scattered


def _call(name: str, *args: Any) -> tuple[Any, Any]:
    """Return the operation's result and the module that did it."""
    try:
        return getattr(operations, name)(*args), operations
    except PermissionError as error:
        # A network file system's server that refuses root refuses root's
        # helper as well.
        if os.geteuid() == 0 or not _may_try():
            raise
        refused = error
    try:
        return getattr(privileged, name)(*args), privileged
    except (daemon.FailedToDropPrivileges, daemon.ProtocolError,
            comm.PrivsepTimeout, EOFError) as error:
        _note_failure(error)
        raise refused from error


def _may_try() -> bool:
    with _guard:
        return time.monotonic() >= _not_before


def _note_failure(error: Exception) -> None:
    global _not_before
    with _guard:
        _not_before = time.monotonic() + RETRY
    LOG.warning('The privileged helper of [dedup_migrate_privileged] '
                'helper_command failed: %s. Disks that only QEMU may read '
                'are not used; it is started again in %d s at the earliest. '
                'Check that sudo or rootwrap allows the command.', error,
                RETRY)
