# SPDX-License-Identifier: Apache-2.0
"""make qemu-hardening: faults of the QEMU part, and what keeps them away.

For each fault a test is run that provokes it, and if there is one a test that
shows what happens with the safeguard taken out.  For each way in which a peer
can be hostile a test is run, too; the value is by how many MiB QEMU grew at
most.  Figures: how long the longest pieces of work take that a peer can ask
for, and for how long QEMU's locks are held for us at most, in processor time.
"""

import argparse
import os
from pathlib import Path
import subprocess
import sys
import tempfile

from testkit import results

_TOP = Path(__file__).parents[1]
_REPORT = _TOP / 'build' / 'qemu-hardening' / 'report.json'
_TESTS = 'nova_dedup_migrate.tests.functional.migration.'
_PASSED, _SKIPPED = 'passed', 'skipped'
#: Fault, and the test whose twin "..._broken" shows it, if it has one.
_FAULTS = (
    ('content overtakes a record, a RAM block came',
     'test_order.NewScanTest.test_record_is_late', True),
    ('content overtakes a record, channels not synchronised',
     'test_multifd.RecordsFirstTest.test_not_synchronised', False),
    ('switch-over fails while metadata is read',
     'test_resolver.SlowMetadataTest.'
     'test_destination_fails_at_the_switchover', True),
    ("fetches fill the host's page cache",
     'test_views.ViewsTest.test_reads_leave_nothing_in_the_page_cache',
     True),
    ('a read hangs through the hand-over',
     'test_views.ViewsTest.test_read_hangs_through_the_hand_over', False),
    ('a read hangs, the migration is cancelled',
     'test_views.ViewsTest.test_read_hangs_and_it_is_cancelled', False),
    ('a read hangs, the guest is stopped',
     'test_views.ViewsTest.test_read_hangs_and_the_guest_is_stopped', False),
    ('a page is forgotten before post-copy',
     'test_postcopy.PostcopyTest.test_what_is_missing_is_noticed', False),
    ('a read ends late, the guest has written to its page in post-copy',
     'test_lazy.LazyTest.test_read_ends_after_a_write', True),
    ('storage holds other bytes in post-copy',
     'test_lazy.LazyTest.test_other_bytes', True),
    ('storage hangs at the switch-over',
     'test_switchover.SwitchoverTest.test_storage_hangs', True),
    ('a page arrives while a fetch of it is under way',
     'test_late_fetch.LateFetchTest.test_page_while_pending', True),
)
_HOSTILE = 'test_hostile.Hostile'
#: What a hostile peer does, the test, MiB that it allows.
_PEERS = (
    ('SETUP that nobody asked for', 'Source', 'setup_without_hello', 8),
    ('SETUP in a file', 'Source', 'setup_from_a_file', 8),
    ('SETUP in a snapshot', 'Source', 'setup_from_a_snapshot', 8),
    ('SETUP with a disk 127 times', 'Source', 'same_disk_often', 8),
    ('elements of 4 GiB', 'Source', 'length_of_4_gib', 8),
    ('an element that is cut', 'Source', 'truncated', 8),
    ('records out of bounds', 'Source', 'records_out_of_bounds', 8),
    ('more extents in an element than allowed', 'Source',
     'more_extents_than_allowed', 8),
    ('descending extents without end', 'Source',
     'flood_of_descending_extents', 160),
    ('extents of 127 disks without end', 'Source',
     'more_extents_than_fit', 160),
    ('records without end', 'Source', 'flood_of_records', 48),
    ('records without end, storage hangs, 4 GiB of memory', 'Source',
     'flood_of_records_while_storage_hangs', 320),
    ('epochs without end', 'Source', 'flood_of_epochs', 8),
    ('records of an unknown version, answers not read', 'Source',
     'flood_for_a_version_that_is_unknown', 96),
    ('answers for ids never sent', 'Destination',
     'answers_for_ids_never_sent', 8),
    ('answers twice', 'Destination', 'answered_twice', 8),
    ('answers twice, without end', 'Destination',
     'flood_of_answers_twice', 8),
    ('answers about nothing, without end', 'Destination',
     'flood_of_empty_answers', 8),
    ('HELLO without end', 'Destination', 'flood_of_greetings', 8),
    ('a message of 64 KiB', 'Destination', 'message_that_is_too_long', 8),
    ('a message that is cut', 'Destination', 'message_that_is_cut', 8),
    ('random messages', 'Destination', 'random_messages', 8),
    ('16 million extents in a page-cache map', 'Map',
     'most_extents_there_can_be', 16),
)
_HOLDS = 'test_holds.HoldsTest.test_'
#: Locks, as test_holds calls them.
_LOCKS = (('the BQL', 'bql'), ("the dirty bitmap's mutex", 'bitmap'),
          ('the lock of a qcow2 image', 'image'))
_MOST_HOLD_MS = 5.0
#: Name, what bench_bounds calls it, most.
_FIGURES = (
    ('pause for records, %d million sent, one never answered',
     'redirty', 5.0),
    ('memory for records, %d million sent', 'record-memory', 41.0),
    ('a payload of descending extents among %d million more',
     'descending-extents', 5.0),
    ('a look at 2 million records that wait, some at a time', 'trim', 5.0),
)


def _parser():
    result = argparse.ArgumentParser(
        prog='make qemu-hardening',
        description='Provoke the known faults of the QEMU part, and show '
                    'what keeps them away.')
    result.add_argument(
        '--quick', action='store_true',
        help='leave out the tests with a safeguard taken out, and send '
             'fewer records')
    return result


def _outcome(test, figures=os.devnull):
    """Run one test, return passed, skipped or failed.

    :param figures: file that gets what the test measures
    """
    done = subprocess.run(
        [sys.executable, '-m', 'unittest', '-v', _TESTS + test], cwd=_TOP,
        env={**os.environ, 'DEDUP_TEST_FIGURES': str(figures)},
        capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        return 'failed'
    return _SKIPPED if 'skipped=' in done.stderr else _PASSED


def _add_test(found, name, test):
    outcome = _outcome(test)
    found.add(name, outcome, '', test.rpartition('.')[2],
              outcome == _PASSED)


def _add_peer(found, name, kind, test, most):
    with tempfile.NamedTemporaryFile('r') as figures:
        outcome = _outcome(f'{_HOSTILE}{kind}Test.test_{test}', figures.name)
        grown = [float(line) for line in figures]
    found.add(f'{kind.lower()}: {name}',
              max(grown) if outcome == _PASSED and grown else outcome, 'MiB',
              f'answers, at most {most}', outcome == _PASSED)


def _add_holds(found, quick):
    """Add the longest hold of each lock."""
    longest, names = {}, {}
    with tempfile.NamedTemporaryFile('r') as figures:
        outcome = [_outcome(_HOLDS + test, figures.name)
                   for test in ('holds', 'hints_are_forgotten')]
        for line in figures:
            lock, name, _, cpu, _ = line.split()
            ms = int(cpu) / 1000
            if ms >= longest.get(lock, 0):
                longest[lock], names[lock] = ms, name
    good = outcome == [_PASSED, _PASSED]
    for name, lock in _LOCKS:
        value = longest.get(lock) if good else outcome[0]
        found.add(f'longest hold of {name}, 64 GiB of memory, 1 TiB of disk',
                  'none' if value is None else value, 'ms',
                  f'at most {_MOST_HOLD_MS:g}; {names.get(lock, "")}',
                  good and value is not None and value <= _MOST_HOLD_MS)
    if not quick:
        _add_test(found, '- without the safeguard', _HOLDS + 'holds_broken')


def _figures(millions):
    """Return {name: value} of bench_bounds, which is built if need be."""
    out = _TOP / 'build' / 'c-unit'
    program = out / 'plain' / 'bench_bounds'
    subprocess.run(
        ['make', '-s', '-C', _TOP / 'qemu' / 'tests', f'OUT={out}', program],
        check=True)
    done = subprocess.run([program, str(millions)], capture_output=True,
                          text=True, check=True)
    return {name: (float(value), unit) for name, value, unit in (
        line.split() for line in done.stdout.splitlines())}


def main(argv=None):
    args = _parser().parse_args(argv)
    found = results.Results('make qemu-hardening' + (
        ' ARGS=--quick' if args.quick else ''))
    for name, test, twin in _FAULTS:
        _add_test(found, name, test)
        if twin and not args.quick:
            _add_test(found, '- without the safeguard', test + '_broken')
    for peer in _PEERS:
        _add_peer(found, *peer)
    _add_holds(found, args.quick)
    millions = 4 if args.quick else 67
    measured = _figures(millions)
    for name, key, most in _FIGURES:
        value, unit = measured[key]
        if '%' in name:
            name %= 1 if key.endswith('extents') else millions
        found.add(name, value, unit, f'at most {most:g}', value <= most)
    print(found.text())
    found.write(_REPORT)
    print(os.path.relpath(_REPORT))
    return found.status()


if __name__ == '__main__':
    sys.exit(main())
