# SPDX-License-Identifier: Apache-2.0
"""make qemu-series: migrations within a second series of QEMU, and across.

The first row runs all functional tests of migrations with the second series.
Each other one runs some with a pair of QEMUs, ours and stock ones of both
series, in both directions.  They compare all guest memory.
Ours are the patched ones with the faults that these tests inject.  Guests
have a machine that both series know.
"""

import argparse
import dataclasses
import os
from pathlib import Path
import re
import subprocess
import sys
import unittest

from testkit import qemus
from testkit import results

_TOP = Path(__file__).parents[1]
_OUT = _TOP / 'build' / 'qemu-series'
_TESTS = 'nova_dedup_migrate.tests.functional.migration.'
_OURS = 'faulty'
_FLAVOURS = ('stock', 'patched', 'faulty')
_OLD, _NEW = '10.0', '10.2'
_MACHINE = 'pc-i440fx-10.0'

#: Of each mechanism that has hooks of its own, the tests that go through
#: most of them.
_QUICK = (
    'test_answers.StaleAnswerTest.test_acknowledged_then_recorded_again',
    'test_compress.BesideRecordsTest.test_both',
    'test_compress.MultifdTest.test_that_compresses',
    'test_formats.FormatsTest.test_chain_of_three',
    'test_late_fetch.LateFetchTest.test_page_while_pending',
    'test_lazy.LazyPreemptTest.test_storage_delivers',
    'test_lazy.LazyTest.test_storage_delivers',
    'test_lazy.LazyTest.test_storage_hangs_and_guest_runs',
    'test_lifecycle.LifecycleTest.test_there_and_back',
    'test_multifd.FetchedBecomesZeroTest.test_plain',
    'test_multifd.RecordsFirstTest.test_plain',
    'test_postcopy.PostcopyTest.test_backlog',
    'test_postcopy.PostcopyTest.test_recovery',
    'test_switchover.SwitchoverTest.test_storage_hangs',
    'test_xbzrle.DeltaTest.test_content_record_delta',
)
#: With one QEMU only: that safeguards are needed, what both sides can do.
_WITHIN = (
    'test_lifecycle.LifecycleTest.test_cancel_and_retry_multifd',
    'test_late_fetch.LateFetchTest.test_page_while_pending_broken',
    'test_postcopy.PostcopyTest.test_multifd',
    'test_postcopy.PostcopyTest.test_multifd_lazy',
    'test_switchover.SwitchoverTest.test_storage_hangs_broken',
)
_TO_STOCK = tuple('test_peers.PeersTest.test_stock_destination' + end
                  for end in ('', '_multifd', '_xbzrle'))
_FROM_STOCK = tuple('test_peers.PeersTest.test_stock_source' + end
                    for end in ('', '_multifd'))


@dataclasses.dataclass(frozen=True)
class Pair:
    """A row.

    :ivar source, destination: (flavour, series)
    :ivar tests: names below the package of the migration tests; none: all
    """

    source: tuple
    destination: tuple
    tests: tuple = ()

    @property
    def name(self):
        return ' -> '.join('%s %s' % side
                           for side in (self.source, self.destination))

    def environment(self, binaries):
        """What makes the tests use these QEMUs."""
        sides = dict((self.source, self.destination))
        found = {'DEDUP_QEMU_MACHINE': _MACHINE,
                 'DEDUP_QEMU_DESTINATION': ''}
        if not self.tests:
            series = self.source[1]
            sides = dict.fromkeys(_FLAVOURS, series)
        if 'stock' in sides:
            for flavour, series in sides.items():
                found[f'DEDUP_QEMU_{flavour.upper()}'] = str(
                    binaries[flavour, series])
        else:
            found['DEDUP_QEMU_FAULTY'] = str(binaries[self.source])
            found['DEDUP_QEMU_DESTINATION'] = str(
                binaries[self.destination])
        return found


    def sides(self):
        """The QEMUs, as (flavour, series), that the tests need."""
        if not self.tests:
            return {(flavour, self.source[1]) for flavour in _FLAVOURS}
        return {self.source, self.destination}

    def command(self):
        """The options of unittest for the tests, and how many they are."""
        if self.tests:
            return [_TESTS + test for test in self.tests], len(self.tests)
        directory = _TESTS.rstrip('.').replace('.', '/')
        found = unittest.defaultTestLoader.discover(
            _TOP / directory, top_level_dir=_TOP)
        return (['discover', '-s', directory, '-t', '.'],
                found.countTestCases())


def pairs(quick=False):
    """Return all rows."""
    old, new = (_OURS, _OLD), (_OURS, _NEW)
    return [
        Pair(new, new, _QUICK + _WITHIN if quick else ()),
        Pair(old, new, _QUICK),
        Pair(new, old, _QUICK),
        *(Pair(ours, ('stock', series), _TO_STOCK)
          for ours, series in ((new, _NEW), (new, _OLD), (old, _NEW))),
        *(Pair(('stock', series), ours, _FROM_STOCK)
          for ours, series in ((new, _NEW), (new, _OLD), (old, _NEW)))]


def _parser():
    result = argparse.ArgumentParser(
        prog='make qemu-series',
        description=f'Run tests of migrations with the QEMUs of the series '
                    f'{_NEW} and between these and those of {_OLD}.')
    result.add_argument(
        '--quick', action='store_true',
        help='also of the second series only the tests that the pairs run')
    result.add_argument(
        '--only', metavar='TEXT', default='',
        help='only rows whose name has this in it, such as "10.0 -> faulty"')
    return result


def counts(output):
    """Return (run, failed, skipped) of what unittest printed."""
    ran = re.search(r'^Ran (\d+) tests?', output, re.MULTILINE)
    found = {name: int(number) for name, number in re.findall(
        r'\b(failures|errors|skipped)=(\d+)', output)}
    return (int(ran[1]) if ran else 0,
            found.get('failures', 0) + found.get('errors', 0),
            found.get('skipped', 0))


def _run(pair, binaries, number):
    """Run the tests of a row; return counts() and how many there are."""
    log = _OUT / f'{number}.log'
    log.parent.mkdir(parents=True, exist_ok=True)
    options, expected = pair.command()
    done = subprocess.run(
        [sys.executable, '-m', 'unittest', *options, '-v'], cwd=_TOP,
        env={**os.environ, **pair.environment(binaries)},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        errors='replace', check=False)
    log.write_text(done.stdout)
    ran, failed, skipped = counts(done.stdout)
    if failed or done.returncode or skipped:
        print(f'{pair.name}: see {os.path.relpath(log)}', file=sys.stderr)
    return ran, max(failed, int(done.returncode != 0)), skipped, expected


def main(argv=None):
    args = _parser().parse_args(argv)
    chosen = [pair for pair in pairs(args.quick) if args.only in pair.name]
    wanted = sorted({side for pair in chosen for side in pair.sides()})
    try:
        binaries = {side: qemus.of_series(*side) for side in wanted}
    except qemus.QemuNotFound as error:
        sys.exit(f'make qemu-series: {error}')
    options = (['--quick'] if args.quick else []) + (
        [f'--only "{args.only}"'] if args.only else [])
    found = results.Results('make qemu-series' + (
        f" ARGS='{' '.join(options)}'" if options else ''))
    for flavour, series in wanted:
        version = qemus.compiled(binaries[flavour, series])['version']
        found.add(f'{flavour} {series}', version, '', f'{series}.x',
                  version.startswith(series))
    for number, pair in enumerate(chosen):
        ran, failed, skipped, expected = _run(pair, binaries, number)
        found.add(pair.name, ran - failed - skipped, 'tests passed',
                  f'{expected}',
                  ran == expected and not failed and not skipped)
    print(found.text())
    report = _OUT / 'report.json'
    found.write(report)
    print(os.path.relpath(report))
    return found.status() if chosen else 1


if __name__ == '__main__':
    sys.exit(main())
