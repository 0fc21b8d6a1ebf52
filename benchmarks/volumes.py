# SPDX-License-Identifier: Apache-2.0
"""Volumes in use move to other storage: in full, and from their backups.

QEMUs have volumes on storage of one given rate, which a neighbour uses too.
Cinder's own posix driver makes backups; a daemon serves them over TLS, as in
a cloud.  One or two volumes are mirrored to new ones at once, over a link of
a given rate, in the ways of volume_moves.  All bytes of all copies are
compared with the volumes.

Not in it: Nova and Cinder's API, a guest's own processor and memory.
"""

import argparse
import os
import pathlib
import sys
import unittest

from benchmarks import volume_moves
from benchmarks import volume_report
from testkit import qemus
from testkit import results

_TOP = pathlib.Path(__file__).parents[1]
_MIB = 1 << 20


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog='bench-volumes', description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true',
                        help='volumes of 256 MiB, each move once')
    parser.add_argument('--mib', type=int, default=1024,
                        help='of a volume (default: %(default)s)')
    parser.add_argument('--repeats', type=int, default=3,
                        help='of each move (default: %(default)s)')
    parser.add_argument('--rate', type=float, default=20.0,
                        help='MB/s that the storage of the volumes gives '
                             '(default: %(default)g)')
    parser.add_argument('--links', default=(100, 1000), metavar='Mbit/s,...',
                        type=lambda text: tuple(map(int, text.split(','))),
                        help='default: 100,1000')
    parser.add_argument('--counts', default=(1, 2), metavar='N,...',
                        type=lambda text: tuple(map(int, text.split(','))),
                        help='volumes at once (default: 1,2)')
    args = parser.parse_args(argv)
    if args.quick:
        args.mib, args.repeats = 256, 1
    moves = volume_moves.Moves
    moves.size = args.mib * _MIB
    moves.rate = int(args.rate * 1e6)
    moves.before = 5.0 if args.quick else 20.0
    # Not in the test, which has another home directory.
    moves.binary = os.fspath(qemus.find('patched'))
    found = []

    def work(test):
        for repeat in range(args.repeats):
            for link in args.links:
                for count in args.counts:
                    for way in volume_moves.WAYS:
                        moved = test.move(way, count, link * 125_000)
                        found.append(volume_report.Run(
                            link, count, way, repeat, moved))
                        print(volume_report.line(found[-1]), flush=True)

    moves.work = work
    given = ' '.join(sys.argv[1:] if argv is None else argv)
    out = results.Results('make bench-volumes'
                          + (' ARGS="%s"' % given if given else ''))
    outcome = unittest.TextTestRunner(stream=sys.stderr).run(moves())
    if not outcome.wasSuccessful():
        return 1
    out.add('volume', args.mib, 'MiB', '-', True)
    out.add('storage', args.rate, 'MB/s', '-', True)
    volume_report.add(out, found)
    print(volume_report.show(found))
    print(out.text())
    out.write(_TOP / 'build/bench-volumes/report.json')
    return out.status()


if __name__ == '__main__':
    sys.exit(main())
