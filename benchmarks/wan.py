# SPDX-License-Identifier: Apache-2.0
"""make bench-wan: links with a delay, as between sites.

A guest at rest migrates over a link of one rate and of growing delays, with
pages left out.  Nothing may be resent because of the delay, and the link has
to be used as well as without one; what a delay costs is one round trip
before anything is sent, and those of QEMU itself.
"""

import argparse
import os
from pathlib import Path
import shutil
import sys

from benchmarks import options
from benchmarks import rst
from benchmarks import run
from guests.synthetic import image
from testkit import qemus
from testkit import results
from testkit import table

_TOP = Path(__file__).parents[1]
_BUILD = _TOP / 'build' / 'wan'
_INCLUDE = _TOP / 'doc' / 'source' / 'benchmarks' / 'results' / 'wan.inc'
#: Mbit/s, and ms of a round trip.
_LINK = 100.0
_DELAYS = (0, 60, 150)
#: Round trips in which the link has nothing to carry: for HELLO, to switch
#: over, to learn that the guest has arrived.
_WAITS = 3
#: Of the rate without a delay.
_RATE = 0.9
_HEAD = ('round trip, ms', 'time, s', 'sent, MB', 'rate, Mbit/s',
         'resent, pages', 'round trips waited for', 'measured, ms',
         'negotiation, ms', 'downtime, ms')


def _migrate(delay: float, memory: int) -> run.Result:
    shutil.rmtree(_BUILD / 'work', ignore_errors=True)
    binary = qemus.find('patched')
    chosen = options.Options(
        link=0.0, wire=_LINK, delay=delay, memory=memory, duplicates=60,
        workload='idle')
    try:
        return run.Run(run.Plan(
            name='dedup', source_binary=binary, destination_binary=binary,
            qemu_img=qemus.tool(binary, 'qemu-img'), dedup=True,
            image=image.guest_image(), options=chosen,
            directory=_BUILD / 'work', analyse=False)).run()
    finally:
        shutil.rmtree(_BUILD / 'work', ignore_errors=True)


def rate(result: run.Result, delay: float) -> float:
    """Return Mbit/s on the link while the migration did not have to wait.

    :param delay: ms of a round trip
    """
    busy = (result.total_time_s or 0.0) - _WAITS * delay / 1000
    return result.link_bytes * 8 / 1e6 / max(busy, 0.001)


def line(result: run.Result, delay: float) -> tuple[str, ...]:
    """Return a line of the table."""
    source = result.source_statistics or {}
    return (f'{delay:g}', f'{result.total_time_s or 0:.1f}',
            f'{result.link_bytes / 1e6:.0f}',
            f'{result.link_bytes * 8e-6 / (result.total_time_s or 1):.0f}',
            str(source.get('resent_pages', '')),
            str(source.get('round_trips', '')),
            f'{source.get("round_trip_us", 0) / 1000:.0f}',
            f'{source.get("negotiation_us", 0) / 1000:.0f}',
            str(result.downtime_ms))


def judge(into: results.Results, delay: float, result: run.Result,
          near: run.Result) -> None:
    """Add the rows of one delay.

    :param near: the migration without a delay
    """
    source = result.source_statistics or {}
    name = f'{delay:g} ms: '
    right = bool(result.ram_identical and result.guest_verified)
    into.add(name + 'memory right', 'yes' if right else 'no', '', 'yes',
             right)
    resent = source.get('resent_pages', -1)
    into.add(name + 'resent', resent, 'pages', '0', resent == 0)
    trips = source.get('round_trips', -1)
    into.add(name + 'round trips waited for', trips, '', '1', trips == 1)
    share = rate(result, delay) / rate(near, 0.0)
    into.add(name + 'rate, of that without a delay', round(share, 3), '',
             f'at least {_RATE:g}', share >= _RATE)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog='make bench-wan',
        description='Migrate over links with a delay.')
    parser.add_argument('--quick', action='store_true',
                        help='a small guest')
    parser.add_argument('--publish', action='store_true',
                        help='write the table of the documentation')
    given = parser.parse_args(argv)
    outcome = results.Results('make bench-wan' + (
        ' ARGS=--quick' if given.quick else ''))
    found = {}
    for delay in _DELAYS:
        found[delay] = _migrate(delay, 256 if given.quick else 768)
        print(dict(zip(_HEAD, line(found[delay], delay), strict=True)),
              flush=True)
        judge(outcome, delay, found[delay], found[0])
    lines = [line(one, delay) for delay, one in found.items()]
    print(table.text(_HEAD, lines))
    print(outcome.text())
    outcome.write(_BUILD / 'report.json')
    if given.publish:
        _INCLUDE.write_text(rst.list_table(_HEAD, lines))
    print(os.path.relpath(_BUILD / 'report.json'))
    return outcome.status()


if __name__ == '__main__':
    sys.exit(main())
