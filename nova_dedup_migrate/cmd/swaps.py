# SPDX-License-Identifier: Apache-2.0
"""The commands for the volumes that are swapped on this host."""

from __future__ import annotations

import argparse
import datetime
import logging
import os
import time
from typing import Any

from cliff import command
from cliff import lister

from nova_dedup_migrate.cmd import arguments
from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.swaps import operations

LOG = logging.getLogger(__name__)

#: Seconds between two looks at a swap that is to end.
_INTERVAL = 0.5


def _operations(options: argparse.Namespace) -> operations.SwapOperations:
    """:raises ConfigurationError:"""
    conf = configuration.load(options)
    return operations.SwapOperations(os.path.join(
        conf.dedup_migrate.volumes_path, 'swaps'))


class ListSwaps(lister.Lister):
    """List the last move of each volume, and where its bytes came from.

    Of a move that is under way: how far it is.
    """

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        found = sorted(_operations(self.app.options).swaps(),
                       key=lambda swap: swap.began, reverse=True)
        now = time.time()
        return (('instance', 'disk', 'volume', 'began', 'phase', 'done',
                 'time', 'size', 'from_backup', 'from_agents', 'zeros',
                 'from_volume',
                 'outcome'),
                [(swap.instance, swap.disk, swap.old_volume,
                  columns.time(datetime.datetime.fromtimestamp(
                      swap.began, datetime.timezone.utc)
                      if swap.began else None),
                  swap.phase,
                  columns.share(swap.done / swap.total
                                if swap.under_way and swap.total else None),
                  columns.duration(now - swap.began if swap.under_way
                                   and swap.began else swap.seconds or None),
                  columns.size(swap.size or None),
                  *(columns.size(swap.sources.get(name))
                    for name in ('backup', 'agents', 'zero', 'volume')),
                  columns.text(swap.outcome)) for swap in found])


class AbortSwap(command.Command):
    """End the move of a volume that is filled or copied.

    Run it on the host of the instance.  The instance keeps its volume.  Cinder
    deletes the new one.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='SERVER', type=arguments.uuid,
                            help='UUID of the instance')
        parser.add_argument('volume', metavar='VOLUME', type=arguments.uuid,
                            help='UUID of the volume')
        parser.add_argument('--timeout', type=float, default=120.0,
                            metavar='SECONDS',
                            help='wait so long for the end '
                                 '(default: %(default)g)')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        kept = _operations(self.app.options)
        server, volume = parsed_args.server, parsed_args.volume
        swap = max((one for one in kept.swaps()
                    if one.instance == server and one.old_volume == volume),
                   key=lambda one: one.began, default=None)
        if swap is None:
            raise errors.AbortFailed(
                volume=volume, reason='this host has no record that it '
                'moves; run the command on the host of the instance')
        if not swap.under_way:
            raise errors.AbortFailed(
                volume=volume, reason='its last move is over: %s'
                % swap.outcome)
        try:
            kept.request_abort(swap)
        except OSError as error:
            raise errors.AbortFailed(
                volume=volume, reason='the request cannot be written: %s'
                % error) from error
        end = time.monotonic() + parsed_args.timeout
        while _is_same(found := kept.load(swap.instance, swap.disk), swap):
            if time.monotonic() >= end:
                raise errors.AbortFailed(
                    volume=volume, reason='nova-compute has not ended the '
                    'move yet. The request stays, and is carried out when '
                    'nova-compute sees it; see "swap list" and the log')
            time.sleep(_INTERVAL)
        if found is None or found.began != swap.began:
            raise errors.AbortFailed(
                volume=volume, reason='its record was replaced')
        if found.phase in (operations.PIVOTED, operations.ENDED):
            raise errors.AbortFailed(
                volume=volume, reason='it was over before that: %s'
                % found.outcome)
        LOG.info('Volume %s of instance %s does not move: %s', volume, server,
                 found.outcome)


def _is_same(found: operations.Swap | None, swap: operations.Swap) -> bool:
    """Return whether a swap is still under way."""
    return (found is not None and found.under_way
            and found.began == swap.began)
