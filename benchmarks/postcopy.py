# SPDX-License-Identifier: Apache-2.0
"""make bench-postcopy: reading from storage while the guest runs there.

A guest that reads its page cache all the time is switched to post-copy as
soon as the first records are on their way: by stock QEMU; by ours, with
what is outstanding sent by the source (records end); and by ours with lazy
fetches (records go on).

Bytes are those that left the source, of the whole migration.  The last page
is there when QEMU's migration is complete, counted from the switch.  The
longest stall is what the guest's own timer saw at the destination, the
switch-over included.  QEMU counts how long the guest's processor waited for
pages (postcopy-blocktime), the kernel how long it was ready to run and had no
processor of the host (schedstat).  Afterwards the guest verifies all of its
memory.
"""

import argparse
import dataclasses
import os
from pathlib import Path
import shutil
import statistics
import sys
import time

from benchmarks import options
from benchmarks import rst
from benchmarks import run
from guests.synthetic import channel
from guests.synthetic import image
from testkit import direct
from testkit import qemus
from testkit import results
from testkit import table

_TOP = Path(__file__).parents[1]
_BUILD = _TOP / 'build' / 'postcopy'
_INCLUDE = (_TOP / 'doc' / 'source' / 'benchmarks' / 'results'
            / 'postcopy.inc')
#: Name, link in Mbit/s.
_LINKS = (('200 Mbit/s', 200.0), ('1 Gbit/s', 1000.0))
#: Name, patched QEMU, lazy fetches.
_STOCK, _ENDS, _LAZY = 'stock', 'records end', 'lazy fetches'
_VARIANTS = ((_STOCK, False, False), (_ENDS, True, False),
             (_LAZY, True, True))
#: Seconds from the beginning to the switch of stock QEMU.
_SWITCH_S = 0.2
_WATCH_S = 0.02
#: Reports of the guest come once a second.
_REPORTS = 2
#: What lazy fetches may cost, of the figures of post-copy without them.
_BYTES, _TIME, _STALL = 0.7, 1.0, 1.1


@dataclasses.dataclass(frozen=True)
class Figures:
    """:ivar sent: MB that left the source
    :ivar last: seconds from the switch to the last page
    :ivar stall: ms, the guest's longest at the destination
    :ivar faults: ms that the guest's processor waited for pages
    :ivar queued: ms that it had no processor of the host
    :ivar lazy: pages from storage after the switch
    :ivar wrong: what the guest found, None: all is right
    """

    sent: float
    last: float
    stall: float
    faults: float
    queued: float
    lazy: int
    wrong: str | None


class PostcopyRun(run.Run):
    """One migration; the guest runs on at the destination."""

    def __init__(self, plan: run.Plan, lazy: bool) -> None:
        super().__init__(plan)
        self._lazy = lazy
        self.figures: Figures | None = None

    def _migrate(self) -> None:
        if self._plan.dedup:
            self._source.arm_dedup(copy=self._storage.copy, lazy=self._lazy)
        migration = self._source.migrate(
            self._destination,
            dataclasses.replace(
                self._options.migration(), paused=False,
                capabilities={'postcopy-blocktime': True}))
        begun, switched, last = time.monotonic(), None, None
        with self._talk(self._destination) as guest:
            for last in migration.watch(_WATCH_S):
                now = time.monotonic()
                if (switched is None and last.status == 'active'
                        and self._due(last, now - begun)):
                    migration.start_postcopy()
                    switched = now
            ended = time.monotonic()
            queued = _queued_ms(self._destination)
            if last is None or last.status != 'completed' or not switched:
                raise run.errors.MigrationFailed(
                    name=self._source.name, status=last and last.status,
                    reason=last and last.error)
            self.figures = self._measured(guest, last, ended - switched,
                                          queued)

    def _due(self, now, seconds: float) -> bool:
        """Records are under way; there are none from stock QEMU."""
        if not self._plan.dedup:
            return seconds > _SWITCH_S
        return now.dedup is not None and now.dedup.source.record_pages > 0

    def _measured(self, guest: channel.GuestChannel, last,
                  seconds: float, queued: float) -> Figures:
        faults = self._destination.qmp('query-migrate')['postcopy-blocktime']
        for _ in range(_REPORTS):
            guest.wait_report()
        stall = max(report.gap_ms for report in guest.reports)
        lazy = 0
        if self._plan.dedup:
            incoming = self._destination.dedup_statistics().incoming
            lazy = incoming.lazy_pages if incoming else 0
        self._verify(guest)
        result = self._result
        return Figures(self._link_bytes(last) / 1e6, seconds, stall,
                       faults, queued, lazy,
                       None if result.guest_verified
                       else result.guest_error or 'it did not answer')


def _queued_ms(guest: direct.DirectGuest) -> float:
    """Time that the threads of guest processors waited for one of the host.

    It is the second figure of /proc/PID/task/TID/schedstat, in ns.
    """
    return sum(
        int(Path(f'/proc/{guest.pid}/task/{cpu["thread-id"]}/schedstat')
            .read_text().split()[1]) / 1e6
        for cpu in guest.qmp('query-cpus-fast'))


def _plan(variant, link: float, memory: int) -> run.Plan:
    name, dedup, _ = variant
    binary = qemus.find('patched' if dedup else 'stock')
    chosen = options.Options(
        link=link, memory=memory, duplicates=60, workload='read',
        read_rate=20.0, postcopy=True)
    return run.Plan(
        name=name, source_binary=binary, destination_binary=binary,
        qemu_img=qemus.tool(binary, 'qemu-img'), dedup=dedup,
        image=image.guest_image(), options=chosen,
        directory=_BUILD / 'work', analyse=False)


def measure(link: float, memory: int, repeat: int) -> dict[str, list[Figures]]:
    """Return the figures of each variant; which is first alternates."""
    found: dict[str, list[Figures]] = {name: [] for name, *_ in _VARIANTS}
    for number in range(repeat):
        for variant in _VARIANTS[::-1 if number % 2 else 1]:
            shutil.rmtree(_BUILD / 'work', ignore_errors=True)
            one = PostcopyRun(_plan(variant, link, memory), variant[2])
            one.run()
            assert one.figures is not None
            print(f'{link:g} Mbit/s, {variant[0]}: {one.figures}', flush=True)
            found[variant[0]].append(one.figures)
    shutil.rmtree(_BUILD / 'work', ignore_errors=True)
    return found


def _median(figures: list[Figures], field: str) -> float:
    return statistics.median(getattr(one, field) for one in figures)


def _row(link: str, name: str, figures: list[Figures]) -> tuple[str, ...]:
    return (link, name, f'{_median(figures, "sent"):.0f}',
            f'{_median(figures, "last"):.1f}',
            f'{_median(figures, "stall"):.0f}',
            f'{_median(figures, "faults"):.0f}',
            f'{_median(figures, "queued"):.0f}',
            f'{_median(figures, "lazy"):.0f}')


_HEAD = ('link', 'post-copy', 'sent, MB', 'last page, s', 'stall, ms',
         'faults, ms', 'queued, ms', 'lazy, pages')


def _judge(into: results.Results, link: str,
           found: dict[str, list[Figures]]) -> None:
    wrong = [one.wrong for runs in found.values() for one in runs if one.wrong]
    into.add(f'{link}: memory right', len(wrong), 'runs wrong', '0',
             not wrong)
    for field, title, most in (('sent', 'sent', _BYTES),
                               ('last', 'last page', _TIME),
                               ('stall', 'longest stall', _STALL)):
        value = (_median(found[_LAZY], field)
                 / max(_median(found[_ENDS], field), 1e-9))
        into.add(f'{link}: {title}, of that without lazy fetches',
                 round(value, 3), '', f'at most {most:g}', value <= most)


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(
        prog='make bench-postcopy',
        description='Compare post-copy with and without lazy fetches.')
    parser.add_argument('--quick', action='store_true',
                        help='a small guest, one run each')
    parser.add_argument('--repeat', type=int, default=3, metavar='N',
                        help='runs of each (%(default)s)')
    parser.add_argument('--publish', action='store_true',
                        help='write the table of the documentation')
    given = parser.parse_args(argv)
    outcome = results.Results('make bench-postcopy' + (
        ' ARGS=--quick' if given.quick else ''))
    lines = []
    for name, link in _LINKS:
        found = measure(link, 256 if given.quick else 768,
                        1 if given.quick else given.repeat)
        lines += [_row(name, variant, runs)
                  for variant, runs in found.items()]
        _judge(outcome, name, found)
    print(table.text(_HEAD, lines))
    print(outcome.text())
    outcome.write(_BUILD / 'report.json')
    if given.publish:
        _INCLUDE.write_text(rst.list_table(_HEAD, lines))
    print(os.path.relpath(_BUILD / 'report.json'))
    return outcome.status()


if __name__ == '__main__':
    sys.exit(main())
