# SPDX-License-Identifier: Apache-2.0
"""A volume in use moves from slow storage, with its backups and without.

Two ways in turn, over a link of the storage it leaves that carries little;
that of the storage it moves to is not limited:

Nova          LibvirtDriver copies all
fingerprints  filled from backups; the old volume was read before, over a link
              without a limit

Each begins with the same writes of the guest, ours with a backup and writes
after it, and with a file that has holes: Nova's copy has none, and reading
them back would be measured with the next way.
"""

import dataclasses
import subprocess

from lab import volume_moves
from lab import volume_trials
from lab.services import nova
from testkit import table

NOVA, FINGERPRINTS = WAYS = 'Nova', 'fingerprints'
#: Driver of nova-compute.
_COMPUTES = {NOVA: 'stock', FINGERPRINTS: 'dedup'}
#: Part of the bytes that a copy of all reads, and how much faster.
READ_TARGET, TIME_TARGET = 0.10, 4.0


@dataclasses.dataclass(frozen=True)
class Run:
    """One way of one turn.

    :ivar same: whether the new file is equal to the old one
    """

    way: str
    turn: int
    swapped: volume_moves.Swapped
    same: bool

    @property
    def sources(self):
        """Bytes by where they came from; Nova's driver notes none."""
        return (self.swapped.noted.sources
                if self.way != NOVA and self.swapped.noted else {})


def measure(subject, turns, rate, progress):
    """Move it; a list of Run.

    :param rate: bytes/s of the link of the NAS that it leaves, each way
    """
    found = []
    try:
        for turn in range(turns):
            for way in WAYS:
                one = _run(subject, way, turn + 1, rate)
                found.append(one)
                progress.say(
                    'turn %d, %s: %.1f s, the storage sent %.1f MB%s' % (
                        turn + 1, way, one.swapped.seconds,
                        one.swapped.read / 1e6,
                        '' if way == NOVA or one.swapped.noted is None
                        else '; ' + one.swapped.noted.outcome))
    finally:
        nova.restart_computes(subject.cloud)
    return found


def _run(subject, way, turn, rate):
    disk = volume_trials.DISK
    nova.restart_computes(subject.cloud, _COMPUTES[way])
    if way == NOVA:
        subject.write()
    else:
        subject.back_up(disk)
    subject.rest()
    volume = subject.volumes()[disk]
    nas, path = subject.file(volume)
    with (volume_trials.Slowly(subject, rate, [nas.name]),
          subject.stopped(), subject.kept(volume) as kept):
        subprocess.run(['fallocate', '--dig-holes', path], check=True)
        swapped = subject.swap(disk)
        same = not subject.different(kept, volume)
    return Run(way, turn, swapped, same)


def judge(runs, found):
    """Add rows to a testkit.results.Results."""
    means = {}
    for way in WAYS:
        for name, unit, factor in (('seconds', 's', 1), ('read', 'MB', 1e6)):
            values = [getattr(one.swapped, name) / factor for one in runs
                      if one.way == way]
            means[way, name] = sum(values) / len(values)
            found.add('%s: %s' % (way, 'time' if name == 'seconds'
                                  else 'storage sent'),
                      '%.1f (%.1f to %.1f)' % (means[way, name], min(values),
                                               max(values)),
                      unit, 'any', True)
    read = means[FINGERPRINTS, 'read'] / means[NOVA, 'read']
    gain = means[NOVA, 'seconds'] / means[FINGERPRINTS, 'seconds']
    found.add('fingerprints: storage sent, against Nova', read, '',
              '%g or less' % READ_TARGET, read <= READ_TARGET)
    found.add('fingerprints: faster than Nova', gain, 'times',
              '%g or more' % TIME_TARGET, gain >= TIME_TARGET)
    wrong = sum(not one.same for one in runs)
    found.add('new files that are not the old ones', wrong, '', '0',
              not wrong)
    missed = sum((one.way != NOVA) != bool(one.sources.get('backup'))
                 for one in runs)
    found.add('moves that went another way', missed, '', '0', not missed)


def show(runs):
    """Return the table of all runs."""
    return table.text(
        ('turn', 'way', 'seconds', 'storage sent MB', 'backup MiB',
         'volume MiB'),
        [(one.turn, one.way, '%.1f' % one.swapped.seconds,
          '%.1f' % (one.swapped.read / 1e6),
          *('%.1f' % (one.sources[name] / 2 ** 20)
            if name in one.sources else '-' for name in ('backup', 'volume')))
         for one in runs])
