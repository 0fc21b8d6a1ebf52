# SPDX-License-Identifier: Apache-2.0
"""A backup daemon beside volumes that move, in a process of its own."""

from __future__ import annotations

import multiprocessing
from multiprocessing import managers

from benchmarks import pairs
from benchmarks import volume_load
from benchmarks import volume_servers
from cinder_backup_assist.tests.cinder_functional import real_backups

_FORK = multiprocessing.get_context('fork')


class Daemon:
    """A backup daemon in a process of its own.

    It has a copy of the database of the test, so backups have to be made
    before.

    :param test: a test_service.ServiceTestCase
    :param database: path of the copy, which does not exist
    :ivar api: a BackupAssistAPI, by proxy
    """

    def __init__(self, test, database: str) -> None:
        served: dict = {}
        rows = real_backups.dump_database()

        class Manager(managers.BaseManager):
            pass

        def start() -> None:
            volume_load.end_with_parent()
            real_backups.load_database(rows, database)
            test.override_config(
                'listen_address', volume_servers.BEHIND, 'backup_assist')
            test.override_config(
                'advertised_address', volume_servers.BEFORE,
                'backup_assist')
            served['port'] = test.start_daemon().web.port

        Manager.register('api', callable=lambda: test.api)
        Manager.register('served', callable=lambda: served)
        self._manager = Manager(ctx=_FORK)
        self._manager.start(start)
        self.api = self._manager.api()
        self.port = self._manager.served().get('port')
        # The only way to know it.
        self._pid = self._manager._process.pid

    def used(self) -> tuple[float, int]:
        """Return (processor seconds, bytes read from files)."""
        return (pairs.processor_time(self._pid),
                volume_servers.bytes_read(self._pid))

    def stop(self) -> None:
        self._manager.shutdown()
