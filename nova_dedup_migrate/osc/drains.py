# SPDX-License-Identifier: Apache-2.0
"""openstack dedup drain"""

from __future__ import annotations

import argparse
from typing import Any

from nova_dedup_migrate.osc import base
from nova_dedup_migrate.osc import format as formats
from nova_dedup_migrate.osc import waiting

_ENDED = ('drained', 'partial', 'cancelled', 'failed', 'checked')
#: Exit status of --wait by state; blocked needs an operator.
_STATUS = {'drained': 0, 'checked': 0, 'partial': waiting.PARTIAL,
           'blocked': waiting.PARTIAL, 'cancelled': waiting.FAILED,
           'failed': waiting.FAILED}
_MOVED = ('moved', 'stopped', 'gone')
_ON_BLOCKED = ('wait', 'skip', 'stop', 'cold')


def _add_limits(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--max-parallel', type=int, metavar='NUMBER',
                        help='servers that leave the host at a time')
    parser.add_argument('--link-rate', type=float, metavar='MB/S',
                        help='megabytes per second of the link that this '
                             'drain plans with')
    parser.add_argument('--deadline', metavar='TIME',
                        help='time like 2026-01-31T12:00:00Z, after which '
                             'no further server is moved')


def _choice(text: str) -> dict[str, str]:
    """Return what the API has for SERVER=CHOICE."""
    server, _, choice = text.partition('=')
    if choice not in _ON_BLOCKED:
        raise argparse.ArgumentTypeError(
            '%s is not SERVER=CHOICE, with one of the choices %s'
            % (text, ', '.join(_ON_BLOCKED)))
    return {'server_id': server, 'on_blocked': choice}


def _limits(parsed_args: argparse.Namespace) -> dict[str, Any]:
    made = {name: getattr(parsed_args, name)
            for name in ('max_parallel', 'deadline')
            if getattr(parsed_args, name) is not None}
    if parsed_args.link_rate is not None:
        made['link_rate'] = parsed_args.link_rate * 1e6
    return made


class _Waiting(base.ShowOne):
    """A command with --wait."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--wait', action='store_true',
            help='show progress until the drain has ended or is blocked; '
                 'the exit status is 0 if the host is empty, 2 if servers '
                 'stay, 3 if it failed or was cancelled. Ctrl-C ends the '
                 'waiting and not the drain')
        return parser

    def wait(self, parsed_args: argparse.Namespace, drain: Any) -> Any:
        """Return the drain at its end if --wait is set."""
        if not parsed_args.wait:
            return drain
        drain_id = drain.id
        drain, over = waiting.wait(
            lambda: self.proxy.get_drain(drain_id), is_over, describe)
        if not over:
            self.app.stderr.write(
                'Drain %s goes on: see openstack dedup drain show %s\n'
                % (drain_id, drain_id))
            self.status = waiting.DETACHED
        else:
            self.status = _STATUS[drain['state']]
        return drain


def is_over(drain: Any) -> bool:
    """Whether nothing happens any more without an operator."""
    return drain['requested'] in ('run', 'pause') and (
        drain['state'] in (*_ENDED, 'blocked'))


def describe(drain: Any) -> str:
    """Return the progress of a drain in a line."""
    counts = drain['counts']
    total = sum(counts.values())
    moved = sum(counts[name] for name in _MOVED)
    others = ', '.join('%d %s' % (number, name)
                       for name, number in counts.items()
                       if number and name not in _MOVED)
    made = '%s %s %d of %d servers moved' % (
        waiting.bar(moved / total if total else 0.0), drain['state'],
        moved, total)
    if others:
        made += ', ' + others
    if drain['eta'] is not None and drain['state'] not in _ENDED:
        made += ', left: ' + formats.band_text(drain['eta'])
    if drain['reason']:
        made += ': ' + formats.clean(drain['reason'])
    return made


class CreateDrain(_Waiting):
    """Move all servers of a host to others"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('host', metavar='HOST', help='name of the host')
        parser.add_argument('--id', metavar='UUID',
                            help='ID of the drain; with it the command can '
                                 'be repeated safely')
        parser.add_argument('--dry-run', action='store_true',
                            help='only find out which servers can move, '
                                 'and predict the time')
        parser.add_argument(
            '--order', choices=('longest', 'working_set', 'shortest'),
            help='longest predicted time first (default; with a deadline '
                 'the shortest), or smallest writable working set')
        parser.add_argument(
            '--on-blocked', choices=_ON_BLOCKED,
            help='what happens to servers that cannot move (default: wait)')
        parser.add_argument(
            '--choice', action='append', default=[], type=_choice,
            metavar='SERVER=CHOICE',
            help='as --on-blocked, for one server, by its UUID; may be '
                 'repeated')
        _add_limits(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        values = {'host': parsed_args.host, **_limits(parsed_args)}
        for name in ('id', 'order', 'on_blocked'):
            if getattr(parsed_args, name) is not None:
                values[name] = getattr(parsed_args, name)
        if parsed_args.dry_run:
            values['dry_run'] = True
        if parsed_args.choice:
            values['servers'] = parsed_args.choice
        return self.shown(self.wait(
            parsed_args, self.proxy.create_drain(**values)))


class ListDrains(base.Lister):
    """List drains, the newest first"""

    names = ('id', 'host', 'state', 'safe_to_power_off', 'eta',
             'created_at')
    more = ('reason', 'counts', 'dry_run', 'order', 'deadline')

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('--state', metavar='STATE',
                            help='only those in this state')
        parser.add_argument('--host', metavar='HOST',
                            help='only those of this host')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        query = {name: getattr(parsed_args, name)
                 for name in ('state', 'host')
                 if getattr(parsed_args, name) is not None}
        return self.listed(parsed_args, self.proxy.drains(**query))


class _OneDrain(base.Command):
    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('drain', metavar='ID', help='ID of the drain')
        return parser


class ShowDrain(_OneDrain, _Waiting):
    """Show a drain"""

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.shown(self.wait(
            parsed_args, self.proxy.get_drain(parsed_args.drain)))


class SetDrain(_OneDrain, base.ShowOne):
    """Change the limits of a drain"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        _add_limits(parser)
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.shown(self.proxy.update_drain(
            parsed_args.drain, **_limits(parsed_args)))


class PauseDrain(_OneDrain, base.ShowOne):
    """Start no further migration of a drain"""

    body: dict[str, Any] = {'pause': None}

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.shown(self.proxy.act_on_drain(parsed_args.drain,
                                                  self.body))


class ResumeDrain(PauseDrain):
    """Go on with a drain that is paused"""

    body = {'resume': None}


class RetryDrain(_OneDrain, _Waiting):
    """Try again to move the servers that stayed"""

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.shown(self.wait(parsed_args, self.proxy.act_on_drain(
            parsed_args.drain, {'retry': None})))


class CancelDrain(_OneDrain, base.ShowOne):
    """End a drain; the host may get servers again"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--in-flight', choices=('wait', 'abort'), default='wait',
            help='what happens to the migrations that run (default: wait)')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.shown(self.proxy.act_on_drain(
            parsed_args.drain,
            {'cancel': {'in_flight': parsed_args.in_flight}}))


class DeleteDrain(_OneDrain):
    """Delete a drain that has ended"""

    def take_action(self, parsed_args: argparse.Namespace) -> None:
        self.proxy.delete_drain(parsed_args.drain)


class ListServers(_OneDrain, base.Lister):
    """List the servers of a drain"""

    names = ('position', 'server_id', 'server_name', 'state', 'reason',
             'destination', 'tries')
    more = ('action', 'on_blocked', 'migration_uuid', 'started_at',
            'finished_at')

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.listed(parsed_args, sorted(
            self.proxy.drain_servers(parsed_args.drain),
            key=lambda one: one['position']))


class SetServer(_OneDrain, base.ShowOne):
    """Skip a server of a drain, or change its turn or choice"""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='SERVER',
                            help='UUID of the server')
        parser.add_argument('--skip', action='store_true',
                            help='leave it on the host')
        parser.add_argument('--position', type=int, metavar='NUMBER',
                            help='its turn; 0 is the first')
        parser.add_argument('--on-blocked',
                            choices=_ON_BLOCKED,
                            help='what happens if it cannot move')
        return parser

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        values: dict[str, Any] = {}
        if parsed_args.skip:
            values['skip'] = True
        for name in ('position', 'on_blocked'):
            if getattr(parsed_args, name) is not None:
                values[name] = getattr(parsed_args, name)
        return self.shown(self.proxy.update_drain_server(
            parsed_args.drain, parsed_args.server, **values))


class ListEvents(_OneDrain, base.Lister):
    """List what happened in a drain, the newest first"""

    names = ('at', 'server_id', 'message')

    def take_action(self, parsed_args: argparse.Namespace) -> Any:
        return self.listed(parsed_args,
                           self.proxy.drain_events(parsed_args.drain))
