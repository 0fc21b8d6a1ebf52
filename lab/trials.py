# SPDX-License-Identifier: Apache-2.0
"""The trials of a fault campaign, and the file that keeps them."""

import dataclasses

from testkit import ledger
from testkit import table


@dataclasses.dataclass
class Trial:
    """One fault at one moment.

    :ivar status: of the instance, when Nova has come to rest
    :ivar migration: status of the migration
    :ivar host: that Nova says the instance is on
    :ivar seconds: from the fault until then
    :ivar note: of the fault, or when it was injected
    :ivar problems: what is not as it should be, sentences
    """

    fault: str
    moment: str
    source: str = ''
    status: str = ''
    migration: str = ''
    host: str = ''
    seconds: float = 0.0
    note: str = ''
    problems: list = dataclasses.field(default_factory=list)


class Ledger:
    """The trials of a lab; a pair is (fault, moment).

    :param path: of the file
    """

    def __init__(self, path):
        self._kept = ledger.Ledger(path)

    def trials(self):
        """Return all Trials so far; what is not one is left out."""
        found = []
        for key, record in self._kept.items():
            try:
                found.append(Trial(key.cell, key.variant, **record))
            except TypeError:
                continue
        return found

    def add(self, trial):
        """Keep a Trial; it is on the disk when this returns."""
        record = dataclasses.asdict(trial)
        pair = record.pop('fault'), record.pop('moment')
        repeat = 0
        while self._kept.get(ledger.Key(*pair, repeat)) is not None:
            repeat += 1
        self._kept.add(ledger.Key(*pair, repeat), record)

    def clear(self):
        """Forget all trials."""
        self._kept.clear()

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
        found.add('%s, %s' % (one.fault, one.moment),
                  '; '.join(one.problems) or 'as it should be', '',
                  'the instance is where Nova says, nothing is left',
                  not one.problems)


def show(trials):
    """Return the table."""
    return table.text(
        ('fault', 'moment', 'from', 'rests after s', 'instance', 'on',
         'migration', 'note', 'wrong'),
        [(one.fault, one.moment, one.source, '%.0f' % one.seconds,
          one.status, one.host, one.migration, one.note or '-',
          '; '.join(one.problems) or '-') for one in trials])
