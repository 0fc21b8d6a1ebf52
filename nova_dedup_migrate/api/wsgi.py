# SPDX-License-Identifier: Apache-2.0
"""The module that WSGI servers load: ``application``.

uWSGI looks into the module's dictionary, and has to be given
``init_application()``.

nova-dedup-migrate.conf is read from /etc/nova-dedup-migrate, or from the
directory that the variable OS_DEDUP_MIGRATE_CONFIG_DIR names.
"""

from __future__ import annotations

from collections.abc import Callable
import os
from typing import Any

from oslo_config import cfg

from nova_dedup_migrate.api import deploy
from nova_dedup_migrate.cmd import controller
from nova_dedup_migrate.db import facade


def init_application(conf: cfg.ConfigOpts | None = None
                     ) -> Callable[..., Any]:
    """Return the WSGI application.

    :param conf: default: one that is read from the files
    """
    directory = os.environ.get('OS_DEDUP_MIGRATE_CONFIG_DIR')
    arguments = ([] if not directory else
                 ['--config-file',
                  os.path.join(directory, 'nova-dedup-migrate.conf')])
    conf = conf or controller.configure(cfg.ConfigOpts(), arguments,
                                        'nova-dedup-migrate-api')
    return deploy.deploy(conf, facade.Database(conf))


_application: Callable[..., Any] | None = None


def __getattr__(name: str) -> Any:
    """Make the application when a server looks for it, not on import."""
    global _application
    if name != 'application':
        raise AttributeError(name)
    if _application is None:
        _application = init_application()
    return _application
