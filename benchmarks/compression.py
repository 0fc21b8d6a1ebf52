# SPDX-License-Identifier: Apache-2.0
"""make bench-compression: what compression gains, and what it costs.

Two tables.  The first has the same guest migrated in five ways over links
of several rates: stock; stock with multifd and its zstd, the strongest
rival; ours without compression; ours with it; ours with compression alone.
The second has the levels and threads of ours over a slow link: what remains
of a page, and how fast a processor does it.  All memory is compared after
each run.
"""

import argparse
import dataclasses
from pathlib import Path
import shlex
import shutil
import sys

from benchmarks import measure
from benchmarks import options as demo_options
from benchmarks import run
from guests.errors import GuestError
from guests.synthetic import image
from nova_dedup_migrate.hypervisor import errors
from testkit import qemus
from testkit import results
from testkit import table

NAME = 'compression'
#: Mbit/s; 0: as fast as the machine can.
RATES = (50.0, 100.0, 1000.0, 10000.0, 0.0)
QUICK_RATES = (100.0, 0.0)
#: Below it the link decides about the time, above it processors do.
SLOW = 100.0
#: (level, threads); 0: what QEMU chooses.
WAYS = ((1, 1), (1, 2), (1, 4), (3, 1), (3, 2), (6, 1), (9, 1))
QUICK_WAYS = ((1, 1), (3, 1), (9, 1))
STOCK, RIVAL = 'stock', 'stock multifd + zstd'
DEDUP, BOTH = 'dedup', 'dedup + zstd'
ALONE = 'zstd alone'
RIVALS = (STOCK, RIVAL, DEDUP, BOTH, ALONE)
#: On a fast link compression may cost that share of the time, and as many
#: seconds, in which two runs of the same kind differ anyway.
SLOWER, NOISE_S = 1.03, 0.25


@dataclasses.dataclass(frozen=True)
class Measured:
    """One run: Mbit/s, its name, and its result."""

    rate: float
    name: str
    result: run.Result

    @property
    def seconds(self) -> float:
        return self.result.total_time_s or float('inf')

    @property
    def right(self) -> bool:
        return bool(self.result.converged and self.result.ram_identical
                    and self.result.guest_verified)

    def cost(self, side: str) -> float:
        """Seconds of a processor for a GB of pages; 0: nothing."""
        return measure.compression_cost(
            getattr(self.result, f'{side}_statistics')) or 0.0

    @property
    def share(self) -> float:
        """What remains of a byte of the pages that were compressed."""
        figures = self.result.source_statistics or {}
        pages = figures.get('compressed_pages') or 0
        return figures['compressed_bytes'] / (pages * 4096) if pages else 1.0


def _options(rate: float, memory: int, **changes) -> demo_options.Options:
    # The limit is that of the link, not of QEMU's: it holds for the last
    # round, too.
    return demo_options.Options(
        link=0.0, wire=rate, relay=bool(rate), memory=memory,
        duplicates=50, workload='mixed', write_rate=2.0, wss=16,
        timeout=240, **changes)


class Bench:
    """Runs it all.

    :param binaries: 'stock' and 'patched' to their paths
    """

    def __init__(self, binaries: dict[str, Path], memory: int,
                 directory: Path) -> None:
        self._binaries = binaries
        self._memory = memory
        self._directory = directory
        self._image = image.guest_image()

    def rival(self, rate: float, name: str) -> Measured:
        options = _options(rate, self._memory,
                           compress=name in (BOTH, ALONE))
        if name == RIVAL:
            options = options.rival()
        ours = name in (DEDUP, BOTH, ALONE)
        return self._run(rate, name, options, ours, name != ALONE)

    def way(self, level: int, threads: int) -> Measured:
        options = _options(SLOW, self._memory, compress=True,
                           compress_level=level, compress_threads=threads)
        return self._run(SLOW, f'level {level}, {threads} threads', options,
                         True, False)

    def _run(self, rate, name, options, ours, records) -> Measured:
        binary = self._binaries['patched' if ours else 'stock']
        shutil.rmtree(self._directory, ignore_errors=True)
        plan = run.Plan(
            name=name, source_binary=binary, destination_binary=binary,
            qemu_img=qemus.tool(binary, 'qemu-img'), dedup=ours,
            image=self._image, options=options, directory=self._directory,
            analyse=False, records=records)
        found = Measured(rate, name, run.Run(plan).run())
        print(f'  {_rate(rate)}, {name}: {found.seconds:.2f} s, '
              f'{found.result.link_bytes / 1e6:.1f} MB', flush=True)
        return found


def judge(rows: results.Results, cell: dict[str, Measured]) -> None:
    """Add the rows of one rate."""
    ours, plain = cell[BOTH], cell[DEDUP]
    rate = ours.rate
    name = _rate(rate)
    for one in cell.values():
        rows.add(f'{name}, {one.name}: all memory identical',
                 'yes' if one.right else 'no', '', 'yes', one.right)
        rows.add(f'{name}, {one.name}: time', round(one.seconds, 3), 's',
                 'shown', one.right)
        rows.add(f'{name}, {one.name}: on the link',
                 round(one.result.link_bytes / 1e6, 2), 'MB', 'shown',
                 one.right)
        rows.add(f'{name}, {one.name}: downtime',
                 one.result.downtime_ms or 0, 'ms', 'shown', one.right)
    if rate and rate <= SLOW:
        for other, most in ((STOCK, 0.4), (RIVAL, 0.6), (DEDUP, 0.6)):
            share = ours.seconds / cell[other].seconds
            rows.add(f'{name}: time of {BOTH} over {other}', round(share, 3),
                     '', f'<= {most:g}', share <= most)
            share = ours.result.link_bytes / cell[other].result.link_bytes
            rows.add(f'{name}: bytes of {BOTH} over {other}',
                     round(share, 3), '', f'<= {most:g}', share <= most)
    slower = ours.seconds <= plain.seconds * SLOWER + NOISE_S
    rows.add(f'{name}: compression makes it slower',
             'no' if slower else 'yes', '',
             f'no, by {SLOWER - 1:.0%} and {NOISE_S} s', slower)
    for side in 'source', 'incoming':
        cost = ours.cost(side)
        rows.add(f'{name}, {BOTH}: processor time for a GB, {side}',
                 round(cost, 3), 's', '<= 6', cost <= 6)


def judge_way(rows: results.Results, one: Measured) -> None:
    """Add the rows of a level and a number of threads."""
    speed = 1 / one.cost('source') * 1000 if one.cost('source') else 0.0
    rows.add(f'{one.name}: all memory identical',
             'yes' if one.right else 'no', '', 'yes', one.right)
    rows.add(f'{one.name}: remains', round(one.share, 4), '', '<= 0.3',
             one.share <= 0.3)
    rows.add(f'{one.name}: a thread compresses', round(speed), 'MB/s',
             '> 12.5, the link', speed > 12.5)


def _rate(rate: float) -> str:
    return f'{rate:g} Mbit/s' if rate else 'unlimited'


def tables(cells: list[dict[str, Measured]], ways: list[Measured]) -> str:
    """Return both tables, for people."""
    lines = [(
        _rate(one.rate), one.name, f'{one.seconds:.2f}',
        f'{one.seconds / cell[STOCK].seconds:.2f}',
        f'{one.result.link_bytes / 1e6:.1f}',
        f'{one.result.link_bytes / cell[STOCK].result.link_bytes:.2f}',
        one.result.downtime_ms, f'{one.cost("source"):.2f}',
        f'{one.cost("incoming"):.2f}')
        for cell in cells for one in cell.values()]
    text = table.text(
        ('link', 'way', 's', 'of stock', 'MB', 'of stock', 'downtime ms',
         'source s/GB', 'destination s/GB'), lines)
    if not ways:
        return text
    return text + '\n\n' + table.text(
        ('way', 'remains', 'MB/s a thread', 'threads'),
        [(one.name, f'{one.share:.3f}', f'{1000 / one.cost("source"):.0f}',
          (one.result.source_statistics or {}).get('compression_threads'))
         for one in ways if one.cost('source')])


def parser() -> argparse.ArgumentParser:
    result = argparse.ArgumentParser(
        prog=f'bench-{NAME}', description=__doc__.partition('\n\n')[0],
        allow_abbrev=False)
    result.add_argument('--quick', action='store_true',
                        help='two rates and a small guest')
    result.add_argument('--memory', type=int, metavar='MiB',
                        help="the guest's memory (512, or 256 if quick)")
    result.add_argument('--output', type=Path, metavar='DIR',
                        default=Path('build') / f'bench-{NAME}',
                        help='directory for report.json (%(default)s)')
    for kind in 'stock', 'patched':
        result.add_argument(f'--{kind}-binary', metavar='FILE',
                            help=f'the {kind} qemu-system-x86_64')
    return result


def _measure(given: argparse.Namespace, rows: results.Results) -> str:
    """Run it all, add the rows and return the tables."""
    bench = Bench(
        {kind: qemus.find(kind, getattr(given, f'{kind}_binary'))
         for kind in ('stock', 'patched')},
        given.memory or (256 if given.quick else 512),
        given.output.absolute() / 'work')
    cells = []
    for rate in QUICK_RATES if given.quick else RATES:
        cells.append({name: bench.rival(rate, name) for name in RIVALS})
        judge(rows, cells[-1])
    ways = []
    for way in QUICK_WAYS if given.quick else WAYS:
        ways.append(bench.way(*way))
        judge_way(rows, ways[-1])
    return tables(cells, ways)


def main(arguments: list[str] | None = None) -> int:
    given = parser().parse_args(arguments)
    words = sys.argv[1:] if arguments is None else arguments
    command = f'make bench-{NAME}'
    if words:
        command += f' ARGS={shlex.quote(shlex.join(words))}'
    rows = results.Results(command)
    try:
        shown = _measure(given, rows)
    except (GuestError, errors.HypervisorError) as error:
        print(f'bench-{NAME}: {error}', file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f'\nbench-{NAME}: interrupted', file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(given.output.absolute() / 'work', ignore_errors=True)
    rows.write(given.output / 'report.json')
    print(f'\n{rows.text()}\n\n{shown}')
    return rows.status()


if __name__ == '__main__':
    sys.exit(main())
