# SPDX-License-Identifier: Apache-2.0
"""The configuration of the programs of the controller."""

from __future__ import annotations

from collections.abc import Sequence

from oslo_config import cfg
from oslo_log import log
from oslo_policy import opts as policy_opts
import pbr.version

from nova_dedup_migrate.conf import controller as options
from nova_dedup_migrate.db import facade


def release() -> str:
    """Return the release of this package."""
    return str(pbr.version.VersionInfo(
        'nova-dedup-migrate').release_string())


def register(conf: cfg.ConfigOpts) -> None:
    """Make the options of all programs of the controller known."""
    log.register_options(conf)
    options.register_opts(conf)
    facade.register_opts(conf, options.DATABASE)
    policy_opts.set_defaults(conf)


def configure(conf: cfg.ConfigOpts, argv: Sequence[str], program: str
              ) -> cfg.ConfigOpts:
    """Read nova-dedup-migrate.conf and set up logging.

    :param conf: of a program with an engine cfg.CONF, where oslo.messaging
        has options that it reads of whatever it is given
    :param argv: arguments of the program
    """
    register(conf)
    conf(list(argv), project=options.PROJECT, prog=program,
         version=release())
    log.setup(conf, program, release())
    return conf
