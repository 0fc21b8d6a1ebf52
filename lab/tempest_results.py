# SPDX-License-Identifier: Apache-2.0
"""What came of Tempest's tests: with Nova's driver, and with ours.

What passes with Nova's driver has to pass with ours.
"""

import dataclasses
import re

from lab import tempest_tests
from testkit import table

_OUTCOME = re.compile(
    r'^\{\d+\} (?P<name>.+?) (?:\[[\d.]+s\] )?\.\.\. '
    r'(?P<outcome>ok|FAILED|SKIPPED)(?:: (?P<reason>.*))?$', re.MULTILINE)
#: Settings.drivers, as tables have them.
_DRIVERS = {'stock': "Nova's driver", 'dedup': 'our driver'}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """:ivar outcome: ok, FAILED or SKIPPED
    :ivar reason: why a test was skipped, or ''
    """

    outcome: str
    reason: str = ''


@dataclasses.dataclass(frozen=True)
class Run:
    """All tests with one driver.

    :ivar driver: of lab.settings.DRIVERS
    :ivar concurrency: tests at a time
    """

    driver: str
    concurrency: int

    def __str__(self):
        return '%s, %s' % (_DRIVERS[self.driver], 'one at a time'
                           if self.concurrency == 1
                           else '%d at a time' % self.concurrency)


def parse(text):
    """Return {name of a test or of a class's setUp: Outcome}.

    :param text: of Tempest's log, which may have been broken off
    """
    return {re.sub(r'\[.*', '', found['name']): Outcome(
        found['outcome'], found['reason'] or '')
        for found in _OUTCOME.finditer(text)}


def judge(outcomes, found):
    """Add rows about what passed.

    :param outcomes: {Run: as of parse()}; of Nova's driver there is one
        run, or none
    :param found: results.Results
    """
    for run, known in outcomes.items():
        for group, counts in _counts(known):
            found.add('%s, %s' % (group, run), '%d passed, %d failed, '
                      '%d skipped' % counts, 'tests', 'some pass',
                      counts[0] > 0)
    theirs = next((known for run, known in outcomes.items()
                   if run.driver == 'stock'), None)
    for run, known in outcomes.items():
        if run.driver != 'stock':
            _compare(theirs, run, known, found)


def _compare(theirs, run, ours, found):
    worse = 0
    for name, one in sorted(ours.items()):
        before = (theirs or {}).get(name, Outcome('')).outcome
        if one.outcome == 'ok' or (one.outcome == 'SKIPPED'
                                   and before != 'ok'):
            continue
        excused = before == 'FAILED'
        if tempest_tests.group_of(name) not in tempest_tests.OURS:
            worse += not excused
        found.add('%s, %s' % (name, run), '%s%s' % (
            'fails' if one.outcome == 'FAILED' else 'is skipped',
            ", also with Nova's" if excused
            else ", passes with Nova's" if before == 'ok' else ''),
            '', "passes, or fails with Nova's", excused)
    if theirs is not None:
        found.add("fails with %s and not with Nova's" % run, worse, 'tests',
                  '0', not worse)


def _counts(known):
    """Yield (group, (passed, failed, skipped)) of groups that ran."""
    for group in tempest_tests.GROUPS:
        kinds = [one.outcome for name, one in known.items()
                 if tempest_tests.group_of(name) == group]
        if kinds:
            yield group, tuple(map(kinds.count, ('ok', 'FAILED', 'SKIPPED')))


def show(outcomes):
    """Return the table of how many tests passed.

    :param outcomes: as of judge()
    """
    return table.text(
        ('tests', 'driver', 'at a time', 'passed', 'failed', 'skipped'),
        [(group, run.driver, run.concurrency, *counts)
         for run, known in outcomes.items()
         for group, counts in _counts(known)])


def skipped(outcomes):
    """Return lines about tests that did not run, with the reasons."""
    lines = {'skipped: %s: %s' % (test, one.reason)
             for known in outcomes.values() for test, one in known.items()
             if one.outcome == 'SKIPPED'}
    return sorted(lines) + [
        'left out: %s: %s' % one for one in tempest_tests.skip_list()]
