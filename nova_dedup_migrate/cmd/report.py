# SPDX-License-Identifier: Apache-2.0
"""The commands that print reports."""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
import logging
from typing import Any

from cliff import command
from cliff import lister
from cliff import show

from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.pagecache import answer
from nova_dedup_migrate.planner import plan as planner_plan
from nova_dedup_migrate.planner import units
from nova_dedup_migrate.reports import codec
from nova_dedup_migrate.reports import report as reports

LOG = logging.getLogger(__name__)


class _ReportCommand(command.Command):
    """A command about one report."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            'migration', nargs='?', metavar='UUID',
            help='UUID of the migration, as in "openstack server migration '
                 'list" (default: the newest report)')
        return parser

    def read(self, parsed_args: argparse.Namespace) -> reports.Report:
        """Return the report that the arguments name."""
        store = configuration.open_store(self.app.options)
        name = parsed_args.migration
        if name is None:
            name = next(iter(store.names()), None)
            if name is None:
                raise errors.NoReports(path=store.path)
        return store.read(name)


class ShowReport(_ReportCommand, show.ShowOne):
    """Show the report of one live migration."""

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], tuple[Any, ...]]:
        rows = _rows(self.read(parsed_args))
        return tuple(rows), tuple(rows.values())


class ListRounds(_ReportCommand, lister.Lister):
    """List the rounds of one live migration."""

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
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
    """List the live migrations from this host, the newest first."""

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument(
            '--limit', type=int, metavar='N', default=None,
            help='list only the N newest reports (default: all)')
        parser.add_argument(
            '--instance', metavar='UUID',
            help='list only the migrations of this instance')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        found, damaged = configuration.open_store(
            self.app.options).reports()
        for error in damaged:
            LOG.warning('%s', error)
        if parsed_args.instance is not None:
            found = [report for report in found
                     if report.instance_uuid == parsed_args.instance]
        if parsed_args.limit is not None:
            found = found[:max(0, parsed_args.limit)]
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
                 for report in found])


def _rows(report: reports.Report) -> dict[str, Any]:
    """Return the values of a report by field."""
    plain = codec.plain(report)
    rows = dict(plain)
    for name in ('started_at', 'finished_at'):
        rows[name] = columns.time(getattr(report, name))
    for name in ('error', 'fallback_reason'):
        rows[name] = columns.text(getattr(report, name))
    rows.update(
        progress=columns.Formatted(plain['progress'],
                                   _progress(report.progress)),
        page_cache=columns.Formatted(plain['page_cache'],
                                 _page_cache(report.page_cache)),
        content_index=columns.Formatted(
            plain['content_index'], _content_index(report.content_index)),
        working_set=columns.Formatted(plain['working_set'],
                                      _working_set(report.working_set)),
        plan=columns.Formatted(plain['plan'], _plan(report)),
        prediction_error=columns.Formatted(plain['prediction_error'],
                                       _error(report.prediction_error)),
        rounds=columns.Formatted(plain['rounds'], '%d, see "report rounds"'
                                 % len(report.rounds)),
        pages=columns.Formatted(plain['pages'], _paths(plain['pages'], str)),
        bytes=columns.Formatted(plain['bytes'],
                            _paths(plain['bytes'], units.size)),
        link_bytes=columns.size(report.link_bytes),
        total_time=columns.duration(report.total_time),
        downtime_ms=columns.milliseconds(report.downtime_ms),
        dedup_source=columns.figures(plain['dedup_source']),
        dedup_incoming=columns.figures(plain['dedup_incoming']),
        warnings=columns.lines(report.warnings))
    return rows


def _progress(progress: reports.Progress | None) -> str:
    if progress is None:
        return '-'
    return '%s, %s' % (
        units.percent(progress.share),
        'not converging' if progress.seconds_left is None
        else units.duration(progress.seconds_left) + ' left')


def _page_cache(found: answer.Answer | None) -> str:
    if found is None:
        return '-'
    lines = [found.outcome + (': ' + found.reason if found.reason else '')]
    if found.extents:
        lines.append('%d pages listed in %d extents over transport %s, %d '
                     'used, %.1f s'
                     % (found.listed_pages, found.extents, found.transport,
                        found.taken_pages, found.seconds))
    return '\n'.join((*lines, *found.notes))


def _content_index(found: reports.ContentIndex | None) -> str:
    if found is None:
        return '-'
    lines = [found.outcome + (': ' + found.reason if found.reason else '')]
    if found.pages:
        lines.append('%d of %d pages found; %s of %s read, %.1f s'
                     % (found.found_pages, found.pages,
                        units.size(found.read_bytes),
                        units.size(found.disk_bytes), found.seconds))
    return '\n'.join(lines)


def _working_set(found: reports.WorkingSet | None) -> str:
    if found is None:
        return '-'
    return '\n'.join((*(
        '%s in %.0f s, %s at most, %s ago'
        % (units.size(one.bytes), one.seconds, units.size(one.most),
           units.duration(one.age)) for one in found.windows),
        'Expected downtime at %s: %s%s' % (
            units.rate(found.link_rate),
            units.milliseconds(found.downtime_ms / 1000),
            '' if found.converges else ', above the limit')))


def _plan(report: reports.Report) -> str:
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


def _paths(paths: Mapping[str, int],
           form: Callable[[int], str]) -> str:
    return ', '.join('%s %s' % (name, form(value))
                     for name, value in paths.items())


def _error(error: reports.PredictionError | None) -> str:
    if error is None:
        return '-'
    known = (('time', error.time_percent, '%+.0f %%'),
             ('bytes', error.bytes_percent, '%+.0f %%'),
             ('downtime', error.downtime_ms, '%+.0f ms'))
    return ', '.join('%s %s' % (name, form % value)
                     for name, value, form in known
                     if value is not None) or '-'


def _time_prediction_error(report: reports.Report) -> float | None:
    return (report.prediction_error.time_percent
            if report.prediction_error is not None else None)
