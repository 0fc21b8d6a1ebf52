# SPDX-License-Identifier: Apache-2.0
"""The command that moves a server with its volumes.

Like "backups" it is a client of the cloud, with the credentials of the
caller (clouds.yaml or OS_*).
"""

from __future__ import annotations

import argparse
import logging
from typing import Any

from cliff import lister

from nova_dedup_migrate.cmd import clouds
from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.server_move import cloud
from nova_dedup_migrate.server_move import mover
from nova_dedup_migrate.server_move import obstacles

LOG = logging.getLogger(__name__)

_TIMEOUT = 86400


class Move(lister.Lister):
    """Move a server's volumes to another backend, and the server to a host.

    What was done before, by this command or others, is not done again.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='SERVER',
                            help='name or ID of the server')
        parser.add_argument(
            '--host', default='', metavar='HOST',
            help='nova-compute that the server is to be on (default: where '
                 'it is)')
        where = parser.add_mutually_exclusive_group()
        where.add_argument(
            '--volume-backend', default='', metavar='HOST@BACKEND#POOL',
            help='where its volumes are to be')
        where.add_argument(
            '--volume-type', default='', metavar='TYPE',
            help='type that its volumes are to have; they move if it needs '
                 'another backend')
        parser.add_argument(
            '--check', action='store_true',
            help='list the steps, or what is in the way, and change nothing')
        parser.add_argument(
            '--timeout', type=int, default=_TIMEOUT, metavar='SECONDS',
            help='for each step; then it goes on without this command '
                 '(default: %d)' % _TIMEOUT)
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        goal = obstacles.Goal(parsed_args.host, parsed_args.volume_backend,
                              parsed_args.volume_type)
        if goal == obstacles.Goal():
            raise errors.CommandFailed(
                reason='--host, --volume-backend or --volume-type is needed')
        one = mover.Mover(cloud.Cloud(clouds.connect()), goal,
                          parsed_args.timeout, LOG.info)
        try:
            steps = (one.plan if parsed_args.check else one.move)(
                parsed_args.server)
        except KeyboardInterrupt:
            raise errors.CommandFailed(
                reason='interrupted: what was begun goes on; run the same '
                'command again to wait for it') from None
        return (('step', 'name', 'from', 'to', 'state', 'time'),
                [(step.what, step.name, step.source, step.destination,
                  step.state, columns.duration(step.seconds))
                 for step in steps])
