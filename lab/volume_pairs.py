# SPDX-License-Identifier: Apache-2.0
"""A volume in use moves with and without its backups, in turn.

Both ways begin with the same backups and the same writes after them, over
links of the NASes that carry little.  Without backups means that the daemons
are away: Nova copies all.
"""

import dataclasses

from lab import volume_moves
from lab import volume_trials
from lab.services import backups
from testkit import table

STOCK, OURS = 'without backups', 'with backups'
#: Part of the bytes that a copy of all reads, and how much faster.
READ_TARGET, TIME_TARGET = 0.10, 4.0


@dataclasses.dataclass(frozen=True)
class Run:
    """One way of one pair.

    :ivar same: whether the new file is equal to the old one
    """

    way: str
    pair: int
    swapped: volume_moves.Swapped
    same: bool


def measure(subject, pairs, rate, progress):
    """Move it; a list of Run.

    :param rate: bytes/s of the NASes' links, each way
    """
    found = []
    for pair in range(pairs):
        for way in (STOCK, OURS):
            one = _run(subject, way, pair + 1, rate)
            found.append(one)
            progress.say('pair %d, %s: %.1f s, the storage sent %.1f MB; '
                         '%s' % (pair + 1, way, one.swapped.seconds,
                                 one.swapped.read / 1e6,
                                 one.swapped.noted.outcome))
    return found


def _run(subject, way, pair, rate):
    disk = volume_trials.DISK
    cloud = subject.cloud
    subject.rest()
    subject.back_up(disk)
    subject.rest()
    volume = subject.volumes()[disk]
    hosts = cloud.settings.backup_hosts if way == STOCK else ()
    for name in hosts:
        backups.stop_assist(cloud, name)
    try:
        with (volume_trials.Slowly(subject, rate), subject.stopped(),
              subject.kept(volume) as kept):
            swapped = subject.swap(disk)
            same = not subject.different(kept, volume)
    finally:
        for name in hosts:
            backups.start_assist(cloud, name)
    return Run(way, pair, swapped, same)


def judge(runs, found):
    """Add rows to a testkit.results.Results."""
    sums = {way: [sum(getattr(one.swapped, name) for one in runs
                      if one.way == way) for name in ('read', 'seconds')]
            for way in (STOCK, OURS)}
    pairs = len(runs) // 2
    for way, (read, seconds) in sums.items():
        found.add('%s: storage sent' % way, read / pairs / 1e6, 'MB', '-',
                  True)
        found.add('%s: time' % way, seconds / pairs, 's', '-', True)
    read = sums[OURS][0] / sums[STOCK][0]
    gain = sums[STOCK][1] / sums[OURS][1]
    found.add('storage sent against a copy of all', read, '',
              '%g or less' % READ_TARGET, read <= READ_TARGET)
    found.add('faster than a copy of all', gain, 'times',
              '%g or more' % TIME_TARGET, gain >= TIME_TARGET)
    wrong = sum(not one.same for one in runs)
    found.add('new files that are not the old ones', wrong, '', '0',
              not wrong)
    missed = sum((one.way == OURS) != bool(one.swapped.filled)
                 for one in runs)
    found.add('runs that went the other way', missed, '', '0', not missed)


def show(runs):
    """Return the table of all runs."""
    return table.text(
        ('pair', 'way', 'seconds', 'storage sent MB', 'from volume MiB'),
        [(one.pair, one.way, '%.1f' % one.swapped.seconds,
          '%.1f' % (one.swapped.read / 1e6),
          '%.1f' % (one.swapped.noted.sources['volume'] / 2 ** 20)
          if 'volume' in one.swapped.noted.sources else '-')
         for one in runs])
