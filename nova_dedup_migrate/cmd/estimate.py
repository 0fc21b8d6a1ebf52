# SPDX-License-Identifier: Apache-2.0
"""The command that measures working sets and estimates downtimes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
import functools
import random
import sys
from typing import Any

from cliff import lister

from nova_dedup_migrate.cmd import agents
from nova_dedup_migrate.cmd import arguments
from nova_dedup_migrate.cmd import columns
from nova_dedup_migrate.cmd import configuration
from nova_dedup_migrate.cmd import errors
from nova_dedup_migrate.conf import nova as nova_options
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import memory
from nova_dedup_migrate.planner import units
from nova_dedup_migrate.planner import working_set
from nova_dedup_migrate.rpc import errors as rpc_errors
from nova_dedup_migrate.rpc import survey_objects

#: A stock QEMU measures for a minute at most.
_LONGEST = 60
#: It rounds rates down to whole MiB/s; of nothing, the shorter window holds.
_ROUNDED = 1 << 19
_MBIT = 125_000
#: Seconds: all samples are younger.
_ANY_AGE = 1e9
#: Mbit/s for which it is estimated if none are given.
_BANDWIDTHS = (100.0, 1000.0, 10000.0)


class Estimate(lister.Lister):
    """Measure how much memory an instance writes to, estimate its downtime.

    Run it on the host of the instance.  Each row is a bandwidth.  It takes
    as long as the longest window, or no time with --kept, and pages are
    counted as sent in full.
    """

    def get_parser(self, prog_name: str) -> argparse.ArgumentParser:
        parser = super().get_parser(prog_name)
        parser.add_argument('server', metavar='SERVER', type=arguments.uuid,
                            help='UUID of the instance')
        parser.add_argument('--bandwidth', metavar='MBIT', type=_positive,
                            action='append',
                            help='Mbit/s for the migration; may be repeated '
                                 '(default: 100, 1000 and 10000)')
        parser.add_argument('--downtime', metavar='MS', type=_positive,
                            default=500.0,
                            help='downtime limit in milliseconds (default: '
                                 '%(default)g)')
        parser.add_argument('--windows', metavar='S,...', type=_windows,
                            default=working_set.WINDOWS,
                            help='seconds for which is measured, each 1 to '
                                 '60 (default: 1,10,60)')
        parser.add_argument('--kept', action='store_true',
                            help='measure nothing: use what the agent of '
                                 'this host measured last')
        return parser

    def take_action(self, parsed_args: argparse.Namespace
                    ) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
        conf = configuration.load(self.app.options)
        nova_options.register_opts(conf)
        try:
            points = self._kept(parsed_args.server) if parsed_args.kept else []
            with agents.local_guest(conf, parsed_args.server) as guest:
                if not parsed_args.kept:
                    for point in _measure(guest, parsed_args.windows):
                        points.append(point)
                        _show(*point)
                size = _in_use(guest)
        except (hypervisor_errors.HypervisorError,
                rpc_errors.AgentUnavailable) as error:
            raise errors.EstimateFailed(server=parsed_args.server,
                                        reason=error) from error
        known = working_set.WorkingSet(tuple(points))
        rows = []
        for mbit in parsed_args.bandwidth or _BANDWIDTHS:
            found = working_set.expect(size, known, mbit * _MBIT,
                                       parsed_args.downtime / 1000)
            rows.append((columns.rate(mbit * _MBIT), found.rounds,
                         columns.duration(found.seconds + found.downtime),
                         columns.size(found.bytes),
                         columns.milliseconds(found.downtime * 1000),
                         found.converges))
        return ('bandwidth', 'rounds', 'time', 'bytes', 'downtime',
                'converges'), rows

    def _kept(self, server: str) -> list[tuple[float, float]]:
        """Return what the agent of this host knows of an instance."""
        with agents.open_agents(self.app.options) as (api, conf):
            # any sample will do: only the windows are used
            reply = api.survey(
                {}, conf.host, survey_objects.DedupSurveyRequest(
                    instance_uuid=server, destination=None,
                    max_age=_ANY_AGE))
        if not reply.windows:
            raise errors.EstimateFailed(server=server, reason=(
                reply.reason or 'the agent has not measured it yet, which '
                'it does every survey_interval if the I/O of the instance '
                'is recorded. Run the command without --kept'))
        for one in reply.windows:
            _show(one.seconds, one.bytes, ', %s at most, %s ago' % (
                units.size(one.most), units.duration(one.age)))
        return list(working_set.WorkingSet.of_windows(reply.windows).points)


def _measure(guest: hypervisor.Guest, windows: tuple[int, ...]
             ) -> Iterator[tuple[float, float]]:
    """Yield (seconds, bytes written to), ascending."""
    try:
        for found in digests.measure(
                functools.partial(guest.page_digests,
                                  random.getrandbits(63)), windows):
            yield found.seconds, found.bytes
    except hypervisor_errors.DedupNotSupported:
        # A stock QEMU: one window after the other
        for seconds in windows:
            rate = guest.dirty_rate(seconds)
            yield (float(seconds),
                   float(rate + _ROUNDED if rate else 0) * seconds)


def _show(seconds: float, size: float, more: str = '') -> None:
    print('written to in %.0f s: %s%s' % (seconds, units.size(size), more),
          file=sys.stderr, flush=True)


def _in_use(guest: hypervisor.Guest) -> float:
    """Return the bytes of memory to send."""
    try:
        return float(guest.memory_in_use().bytes)
    except hypervisor_errors.DedupNotSupported:
        # A stock QEMU: all of it may be in use
        return float(sum(part.size for part in memory.ranges(guest)))


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError('expected a number above 0')
    return value


def _windows(text: str) -> tuple[int, ...]:
    found = sorted({int(part) for part in text.split(',')})
    if not 1 <= found[0] <= found[-1] <= _LONGEST:
        raise argparse.ArgumentTypeError(
            'expected seconds from 1 to %d' % _LONGEST)
    return tuple(found)
