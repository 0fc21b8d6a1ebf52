# SPDX-License-Identifier: Apache-2.0
"""make bench-pre-copy: what Clark et al. (NSDI'05) have of their own.

A guest that writes to its memory migrates in the ordinary way, without
deduplication:

* with one rate, and with the adaptive one (papers.md P5.3), beside a
  neighbour that wants 60 % of the same link: what does the neighbour get, and
  what does that cost the migration?
* with rates for which time and downtime were estimated from its working set
  (P5.2), as ``nova-dedup-migrate estimate`` does: how far off is that?
"""

import argparse
import contextlib
import dataclasses
import functools
import os
from pathlib import Path
import random
import shutil
import sys

from benchmarks import neighbour
from benchmarks import options
from benchmarks import relay
from benchmarks import rst
from benchmarks import run
from benchmarks import spread
from guests.synthetic import image
from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.planner import working_set
from testkit import qemus
from testkit import results
from testkit import table

_TOP = Path(__file__).parents[1]
_BUILD = _TOP / 'build' / 'pre-copy'
_RESULTS = _TOP / 'doc' / 'source' / 'benchmarks' / 'results'
_MBIT = 125_000
#: Name: MB/s that it writes, to so many MiB.
GUESTS = {'quiet': (1.0, 16), 'busy': (11.0, 64)}
FIXED, ADAPTIVE = WAYS = ('fixed', 'adaptive')
#: Mbit/s: the link, the adaptive rate's minimum, what the neighbour wants.
_LINK, _START, _WANTED = 200.0, 50.0, 120.0
#: Mbit/s for which is estimated.
_RATES = (100.0, 200.0, 400.0)
#: Milliseconds: QEMU's own limit.
_LIMIT_MS = 300
_TIMEOUT_S = 150
#: What is measured: --only.
_PARTS = ('pacing', 'estimates')
#: Between the measured and the estimated time.
_OFF = 0.25


@dataclasses.dataclass(frozen=True)
class Beside:
    """A migration beside the neighbour.

    :ivar mean, worst: share of the neighbour's rate that it got, and in the
        worst second of the migration
    """

    result: run.Result
    mean: float
    worst: float

    @property
    def seconds(self) -> float:
        return self.result.total_time_s or 0.0


@dataclasses.dataclass(frozen=True)
class Estimated:
    """A migration, and what was expected of it.

    :ivar written: bytes by window, in words
    """

    result: run.Result
    expected: working_set.Expected
    written: str

    @property
    def seconds(self) -> float:
        return self.expected.seconds + self.expected.downtime


def _chosen(guest: str, memory: int, **more: float) -> options.Options:
    rate, size = GUESTS[guest]
    return options.Options(
        memory=memory, duplicates=60, workload='anon-writer', write_rate=rate,
        wss=size, timeout=_TIMEOUT_S, **more)


def _plan(chosen: options.Options, **more: object) -> run.Plan:
    binary = qemus.find('patched')
    return run.Plan(
        name='stock', source_binary=binary, destination_binary=binary,
        qemu_img=qemus.tool(binary, 'qemu-img'), dedup=False,
        image=image.guest_image(), options=chosen,
        directory=_BUILD / 'work', analyse=False, **more)


@contextlib.contextmanager
def _directory():
    shutil.rmtree(_BUILD / 'work', ignore_errors=True)
    (_BUILD / 'work').mkdir(parents=True)
    try:
        yield _BUILD / 'work'
    finally:
        shutil.rmtree(_BUILD / 'work', ignore_errors=True)


def beside(guest: str, way: str, memory: int) -> Beside:
    """Migrate beside the neighbour."""
    chosen = _chosen(guest, memory, link=_LINK,
                     start_link=_START if way == ADAPTIVE else 0.0)
    wire = relay.Wire(int(_LINK * _MBIT))
    with _directory() as directory, neighbour.Neighbour(
            directory, wire, _WANTED * _MBIT) as other:
        result = run.Run(_plan(chosen, wire=wire),
                         observe=lambda *_: other.sample()).run()
        return Beside(result, other.mean(), other.worst_second())


def estimated(guest: str, rate: float, memory: int) -> Estimated:
    """Estimate, then migrate.

    :param rate: Mbit/s
    """
    found = []

    def look(source):
        points = digests.measure(
            functools.partial(source.page_digests, random.getrandbits(63)),
            working_set.WINDOWS)
        known = working_set.WorkingSet(tuple(
            (one.seconds, one.bytes) for one in points))
        found.append((known, working_set.expect(
            source.memory_in_use().bytes, known, rate * _MBIT,
            _LIMIT_MS / 1000)))

    with _directory():
        result = run.Run(_plan(_chosen(guest, memory, link=rate),
                               ready=look)).run()
    known, expected = found[0]
    return Estimated(result, expected, ', '.join(
        '%.1f' % (size / 1e6) for _, size in known.points))


_BESIDE_HEAD = (
    'guest', 'rate', 'time, s', 'sent, MB', 'rounds', 'downtime, ms',
    "neighbour's rate, of what it wants", 'in the worst second')
_ESTIMATED_HEAD = (
    'guest', 'rate, Mbit/s', 'written to in 1, 10, 60 s, MB',
    'expected: time, s', 'measured', 'expected: downtime, ms', 'measured',
    'expected: rounds', 'measured')


def _show(values, digits=0):
    found = spread.of(values)
    return '-' if found is None else found.show(digits)


def beside_lines(found):
    """Return the rows of the table; found: {(guest, way): [Beside, ...]}."""
    return [(guest, way,
             _show((one.seconds for one in runs), 1),
             _show(one.result.link_bytes / 1e6 for one in runs),
             _show(one.result.rounds for one in runs),
             _show(one.result.downtime_ms for one in runs),
             _show((one.mean for one in runs), 2),
             _show((one.worst for one in runs), 2))
            for (guest, way), runs in found.items()]


def estimated_lines(found):
    """Return the rows of the table; found: {(guest, rate): Estimated}."""
    return [(guest, '%g' % rate, one.written, '%.1f' % one.seconds,
             '%.1f' % (one.result.total_time_s or 0.0),
             '%.0f' % (one.expected.downtime * 1000),
             str(one.result.downtime_ms), str(one.expected.rounds),
             str(one.result.rounds))
            for (guest, rate), one in found.items()]


def _right(into, name, results):
    right = all(one.ram_identical and one.guest_verified for one in results)
    into.add(name + ': memory right', 'yes' if right else 'no', '', 'yes',
             right)


def judge_beside(into, found):
    """Add rows to results.Results."""
    for (guest, way), runs in found.items():
        _right(into, '%s, %s' % (guest, way), [one.result for one in runs])
    for guest in GUESTS:
        fixed, adaptive = (found[guest, way] for way in WAYS)
        longer = spread.ratios(*([one.seconds for one in runs]
                                 for runs in (adaptive, fixed)))
        into.add('%s: time with the adaptive rate' % guest, longer.show(),
                 'of the fixed', '-', True)
        # The last round is at the maximum with both, so the worst second
        # may be the same.
        more = spread.differences(*([one.mean for one in runs]
                                    for runs in (adaptive, fixed)))
        into.add("%s: neighbour's rate" % guest, more.show(),
                 'more than beside the fixed', 'above 0', more.median > 0)


def judge_estimated(into, found):
    """Add rows to results.Results."""
    for (guest, rate), one in found.items():
        name = '%s, %g Mbit/s' % (guest, rate)
        _right(into, name, [one.result])
        into.add(name + ': converges', one.result.converged, '',
                 str(one.expected.converges),
                 one.result.converged == one.expected.converges)
        if one.result.converged and one.expected.converges:
            off = (one.result.total_time_s or 0.0) / one.seconds - 1
            into.add(name + ': time', '%+.2f' % off, 'of the estimate',
                     'within %g' % _OFF, abs(off) <= _OFF)
            into.add(name + ': downtime',
                     one.result.downtime_ms - round(
                         one.expected.downtime * 1000),
                     'ms more than estimated', '-', True)


def _measure_beside(repeats: int, memory: int
                    ) -> dict[tuple[str, str], list[Beside]]:
    found: dict[tuple[str, str], list[Beside]] = {
        (guest, way): [] for guest in GUESTS for way in WAYS}
    for _ in range(repeats):
        for (guest, way), runs in found.items():
            runs.append(beside(guest, way, memory))
            print('; '.join(beside_lines({(guest, way): runs[-1:]})[0]),
                  flush=True)
    return found


def _measure_estimated(rates: tuple[float, ...], memory: int
                       ) -> dict[tuple[str, float], Estimated]:
    found = {}
    for guest in GUESTS:
        for rate in rates:
            one = found[guest, rate] = estimated(guest, rate, memory)
            print('; '.join(estimated_lines({(guest, rate): one})[0]),
                  flush=True)
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='make bench-pre-copy',
        description='Migrate with an adaptive rate beside a neighbour, and '
                    'compare estimates with migrations.')
    parser.add_argument('--quick', action='store_true',
                        help='a small guest, once')
    parser.add_argument('--only', choices=_PARTS,
                        help='measure this alone')
    parser.add_argument('--repeats', type=int, default=3,
                        help='pairs beside the neighbour (default: '
                             '%(default)s)')
    parser.add_argument('--publish', action='store_true',
                        help='write the tables of the documentation')
    given = parser.parse_args(argv)
    memory = 256 if given.quick else 512
    typed = ' '.join(sys.argv[1:] if argv is None else argv)
    outcome = results.Results('make bench-pre-copy' + (
        ' ARGS="%s"' % typed if typed else ''))
    tables = {}
    if given.only != 'estimates':
        moves = _measure_beside(1 if given.quick else given.repeats, memory)
        judge_beside(outcome, moves)
        tables['pacing'] = _BESIDE_HEAD, beside_lines(moves)
    if given.only != 'pacing':
        estimates = _measure_estimated(
            _RATES[1:2] if given.quick else _RATES, memory)
        judge_estimated(outcome, estimates)
        tables['estimates'] = _ESTIMATED_HEAD, estimated_lines(estimates)
    for name, (head, lines) in tables.items():
        print(table.text(head, lines))
        if given.publish:
            (_RESULTS / (name + '.inc')).write_text(rst.list_table(
                head, lines))
    print(outcome.text())
    outcome.write(_BUILD / 'report.json')
    print(os.path.relpath(_BUILD / 'report.json'))
    return outcome.status()


if __name__ == '__main__':
    sys.exit(main())
