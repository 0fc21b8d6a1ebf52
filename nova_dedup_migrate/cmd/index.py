# SPDX-License-Identifier: Apache-2.0
"""The commands for the index of this host."""

from __future__ import annotations

import argparse
import datetime
import logging
from typing import Any

from cliff import command
from cliff import lister

from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage.index import fingerprints

LOG = logging.getLogger(__name__)


class Status(lister.Lister):
    """List the files that the index of this host has."""

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        with configuration.open_index(self.app.options) as index:
            files = sorted(index.files(), key=lambda file: file.path)
        return (('file', 'owner', 'size', 'indexed', 'at'),
                [(file.path, file.owner, columns.size(file.size),
                  columns.size(file.entries * blocks.BLOCK),
                  columns.time(datetime.datetime.fromtimestamp(
                      file.indexed, datetime.timezone.utc)))
                 for file in files])


class Build(command.Command):
    """Index files now, without waiting for the agent.

    The agent does so in the background, for cached images and disks of
    instances.  The index is its own while it runs.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('files', nargs='+', metavar='FILE',
                            help='image or disk, absolute path')
        parser.add_argument(
            '--owner', required=True,
            help='whose content it is: ID of a project, or "public" if '
                 'every project may learn that this host has it')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        with configuration.open_index(self.app.options, True) as index:
            for path in parsed_args.files:
                try:
                    with paths.open_file(path, None) as fd:
                        found = fingerprints.fingerprint(fd)
                except (OSError, paths.PathRefused) as error:
                    raise errors.IndexFailed(path=path,
                                             reason=error) from error
                file = index.add(path, parsed_args.owner, found.stat,
                                 found.digests, found.numbers)
                if file is None:
                    raise errors.IndexFailed(
                        path=path, reason='it has %d blocks, more than '
                        '[dedup_migrate] index_max_entries'
                        % len(found.numbers))
                LOG.info('File %s is indexed: %d blocks, %d of zeros', path,
                         file.entries, found.zeros)
