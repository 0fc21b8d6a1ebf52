# SPDX-License-Identifier: Apache-2.0
"""The trials of fault campaigns, and the files that keep them.

``build/lab-faults/PROFILE.jsonl`` has those of a profile, whatever lab they
were tried in, and outlives the lab.
"""

import dataclasses

from lab import settings
from testkit import ledger
from testkit import table

DIRECTORY = settings.TOP / 'build/lab-faults'


@dataclasses.dataclass
class Trial:
    """One fault at one moment.

    :ivar profile: of the lab
    :ivar status: of the instance, when Nova has come to rest
    :ivar migration: status of the migration
    :ivar host: that Nova says the instance is on
    :ivar seconds: from the fault until then
    :ivar note: of the fault, or when it was injected
    :ivar problems: what is not as it should be, sentences
    """

    fault: str
    moment: str
    profile: str = ''
    source: str = ''
    status: str = ''
    migration: str = ''
    host: str = ''
    seconds: float = 0.0
    note: str = ''
    problems: list = dataclasses.field(default_factory=list)


class Ledger:
    """The trials of a profile; a pair is (fault, moment).

    :param profile: of settings.PROFILES
    :param directory: of the file
    """

    def __init__(self, profile, directory=DIRECTORY):
        self._profile = profile
        self._kept = ledger.Ledger(directory / (profile + '.jsonl'))

    def trials(self):
        """Return all Trials so far; what is not one is left out."""
        found = []
        for key, record in self._kept.items():
            try:
                found.append(Trial(key.cell, key.variant, self._profile,
                                   **record))
            except TypeError:
                continue
        return found

    def add(self, trial):
        """Keep a Trial; it is on the disk when this returns."""
        record = dataclasses.asdict(trial)
        del record['profile']
        pair = record.pop('fault'), record.pop('moment')
        repeat = 0
        while self._kept.get(ledger.Key(*pair, repeat)) is not None:
            repeat += 1
        self._kept.add(ledger.Key(*pair, repeat), record)

    def clear(self):
        """Forget all trials."""
        self._kept.clear()

    def forget_failed(self):
        """Have those tried again that were not as they should be."""
        self._kept.forget(lambda record: bool(record.get('problems')))

    def missing(self, wanted, repeat):
        """Return the pairs that were tried too few times.

        :param wanted: pairs
        :param repeat: how often each is wanted
        """
        return [(key.cell, key.variant) for key in self._kept.missing(
            [ledger.Key(*pair, turn) for turn in range(repeat)
             for pair in wanted])]


def judge(trials, found):
    """Add a row for each trial to a testkit.results.Results."""
    for one in trials:
        found.add('%s, %s, %s' % (one.profile, one.fault, one.moment),
                  '; '.join(one.problems) or 'as it should be', '',
                  'the instance is where Nova says, nothing is left',
                  not one.problems)


def show(trials):
    """Return the table, a line for each trial."""
    return table.text(
        ('profile', 'fault', 'moment', 'from', 'rests after s', 'instance',
         'on', 'migration', 'note', 'wrong'),
        [(one.profile, one.fault, one.moment, one.source,
          '%.0f' % one.seconds, one.status, one.host, one.migration,
          one.note or '-', '; '.join(one.problems) or '-')
         for one in trials])


def summary(trials):
    """Return a table with a line for each fault.

    What the migration came to, or how many of several trials were not as
    they should be.
    """
    columns = sorted({(one.profile, one.moment) for one in trials})
    found = {}
    for one in trials:
        found.setdefault(one.fault, {}).setdefault(
            (one.profile, one.moment), []).append(one)
    return table.text(
        ('fault', *('%s, %s' % column for column in columns)),
        [(fault, *(_cell(cells.get(column, ())) for column in columns))
         for fault, cells in found.items()])


def _cell(trials):
    if not trials:
        return '-'
    wrong = sum(bool(one.problems) for one in trials)
    if wrong:
        return '%d of %d WRONG' % (wrong, len(trials))
    return ', '.join(sorted({one.migration for one in trials}))
