# SPDX-License-Identifier: Apache-2.0
"""The configuration of the command nova-dedup-migrate."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import contextlib

from oslo_config import cfg

from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.conf import agent as agent_options
from nova_dedup_migrate.conf import dedup_migrate as options
from nova_dedup_migrate.conf import nova
from nova_dedup_migrate.conf import paths
from nova_dedup_migrate.operations import store
from nova_dedup_migrate.storage.index import store as index_store

PROGRAM = 'nova-dedup-migrate'


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that name nova.conf."""
    parser.add_argument(
        '--config-file', action='append', default=[], metavar='FILE',
        help='nova.conf of this host, of "serve" nova-dedup-migrate.conf; '
             'can be repeated (default: /etc/nova/nova.conf, of "serve" '
             '/etc/nova-dedup-migrate/nova-dedup-migrate.conf)')
    parser.add_argument(
        '--config-dir', action='append', default=[], metavar='DIRECTORY',
        help='directory with *.conf files, read after the files; can be '
             'repeated')


def open_store(arguments: argparse.Namespace) -> store.OperationStore:
    """Return the operations of this host, with their reports.

    :param arguments: with the options of add_options
    :raises ConfigurationError: nova.conf cannot be used
    """
    conf = load(arguments)
    try:
        return store.OperationStore(conf.dedup_migrate.operations_path,
                                    conf.dedup_migrate.operations_kept)
    except (cfg.Error, ValueError) as error:
        raise errors.ConfigurationError(reason=error) from error


@contextlib.contextmanager
def open_index(arguments: argparse.Namespace, writable: bool = False
               ) -> Iterator[index_store.Index]:
    """Give the index of this host.

    :param arguments: with the options of add_options
    :raises ConfigurationError: nova.conf cannot be used
    :raises StorageError: there is no index, or it is in use
    """
    conf = load(arguments)
    try:
        index = index_store.Index(conf.dedup_migrate.index_path,
                                  conf.dedup_migrate.index_max_entries,
                                  writable)
    except (cfg.Error, OSError) as error:
        raise errors.ConfigurationError(reason=error) from error
    with contextlib.closing(index):
        yield index


def load(arguments: argparse.Namespace) -> cfg.ConfigOpts:
    """Return the configuration of this host.

    :param arguments: with the options of add_options
    :raises ConfigurationError: nova.conf cannot be used
    """
    names = []
    for option, values in (('--config-file', arguments.config_file),
                           ('--config-dir', arguments.config_dir)):
        for value in values:
            names += [option, value]
    conf = cfg.ConfigOpts()
    options.register_opts(conf)
    agent_options.register_opts(conf)
    paths.register_opts(conf)
    nova.register_opts(conf)
    try:
        conf(names, project='nova', prog=PROGRAM)
    except (cfg.Error, ValueError) as error:
        raise errors.ConfigurationError(reason=error) from error
    return conf
