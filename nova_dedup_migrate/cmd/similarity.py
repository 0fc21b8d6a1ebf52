# SPDX-License-Identifier: Apache-2.0
"""The command that compares disks."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
import importlib.util
from typing import Any

from cliff import lister

from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.images import paths
from nova_dedup_migrate.storage import similarity

#: What stands for the index of this host.
HOST = 'index'


class Similarity(lister.Lister):
    """Show how much of each disk the others hold.

    Each row is a disk, and each column the share of its blocks that
    another one has, wherever they are; blocks of zeros are left out.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'disks', nargs='+', metavar='DISK',
            help='file or block device; "%s" is all that the index of this '
                 'host has' % HOST)
        parser.add_argument(
            '--png', metavar='FILE',
            help='write a heat map there; needs matplotlib')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        if parsed_args.png and not importlib.util.find_spec('matplotlib'):
            raise errors.SimilarityFailed(
                disk=parsed_args.png, reason='matplotlib is not installed; '
                'install nova-dedup-migrate[benchmarks]')
        contents = [self._content(disk) for disk in parsed_args.disks]
        shares = similarity.matrix(contents)
        names = [content.name for content in contents]
        if parsed_args.png:
            heat_map(names, shares, parsed_args.png)
        return (('disk', 'size', 'zeros', 'repeated', 'read', 'time',
                 *_distinct(names)),
                [(content.name, columns.size(content.size),
                  columns.share(content.zero_share),
                  columns.share(content.own_share),
                  columns.size(content.read),
                  columns.duration(content.seconds),
                  *map(columns.share, row))
                 for content, row in zip(contents, shares, strict=True)])

    def _content(self, disk: str) -> similarity.Content:
        if disk == HOST:
            with configuration.open_index(self.app.options) as index:
                return similarity.of_index(index, HOST)
        try:
            return similarity.of_file(disk)
        except (OSError, paths.PathRefused) as error:
            raise errors.SimilarityFailed(disk=disk,
                                          reason=error) from error


def _distinct(names: Sequence[str]) -> list[str]:
    """Return headings, which must differ."""
    return [name if names.count(name) == 1 else '%s (%d)' % (name, number)
            for number, name in enumerate(names, 1)]


def heat_map(names: Sequence[str], shares: Sequence[Sequence[float]],
             path: str) -> None:
    """Write a PNG with a square for each pair."""
    from matplotlib import figure
    from matplotlib.backends import backend_agg

    side = max(4.0, 1.0 + 0.6 * len(names))
    drawn = figure.Figure(figsize=(side + 1, side), layout='constrained')
    backend_agg.FigureCanvasAgg(drawn)
    axes = drawn.add_subplot()
    image = axes.imshow(shares, vmin=0, vmax=1, cmap='viridis')
    axes.set_xticks(range(len(names)), names, rotation=45, ha='right')
    axes.set_yticks(range(len(names)), names)
    axes.set_xlabel('held by')
    axes.set_ylabel('blocks of')
    for row, values in enumerate(shares):
        for column, value in enumerate(values):
            axes.text(column, row, '%.0f' % (100 * value), ha='center',
                      va='center', color='white' if value < 0.6 else 'black')
    drawn.colorbar(image, label='share of blocks')
    drawn.savefig(path, format='png')
