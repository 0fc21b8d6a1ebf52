# SPDX-License-Identifier: Apache-2.0
"""nova-dedup-migrate: reports, blocks of this host, the small controller.

doc/source/reference/cli.rst has each command and option; a test compares.
"""

import argparse
from collections.abc import Sequence
import sys
from typing import Any

from cliff import app
from cliff import commandmanager
import pbr.version

from nova_dedup_migrate.cmd import backups
from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.cmd import index
from nova_dedup_migrate.cmd import move
from nova_dedup_migrate.cmd import report
from nova_dedup_migrate.cmd import serve
from nova_dedup_migrate.cmd import similarity
from nova_dedup_migrate.cmd import swaps

try:
    from nova_dedup_migrate.cmd import estimate
    from nova_dedup_migrate.cmd import replica
except ImportError:
    # Without libvirt's module the other commands work.
    estimate = replica = None  # type: ignore[assignment]

COMMANDS: dict[str, Any] = {
    'backups': backups.ListBackups,
    'index build': index.Build,
    'index status': index.Status,
    'move': move.Move,
    'report list': report.ListReports,
    'report rounds': report.ListRounds,
    'report show': report.ShowReport,
    'serve': serve.Serve,
    'similarity': similarity.Similarity,
    'swap abort': swaps.AbortSwap,
    'swap list': swaps.ListSwaps,
}
if replica is not None:
    COMMANDS.update({
        'estimate': estimate.Estimate,
        'prepare': replica.Prepare,
        'replica cancel': replica.Cancel,
        'replica list': replica.List,
    })


class DedupMigrateApp(app.App):
    """The command."""

    def __init__(self, **kwargs: Any) -> None:
        manager = commandmanager.CommandManager('nova_dedup_migrate.cli')
        for name, command in COMMANDS.items():
            manager.add_command(name, command)
        super().__init__(
            description='Shows the reports of the live migrations that had '
                        'this host as their source, and which blocks this '
                        'host has; moves servers with their volumes; serves '
                        'the controller of a small site.',
            version=pbr.version.VersionInfo(
                'nova-dedup-migrate').release_string(),
            command_manager=manager, deferred_help=True, **kwargs)

    def build_option_parser(self, description: str | None,
                            version: str | None,
                            argparse_kwargs: dict[str, Any] | None = None
                            ) -> argparse.ArgumentParser:
        parser = super().build_option_parser(description, version,
                                             argparse_kwargs)
        configuration.add_options(parser)
        return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return the exit status."""
    return DedupMigrateApp().run(
        list(sys.argv[1:] if argv is None else argv))


if __name__ == '__main__':
    sys.exit(main())
