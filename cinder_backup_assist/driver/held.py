# SPDX-License-Identifier: Apache-2.0
"""What these drivers add to Cinder's own."""

from __future__ import annotations

import logging
import sys
from typing import Any

from oslo_config import cfg

from cinder_backup_assist import conf as options
from cinder_backup_assist import leases

LOG = logging.getLogger(__name__)


class HeldBackups:
    """In front of one of Cinder's chunked drivers.

    :cvar STOCK: full name of that driver, for records of backups
    """

    STOCK: str

    def __init__(self, context: Any, *args: Any, **kwargs: Any) -> None:
        options.register_opts(cfg.CONF)
        # cinder-backup compares the driver of a record with its own, by
        # this table of drivers that were renamed.
        manager = sys.modules.get('cinder.backup.manager')
        if manager is not None:
            manager.MAPPING[self.STOCK] = '%s.%s' % (
                type(self).__module__, type(self).__qualname__)
        super().__init__(context, *args, **kwargs)  # type: ignore

    def backup(self, backup: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().backup(backup, *args, **kwargs)  # type: ignore
        finally:
            # Whatever the outcome, Cinder saves it with the status. So
            # either driver can delete a backup that has failed.
            backup.service = self.STOCK

    def delete_backup(self, backup: Any) -> None:
        assist = cfg.CONF.backup_assist
        if not leases.wait(assist.lease_directory, backup.id,
                           assist.lease_time):
            LOG.warning('Backup %s is deleted while cinder-backup-assist '
                        'reads it: lease_time of %d s is over', backup.id,
                        assist.lease_time)
        super().delete_backup(backup)  # type: ignore
