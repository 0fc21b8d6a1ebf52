# SPDX-License-Identifier: Apache-2.0
"""make bench-index: how fast blocks are indexed and found.

A file of random bytes is indexed as the agent does it, and digests are
looked up in an index of many files, half of them there.  Rates for a core
are of the time that the thread had the processor, so that other work on
the machine does not count.  LMDB with the same keys and places is measured
beside it.  --similarity compares two Debian disks as well, which were made
one by one of the same packages.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
import multiprocessing
import os
from pathlib import Path
import signal
import sys
import tempfile
import time

import lmdb
import numpy

from benchmarks import rst
from guests import errors
from guests.debian import image
from nova_dedup_migrate.storage import blocks
from nova_dedup_migrate.storage import similarity
from nova_dedup_migrate.storage.index import fingerprints
from nova_dedup_migrate.storage.index import segment
from nova_dedup_migrate.storage.index import store
from testkit import results

NAME = 'index'
TOP = Path(__file__).resolve().parents[1]
#: Targets: bytes a second of a core, seconds, bytes an entry
RATE = 1e9
LOOK_UP_S = 2.0
ENTRY_BYTES = 24
#: Digests that are looked up at once.
LOOKED_UP = 1_000_000
#: Files of the index.
FILES = 10


class Clock:
    """Time of one measurement, by the clock and of this thread."""

    def __enter__(self) -> Clock:
        self._begun = time.monotonic(), time.thread_time()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.seconds = time.monotonic() - self._begun[0]
        self.processor = time.thread_time() - self._begun[1]


def indexing(found: results.Results, directory: Path, size: int) -> None:
    path = directory / 'file'
    with path.open('wb') as file:
        for _ in range(size >> 20):
            file.write(os.urandom(1 << 20))
        file.flush()
        os.fsync(file.fileno())
    with path.open('rb') as file:
        best = None
        for _ in range(3):
            with Clock() as clock:
                fingerprints.fingerprint(file.fileno())
            if best is None or clock.processor < best.processor:
                best = clock
    path.unlink()
    rate = size / best.processor
    found.add('indexing, of a core', rate / 1e6, 'MB/s',
              'at least 1000', rate >= RATE)
    found.add('indexing, from this storage', size / best.seconds / 1e6,
              'MB/s', '-', True)


def looking_up(found: results.Results, directory: Path, entries: int
               ) -> numpy.ndarray:
    """Measure look-ups; return all keys of the index."""
    index = store.Index(str(directory / 'index'))
    stat = os.stat(directory)
    rng = numpy.random.default_rng(1)
    numbers = numpy.arange(entries // FILES, dtype=numpy.uint64)
    known, all_keys = b'', []
    with Clock() as clock:
        for number in range(FILES):
            known = rng.bytes(blocks.DIGEST * len(numbers))
            all_keys.append(segment.keys(known))
            index.add('/file/%d' % number, 'project', stat, all_keys[-1],
                      numbers)
    found.add('entering %d entries' % entries, clock.seconds, 's', '-',
              True)
    half = LOOKED_UP // 2
    digests = known[:half * blocks.DIGEST]
    digests += rng.bytes(
        (LOOKED_UP - len(digests) // blocks.DIGEST) * blocks.DIGEST)
    for name, prepare in (('in several segments', lambda: None),
                          ('in one segment', index.compact)):
        prepare()
        keys = segment.keys(digests)
        index.look_up(keys, ['project'])
        with Clock() as clock:
            places = index.look_up(segment.keys(digests), ['project'])
        there = int(numpy.count_nonzero(places))
        found.add('look-up of 1 M digests %s' % name, clock.processor,
                  's', 'less than 2',
                  clock.processor < LOOK_UP_S
                  and there == min(half, len(numbers)))
    hidden = index.look_up(segment.keys(digests), ['another project'])
    found.add('digests found that belong to others',
              int(numpy.count_nonzero(hidden)), '', '0', not hidden.any())
    size = sum(entry.stat().st_size for entry in os.scandir(
        directory / 'index') if entry.name.endswith('.segment'))
    found.add('memory of an entry', size / index.entries, 'B',
              'at most 24', size / index.entries <= ENTRY_BYTES)
    with Clock() as clock:
        index.compact()
    found.add('compaction', clock.seconds, 's', '-', True)
    index.close()
    return numpy.concatenate(all_keys)


def beside_lmdb(found: results.Results, directory: Path,
                keys: numpy.ndarray) -> None:
    """The same keys, in the order in which they come."""
    with lmdb.open(str(directory / 'lmdb'), map_size=64 * (len(keys) + 9000),
                   sync=False) as environment:
        raw = keys.astype('>u8').tobytes()
        with Clock() as clock, environment.begin(write=True) as work:
            work.cursor().putmulti(
                (raw[at:at + 8], raw[at:at + 8])
                for at in range(0, len(raw), 8))
        found.add('LMDB: entering %d entries' % len(keys), clock.seconds,
                  's', '-', True)
        wanted = [raw[at:at + 8] for at in range(0, 8 * LOOKED_UP, 8)]
        with environment.begin() as work, Clock() as clock:
            for key in wanted:
                work.get(key)
        found.add('LMDB: look-up of 1 M digests', clock.processor, 's', '-',
                  True)
        pages = environment.info()['last_pgno'] + 1
        found.add('LMDB: memory of an entry',
                  pages * environment.stat()['psize'] / len(keys), 'B', '-',
                  True)


def killing(found: results.Results, directory: Path, times: int) -> None:
    """Kill the process that writes to an index, at any moment."""
    where = str(directory / 'killed')
    lost = 0
    context = multiprocessing.get_context('fork')
    for number in range(times):
        begun = context.Event()
        process = context.Process(target=_fill, args=(where, number, begun))
        process.start()
        begun.wait(60)
        time.sleep(0.003 * number)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        index = store.Index(where)
        for file in index.files():
            places = index.find(_digests(file.path), ['project'])
            lost += sum(place is None or place.file.path != file.path
                        for place in places)
        index.close()
    found.add('entries lost after %d times kill -9' % times, lost, '', '0',
              not lost)


def _digests(name: str) -> list[bytes]:
    return [blocks.digest(b'%s %d' % (name.encode(), number))
            for number in range(50)]


def _fill(where: str, number: int, begun) -> None:
    index = store.Index(where)
    count = 0
    while True:
        name = '%d %d' % (number, count)
        index.add(name, 'project', os.stat('/'),
                  segment.keys(b''.join(_digests(name))),
                  numpy.arange(50, dtype=numpy.uint64))
        count += 1
        if count == 3:
            begun.set()


def comparing(found: results.Results) -> None:
    """Compare the disk of the Debian guest with one of its packages alone.

    The guest's has a web server's files and a database as well.
    """
    try:
        paths = {'packages alone': image.build_plain(),
                 'the guest': image.build()}
    except errors.BuildError as error:
        found.add('Debian disks', str(error), '', 'built', False)
        return
    contents = {name: similarity.of_file(str(path))
                for name, path in paths.items()}
    for name, content in contents.items():
        found.add('Debian, %s: zeros' % name, 100 * content.zero_share, '%',
                  'any', True)
        found.add('Debian, %s: data' % name,
                  len(content.keys) * blocks.BLOCK / 1e6, 'MB', 'any', True)
        found.add('Debian, %s: indexing, of a core' % name,
                  content.read / content.seconds / 1e6, 'MB/s', 'any', True)
        (other,) = (one for one in contents if one != name)
        found.add('Debian, %s: data that is in %s' % (name, other),
                  100 * similarity.share(content, contents[other]), '%',
                  'any', True)


def publish(found: results.Results, command: str, directory: Path) -> None:
    """Write index.inc, for a document in the directory above."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / (NAME + '.inc')).write_text(
        'Made with::\n\n   %s\n\n%s\n' % (command, rst.simple(
            ['', 'value', 'unit', 'target', 'reached'],
            [[row.name, '%.4g' % row.value if isinstance(row.value, float)
              else str(row.value), row.unit, row.target,
              'yes' if row.ok else 'no'] for row in found.rows])))


def measure(found: results.Results, quick: bool,
            note: Callable[[str], None]) -> None:
    with tempfile.TemporaryDirectory(prefix='bench-index-',
                                     dir=TOP / 'build') as name:
        directory = Path(name)
        note('indexing a file')
        indexing(found, directory, (256 if quick else 4096) << 20)
        note('looking digests up')
        keys = looking_up(found, directory,
                          (4 if quick else 32) * 1_000_000)
        note('the same with LMDB')
        beside_lmdb(found, directory, keys[:4_000_000])
        note('killing the writer')
        killing(found, directory, 5 if quick else 50)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true',
                        help='a smaller file and index')
    parser.add_argument('--similarity', action='store_true',
                        help='also compare two Debian disks; makes them of '
                        'Debian\'s packages if they are not there, as root, '
                        'which takes minutes')
    parser.add_argument('--publish', type=Path, metavar='DIR',
                        help='write index.inc here, for the documentation')
    options = parser.parse_args(argv)
    typed = ' '.join(sys.argv[1:] if argv is None else argv)
    command = 'make bench-index' + (' ARGS="%s"' % typed if typed else '')
    found = results.Results(command)

    def note(text: str) -> None:
        print(text, '...', file=sys.stderr, flush=True)

    (TOP / 'build').mkdir(exist_ok=True)
    measure(found, options.quick, note)
    if options.similarity:
        note('comparing two Debian disks')
        comparing(found)
    print(found.text())
    found.write(TOP / 'build/bench-index/report.json')
    if options.publish:
        publish(found, command, options.publish)
    return found.status()


if __name__ == '__main__':
    sys.exit(main())
