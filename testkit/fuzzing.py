# SPDX-License-Identifier: Apache-2.0
"""Runs fuzzers, each a function that makes inputs and feeds a parser.

A fuzzer takes a random.Random and how many inputs to make of it.  It ends
if the parser refuses each of them or returns what it may; anything else is
an exception.  The seed of its inputs is shown then, and the next fuzzer
runs.
"""

import argparse
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path
import random
import sys
import time
import traceback

from testkit import results

TOP = Path(__file__).resolve().parents[1]
#: Inputs of each fuzzer, and those of --quick.
ROUNDS, QUICK = 10_000_000, 100_000
#: Inputs of one seed.
_ROUND = 1000
#: Seconds between two signs of life.
_SILENT = 60.0

Fuzzer = Callable[[random.Random, int], None]


def damage(chance: random.Random, data: bytes,
           words: tuple[bytes, ...]) -> bytes:
    """Return bytes with one to four changes.

    :param words: bytes that parsers may be wrong about, such as large
        numbers as they have them
    """
    made = bytearray(data)
    # Half of the time of a fuzzer is spent here; randrange takes three times
    # as long.
    some = chance.random
    for _ in range((1, 1, 2, 4)[int(some() * 4)]):
        at = int(some() * (len(made) + 1))
        kind = int(some() * 32)
        if kind < 12:
            made[at:at + 1] = (int(some() * 256),)
        elif kind < 16:
            word = words[int(some() * len(words))]
            made[at:at + len(word)] = word
        elif kind < 20:
            made[at:at] = b'\xff' * (1, 7, 8, 9)[int(some() * 4)]
        elif kind < 24:
            del made[at:at + (1, 2, 16, 32)[int(some() * 4)]]
        elif kind < 28:
            made[at:at] = made[at:at + (1, 16, 80)[int(some() * 3)]]
        elif kind < 29:
            del made[at:]
    return bytes(made)


def main(target: str, about: str, fuzzers: Mapping[str, Fuzzer],
         argv: list[str] | None = None) -> int:
    """Run fuzzers, leave build/TARGET/report.json; the exit status.

    :param target: of make
    :param about: what is fuzzed, a sentence
    """
    parser = argparse.ArgumentParser(prog=target, description=about,
                                     allow_abbrev=False)
    parser.add_argument('--rounds', type=int, metavar='N',
                        help='inputs of each (default: %d)' % ROUNDS)
    parser.add_argument('--quick', action='store_true',
                        help='%d inputs of each unless --rounds is given'
                        % QUICK)
    parser.add_argument('--seed', type=int, default=1,
                        help='of the first inputs (default: %(default)s)')
    parser.add_argument('--only', choices=fuzzers, action='append',
                        help='run this one; may be repeated (default: all)')
    given = parser.parse_args(argv)
    rounds = given.rounds or (QUICK if given.quick else ROUNDS)
    typed = ' '.join(sys.argv[1:] if argv is None else argv)
    found = results.Results('make %s' % target + (
        ' ARGS="%s"' % typed if typed else ''))
    for name in given.only or fuzzers:
        _run(found, name, fuzzers[name], given.seed, rounds)
    print(found.text())
    found.write(TOP / 'build' / target / 'report.json')
    return found.status()


def _run(found: results.Results, name: str, fuzzer: Fuzzer, seed: int,
         rounds: int) -> None:
    """Run one fuzzer and add its rows."""
    begun, shown = time.thread_time(), time.monotonic()
    done = 0
    problem = ''
    while done < rounds and not problem:
        count = min(_ROUND, rounds - done)
        try:
            fuzzer(random.Random(seed), count)
        except Exception as error:
            traceback.print_exc()
            problem = '%s: %s; repeat it with --only %s --seed %d --rounds ' \
                '%d' % (type(error).__name__, error, name, seed, count)
        else:
            done, seed = done + count, seed + 1
        if time.monotonic() - shown >= _SILENT:
            shown = time.monotonic()
            print('%s: %d of %d inputs' % (name, done, rounds), flush=True)
    found.add(name + ': inputs', problem or done, '', str(rounds),
              not problem)
    found.add(name + ': inputs a second of a core',
              done / max(time.thread_time() - begun, 1e-9), '', 'any', True)
