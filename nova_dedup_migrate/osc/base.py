# SPDX-License-Identifier: Apache-2.0
"""What the commands share."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

from osc_lib.command import command

from nova_dedup_migrate.osc import format as formats


class Command(command.Command):
    """:ivar status: exit status, if the command itself succeeds"""

    status = 0

    @property
    def proxy(self) -> Any:
        """osc.sdk.Proxy."""
        manager: Any = self.app.client_manager
        return manager.dedup_migrate

    def run(self, parsed_args: argparse.Namespace) -> int:
        return int(super().run(parsed_args) or self.status)


class ShowOne(Command, command.ShowOne):
    """Shows all fields of a resource."""

    @staticmethod
    def shown(found: Any) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        return formats.everything(found, formats.FORMS)


class Lister(Command, command.Lister):
    """:cvar names: fields that are shown
    :cvar more: fields that are shown with --long
    """

    names: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        if self.more:
            parser.add_argument('--long', action='store_true',
                                help='show more columns')
        return parser

    def listed(self, parsed_args: argparse.Namespace, found: Iterable[Any]
               ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        names = self.names
        if self.more and parsed_args.long:
            names += self.more
        return names, [formats.row(one, names, formats.FORMS)
                       for one in found]
