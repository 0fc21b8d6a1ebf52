# SPDX-License-Identifier: Apache-2.0
"""openstack dedup migration, estimate, host, service, replica"""

from __future__ import annotations

import argparse
import itertools
from typing import Any

from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.osc import base
from nova_dedup_migrate.osc import format as formats
from nova_dedup_migrate.osc import waiting

#: Migrations that are listed unless --limit has another number.
_LIMIT = 100


class ListMigrations(base.Lister):
    """List live migrations, the newest first"""

    names = ('uuid', 'server_id', 'source', 'destination', 'state',
             'strategy', 'share', 'eta', 'started_at')
    more = ('server_name', 'project_id', 'waiting_for', 'total_time',
            'downtime_ms', 'link_bytes', 'drain_id')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        for name, text in (
                ('state', 'running, completed, cancelled or failed'),
                ('host', 'source or destination'),
                ('server', 'UUID of the server'),
                ('project', 'ID of the project'),
                ('drain', 'ID of the drain'),
                ('changes-since', 'time like 2026-01-31T12:00:00Z')):
            parser.add_argument('--' + name, metavar=name.upper(),
                                help='only those with this: ' + text)
        parser.add_argument('--limit', type=int, default=_LIMIT,
                            metavar='NUMBER',
                            help='list so many (default: %d)' % _LIMIT)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        query = {name: getattr(parsed_args, name) for name in (
            'state', 'host', 'server', 'project', 'drain', 'changes_since')
            if getattr(parsed_args, name) is not None}
        return self.listed(parsed_args, itertools.islice(
            self.proxy.migrations(**query), parsed_args.limit))


class _OneMigration(base.Command):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('migration', metavar='UUID',
                            help='UUID of the migration')
        return parser


class ShowMigration(_OneMigration, base.ShowOne):
    """Show a live migration"""

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.shown(self.proxy.get_migration(parsed_args.migration))


class ShowReport(_OneMigration, base.ShowOne):
    """Show the report of a live migration"""

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.shown(self.proxy.get_report(parsed_args.migration))


class ListRounds(_OneMigration, base.Lister):
    """List the rounds of a live migration"""

    names = ('number', 'seconds', 'pages', 'transferred_bytes',
             'remaining_bytes', 'link_rate', 'dirty_rate')

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.listed(parsed_args,
                           self.proxy.rounds(parsed_args.migration))


class CreateEstimate(base.Lister):
    """Predict time and bytes of migrating a server, or all of a host"""

    names = ('server_id', 'server_name', 'blockers', 'strategy', 'time',
             'stock_time', 'confidence')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        what = parser.add_mutually_exclusive_group(required=True)
        what.add_argument('--server', metavar='UUID',
                          help='the server to migrate')
        what.add_argument('--host', metavar='HOST',
                          help='the host whose servers are to migrate')
        parser.add_argument('--wait', action='store_true',
                            help='wait for the estimate; without it the '
                                 'list is empty at first')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        values = ({'server_id': parsed_args.server}
                  if parsed_args.server else {'host': parsed_args.host})
        found = self.proxy.create_estimate(**values)
        if parsed_args.wait:
            estimate_id = found.id
            found, over = waiting.wait(
                lambda: self.proxy.get_estimate(estimate_id),
                lambda one: one['state'] in ('done', 'failed'),
                lambda one: 'Estimate %s: %s' % (one.id, one['state']),
                0.5)
            self.status = 0 if over else waiting.DETACHED
        if found['state'] == 'failed':
            self.app.stderr.write('The estimate failed: %s\n'
                                  % formats.clean(found['error']))
            self.status = waiting.FAILED
        elif found['state'] == 'done':
            self.app.stderr.write('All together: %s\n' % formats.band_text(
                found['total_time']))
        return self.names, [self._row(one)
                            for one in found['servers'] or ()]

    @staticmethod
    def _row(one: dict[str, Any]) -> tuple[Any, ...]:
        return (one['server_id'], formats.text(one['server_name']),
                columns.Formatted(one['blockers'], '\n'.join(
                    formats.clean(why['message'])
                    for why in one['blockers']) or '-'),
                one['strategy'],
                formats.band((one['plan'] or {}).get('time')),
                formats.band((one['stock'] or {}).get('time')),
                one['confidence'])


class ListHosts(base.Lister):
    """List hosts, with their agents"""

    names = ('name', 'agent', 'qemu', 'slots', 'link_rate', 'guests',
             'tracked_guests', 'waiting_reports')

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        names, _ = self.listed(parsed_args, ())
        forms = {**formats.FORMS, 'qemu': _qemu, 'slots': _slots}
        return names, [formats.row(one, names, forms)
                       for one in self.proxy.hosts()]


def _qemu(value: dict[str, Any]) -> columns.Formatted:
    return columns.Formatted(value, '-' if value['patched'] is None else
                             '%s %s' % ('patched' if value['patched']
                                        else 'stock',
                                        formats.clean(value['version'])))


def _slots(value: dict[str, Any]) -> columns.Formatted:
    return columns.Formatted(value, '%d of %d used' % (value['in_use'],
                                                       value['effective']))


class ShowHost(base.ShowOne):
    """Show a host"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='HOST', help='name of the host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.shown(self.proxy.get_host(parsed_args.host))


class SetHost(ShowHost):
    """Change the limits of a host"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--max-outbound', type=int, metavar='NUMBER',
                            help='servers that leave it at a time; 0: the '
                                 'default')
        parser.add_argument('--link-rate', type=float, metavar='MB/S',
                            help='megabytes per second its link carries; '
                                 '0: the default')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        values: dict[str, Any] = {}
        if parsed_args.max_outbound is not None:
            values['max_outbound'] = parsed_args.max_outbound or None
        if parsed_args.link_rate is not None:
            values['link_rate_limit'] = parsed_args.link_rate * 1e6 or None
        return self.shown(self.proxy.update_host(parsed_args.host,
                                                 **values))


class ListServices(base.Lister):
    """List the engines of the controller"""

    names = ('id', 'binary', 'host', 'state', 'release', 'started_at',
             'seen_at')

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.listed(parsed_args, self.proxy.services())


class ListReplicas(base.Lister):
    """List prepared replicas of disks"""

    names = ('server_id', 'host', 'disk', 'state', 'share', 'total_bytes',
             'refreshed_at', 'expires_at')
    more = ('source', 'allocated_bytes', 'reason')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        for name, text in (('host', 'where they are'),
                           ('server', 'UUID of the server')):
            parser.add_argument('--' + name, metavar=name.upper(),
                                help='only those with this: ' + text)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        query = {name: getattr(parsed_args, name)
                 for name in ('host', 'server')
                 if getattr(parsed_args, name) is not None}
        return self.listed(parsed_args, self.proxy.replicas(**query))
