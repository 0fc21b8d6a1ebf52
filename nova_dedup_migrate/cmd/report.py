# SPDX-License-Identifier: Apache-2.0
"""Printing reports."""

import logging

from cliff import command
from cliff import lister
from cliff import show

from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.planner import units
from nova_dedup_migrate.reports import codec

LOG = logging.getLogger(__name__)


class _One(command.Command):
    """Of one migration."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'migration', nargs='?', metavar='UUID',
            help='UUID of the migration, as openstack server migration list '
                 'shows it (default: the newest one)')
        return parser

    def read(self, parsed_args):
        """Return the Report that was asked for."""
        store = self.app.open_store()
        name = parsed_args.migration
        if name is None:
            name = next(iter(store.names()), None)
            if name is None:
                raise errors.NoReports(path=store.path)
        return store.read(name)


class ShowReport(_One, show.ShowOne):
    """Show the report of a live migration."""

    def take_action(self, parsed_args):
        rows = _rows(self.read(parsed_args))
        return tuple(rows), tuple(rows.values())


class ListRounds(_One, lister.Lister):
    """Show a live migration round by round."""

    def take_action(self, parsed_args):
        report = self.read(parsed_args)
        return (('round', 'time', 'peer_pages', 'zero_pages',
                 'storage_pages', 'refused_pages', 'resent_pages',
                 'transferred', 'remaining', 'link_rate', 'dirty_rate'),
                [(one.number, columns.duration(one.seconds),
                  one.pages.peer, one.pages.zero, one.pages.storage,
                  one.refused_pages, one.resent_pages,
                  columns.size(one.transferred_bytes),
                  columns.size(one.remaining_bytes),
                  columns.rate(one.link_rate), columns.rate(one.dirty_rate))
                 for one in report.rounds])


class ListReports(lister.Lister):
    """List the live migrations that left this host, the newest first."""

    def get_parser(self, prog_name):
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--limit', type=int, metavar='N', default=None,
            help='show the N newest ones (default: all that are kept)')
        parser.add_argument(
            '--instance', metavar='UUID',
            help='show only the migrations of this instance')
        return parser

    def take_action(self, parsed_args):
        reports, damaged = self.app.open_store().reports()
        for error in damaged:
            LOG.warning('%s', error)
        if parsed_args.instance is not None:
            reports = [report for report in reports
                       if report.instance_uuid == parsed_args.instance]
        if parsed_args.limit is not None:
            reports = reports[:max(0, parsed_args.limit)]
        return (('migration', 'instance', 'started', 'destination',
                 'outcome', 'strategy', 'time', 'link', 'downtime',
                 'time_prediction_error'),
                [(report.migration_uuid, report.instance_uuid,
                  columns.time(report.started_at), report.destination,
                  report.outcome, report.strategy_used,
                  columns.duration(report.total_time),
                  columns.size(report.link_bytes),
                  columns.milliseconds(report.downtime_ms),
                  columns.percent(_time_prediction_error(report)))
                 for report in reports])


def _rows(report):
    """Return a report by the names of its fields."""
    plain = codec.plain(report)
    rows = dict(plain)
    for name in ('started_at', 'finished_at'):
        rows[name] = columns.time(getattr(report, name))
    for name in ('error', 'fallback_reason'):
        rows[name] = columns.text(getattr(report, name))
    rows.update(
        page_cache=columns.Words(plain['page_cache'],
                                 _page_cache(report.page_cache)),
        plan=columns.Words(plain['plan'], _plan(report)),
        prediction_error=columns.Words(plain['prediction_error'],
                                       _error(report.prediction_error)),
        rounds=columns.Words(plain['rounds'], '%d, see report rounds'
                             % len(report.rounds)),
        pages=columns.Words(plain['pages'], _paths(plain['pages'], str)),
        bytes=columns.Words(plain['bytes'],
                            _paths(plain['bytes'], units.size)),
        link_bytes=columns.size(report.link_bytes),
        total_time=columns.duration(report.total_time),
        downtime_ms=columns.milliseconds(report.downtime_ms),
        dedup_source=columns.figures(plain['dedup_source']),
        dedup_incoming=columns.figures(plain['dedup_incoming']),
        warnings=columns.lines(report.warnings))
    return rows


def _page_cache(found):
    """Return what the guest did when it was asked, in words."""
    if found is None:
        return '-'
    lines = [found.outcome + (': ' + found.reason if found.reason else '')]
    if found.extents:
        lines.append('%d pages listed in %d extents by %s, %d taken, %.1f s'
                     % (found.listed_pages, found.extents, found.way,
                        found.taken_pages, found.seconds))
    return '\n'.join((*lines, *found.notes))


def _plan(report):
    if report.plan is None:
        return '-'
    expected = (report.plan.stock
                if report.strategy_used == planner_plan.STOCK
                else report.plan.prediction)
    return '\n'.join(report.plan.explanation + (
        'Predicted time: ' + units.band(expected.time, units.duration),
        'Predicted bytes: ' + units.band(expected.bytes, units.size),
        'Predicted downtime: ' + units.band(expected.downtime,
                                            units.milliseconds)))


def _paths(paths, form):
    return ', '.join('%s %s' % (name, form(value))
                     for name, value in paths.items())


def _error(error):
    if error is None:
        return '-'
    known = (('time', error.time_percent, '%+.0f %%'),
             ('bytes', error.bytes_percent, '%+.0f %%'),
             ('pause', error.downtime_ms, '%+.0f ms'))
    return ', '.join('%s %s' % (name, form % value)
                     for name, value, form in known
                     if value is not None) or '-'


def _time_prediction_error(report):
    return (report.prediction_error.time_percent
            if report.prediction_error is not None else None)
