# SPDX-License-Identifier: Apache-2.0
"""What was tried, and kept in a file: a line of JSON for each trial."""

import dataclasses
import json

from lab import table


@dataclasses.dataclass
class Trial:
    """One fault at one moment.

    :ivar status: of the instance, when Nova has come to rest
    :ivar migration: status of the migration
    :ivar host: that Nova says the instance is on
    :ivar seconds: from the fault until then
    :ivar note: of the fault, or when it was struck
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
    """:param path: of the file"""

    def __init__(self, path):
        self._path = path

    def trials(self):
        """Return all Trials so far; a line that was cut off is none."""
        try:
            lines = self._path.read_text().splitlines()
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                found.append(Trial(**json.loads(line)))
            except (ValueError, TypeError):
                continue
        return found

    def add(self, trial):
        with self._path.open('a') as file:
            file.write(json.dumps(dataclasses.asdict(trial)) + '\n')

    def clear(self):
        self._path.unlink(missing_ok=True)

    def missing(self, wanted, repeat):
        """Return what of (fault, moment) pairs was done too few times.

        :param repeat: how often each is wanted
        """
        done = [(one.fault, one.moment) for one in self.trials()]
        return [pair for turn in range(repeat) for pair in wanted
                if done.count(pair) <= turn]


def show(trials):
    """Return the table."""
    return table.text(
        ('fault', 'moment', 'from', 'rests after s', 'instance', 'on',
         'migration', 'note', 'wrong'),
        [(one.fault, one.moment, one.source, '%.0f' % one.seconds,
          one.status, one.host, one.migration, one.note or '-',
          '; '.join(one.problems) or '-') for one in trials])
