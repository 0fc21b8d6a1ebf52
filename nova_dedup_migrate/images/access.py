# SPDX-License-Identifier: Apache-2.0
"""Doing an operation with as little privilege as it takes.

Each is done in this process, and where that is not permitted, in the
privileged helper: it is started when it is needed first, by
[dedup_migrate_privileged] helper_command.
"""

import logging
import os
import threading
import time

from oslo_privsep import comm
from oslo_privsep import daemon

from nova_dedup_migrate.images import operations
from nova_dedup_migrate.images import privileged

LOG = logging.getLogger(__name__)

#: Seconds until a helper that could not be started is tried again.
RETRY = 600.0

_guard = threading.Lock()
_not_before = 0.0


def hold_lock(path, roots, offset):
    """Lock as operations.hold_lock; return a function that unlocks."""
    number, module = _call('hold_lock', path, roots, offset)
    return lambda: module.release_lock(number)


def is_locked(path, roots, offset):
    return _call('is_locked', path, roots, offset)[0]


def sample(path, roots, key, block=False):
    return _call('sample', path, roots, key, block)[0]


def read_rate(path, roots, limit, seconds, block=False):
    return _call('read_rate', path, roots, limit, seconds, block)[0]


def _call(name, *args):
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


def _may_try():
    with _guard:
        return time.monotonic() >= _not_before


def _note_failure(error):
    global _not_before
    with _guard:
        _not_before = time.monotonic() + RETRY
    LOG.warning('The privileged helper cannot be used, so disks that only '
                'QEMU may read are not looked at for %d s: %s', RETRY, error)
