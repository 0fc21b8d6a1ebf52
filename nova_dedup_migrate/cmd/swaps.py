# SPDX-License-Identifier: Apache-2.0
"""The command that lists the volumes that were swapped on this host."""

from __future__ import annotations

import argparse
import datetime
import os
from typing import Any

from cliff import lister

from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.swaps import operations


class ListSwaps(lister.Lister):
    """List the last move of each volume, and where its bytes came from."""

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        conf = configuration.load(self.app.options)
        found = sorted(operations.SwapOperations(os.path.join(
            conf.dedup_migrate.volumes_path, 'swaps')).swaps(),
            key=lambda swap: swap.began, reverse=True)
        return (('instance', 'disk', 'volume', 'began', 'time', 'size',
                 'from_backup', 'from_agents', 'zeros', 'from_volume',
                 'outcome'),
                [(swap.instance, swap.disk, swap.old_volume,
                  columns.time(datetime.datetime.fromtimestamp(
                      swap.began, datetime.timezone.utc)
                      if swap.began else None),
                  columns.duration(swap.seconds or None),
                  columns.size(swap.size or None),
                  *(columns.size(swap.sources.get(name))
                    for name in ('backup', 'agents', 'zero', 'volume')),
                  columns.text(swap.outcome)) for swap in found])
