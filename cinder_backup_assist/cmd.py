# SPDX-License-Identifier: Apache-2.0
"""cinder-backup-assist: serves blocks of volumes from their backups.

It reads the cinder.conf of the host, beside cinder-backup and with its
rights.  SIGTERM and SIGINT end it; SIGHUP has it read its certificates
again.
"""

from __future__ import annotations

from collections.abc import Sequence
import queue
import signal
import sys

from oslo_config import cfg
from oslo_log import log
from oslo_service import backend
import pbr.version

PROGRAM = 'cinder-backup-assist'
_STOP = (signal.SIGTERM, signal.SIGINT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the daemon; return the exit status."""
    # Before anything of Cinder is imported, which would choose eventlet.
    backend.init_backend(backend.BackendType.THREADING)
    from cinder import objects
    from cinder.common import config  # noqa: F401

    # Before the manager, where backup_driver is declared.
    objects.register_all()
    from cinder.backup import manager  # noqa: F401

    from cinder_backup_assist import conf as options
    from cinder_backup_assist import errors
    from cinder_backup_assist.service import daemon

    release = pbr.version.VersionInfo('nova-dedup-migrate').release_string()
    conf = cfg.CONF
    log.register_options(conf)
    options.register_opts(conf)
    conf(sys.argv[1:] if argv is None else argv, project='cinder',
         prog=PROGRAM, version=release)
    log.setup(conf, PROGRAM, release)
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (*_STOP, signal.SIGHUP):
        signal.signal(number, lambda number, frame: signals.put(number))
    try:
        assist = daemon.AssistDaemon(conf)
    except (errors.AssistError, ValueError, OSError) as error:
        print('%s: %s' % (PROGRAM, error), file=sys.stderr)
        return 1
    assist.start()
    while signals.get() == signal.SIGHUP:
        assist.reload()
    for number in _STOP:
        signal.signal(number, signal.SIG_DFL)
    assist.stop()
    return 0


if __name__ == '__main__':
    sys.exit(main())
