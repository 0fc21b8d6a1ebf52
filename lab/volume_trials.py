# SPDX-License-Identifier: Apache-2.0
"""Volumes of an instance move, with and without faults.

Each trial begins with backups, moves the volume of vdb, and ends with a
comparison of all bytes.  The guest compares its own files.  The file that the
volume ends in is compared with the one it began in: for that the guest stands
still from before the pivot until both are read.  QEMU has then written out
what the guest has written, and whatever is in the new file came from the fill
and the mirror.  It stands still by libvirt, not by Nova's pause: a volume of
a paused instance would be another trial.
"""

import contextlib
import dataclasses
import signal
import time

from lab import errors
from lab import faults
from lab import volume_moves
from lab.services import backups
from lab.services import nova
from lab.settings import MBIT
from nova_dedup_migrate.swaps import operations
from testkit import table

DISK = 'vdb'
#: Of the NAS's links while nova-compute is killed: there has to be time.
_SLOW = 100 * MBIT
#: KB/s that the guest writes then, and before a mirror that is aborted: what
#: is left for that has to take longer than the command needs to begin.
_WRITES, _WRITES_MUCH = 200, 4000
#: Seconds until a moment comes, until all is settled, and until a volume is
#: filled over slow links.
_MOMENT, _SETTLED, _FILLED = 120.0, 180.0, 600.0


@dataclasses.dataclass
class Trial:
    """:ivar came_to: where the volume is, and how it got there
    :ivar problems: what is not as it should be, sentences
    """

    name: str
    seconds: float = 0.0
    read: int = 0
    sources: dict = dataclasses.field(default_factory=dict)
    came_to: str = ''
    problems: list = dataclasses.field(default_factory=list)


def run(subject, names, progress):
    """Try some of TRIALS; a list of Trial."""
    done = []
    for name in names:
        trial = Trial(name)
        done.append(trial)
        try:
            subject.rest()
            subject.back_up(DISK)
            TRIALS[name](subject, trial)
            subject.rest()
            trial.problems += subject.unsettled(DISK)
            trial.problems += subject.wrong()
        except errors.LabError as error:
            trial.problems.append(str(error))
        progress.say('%s: %s, %.1f s%s' % (
            name, trial.came_to, trial.seconds,
            ''.join('; ' + one for one in trial.problems)))
    return done


def _take(trial, swapped):
    """Keep the figures of a swap that nobody interrupted."""
    trial.seconds, trial.read = swapped.seconds, swapped.read
    if swapped.noted is None:
        trial.problems.append('the driver has noted nothing')
    else:
        trial.sources = swapped.noted.sources
        trial.came_to = swapped.noted.outcome
    if not swapped.moved:
        trial.problems.append('the volume has not moved')


def _must_be_filled(trial, swapped):
    if not swapped.filled:
        trial.problems.append('nothing came from the backup')


def _still(subject, trial, moment=None):
    """Return a context in which the guest stands still, from a moment on.

    It is made before the move is requested, gives the file that the volume
    began in, and compares that with the file of the volume at its end.
    LabError: QEMU had the new volume before the guest stood still.

    :param moment: of _fills, _copies; by default the last before the pivot
    """
    volume, path = subject.volumes()[DISK], subject.disk_path(DISK)

    @contextlib.contextmanager
    def still():
        _wait_for(lambda: (moment or _copies)(subject, path), _FILLED)
        with subject.stopped(), subject.kept(volume) as kept:
            if subject.disk_path(DISK) != path:
                raise errors.LabError('the volume has moved before the '
                                      'guest stood still')
            yield kept
            _compare(subject, trial, kept)

    return still()


def _compare(subject, trial, truth):
    problem = subject.different(truth, subject.volumes()[DISK])
    if problem:
        trial.problems.append(problem)


def _while_writing(subject, trial, kind=None):
    """Move the volume of a guest that writes until the mirror runs.

    The link of the NAS that it leaves carries little, or the mirror of what
    is left could end before anyone sees it.

    :param kind: type that the volume is to get
    """
    nas = subject.file(subject.volumes()[DISK])[0]
    with Slowly(subject, names=[nas.name]):
        subject.begin_to_write()
        swapped = subject.swap(DISK, kind, _still(subject, trial))
    _take(trial, swapped)
    return swapped


def _at_rest(subject, trial):
    """The guest stands still all the time."""
    with subject.stopped(), subject.kept(subject.volumes()[DISK]) as kept:
        swapped = subject.swap(DISK)
        _compare(subject, trial, kept)
    _take(trial, swapped)
    _must_be_filled(trial, swapped)


def _writing(subject, trial):
    _must_be_filled(trial, _while_writing(subject, trial))


def _retyped(subject, trial):
    """By a type that needs the other backend."""
    _must_be_filled(trial, _while_writing(
        subject, trial, _type(subject, subject.other(DISK))))
    # Back to one that can be anywhere.
    subject.swap(DISK, _type(subject, None))


def _type(subject, backend):
    """Return the name of a type, made if there is none."""
    storage = subject._storage
    name = 'on-%s' % (backend or 'any')
    if storage.find_type(name) is None:
        storage.create_type(name=name, extra_specs={
            'volume_backend_name': backend} if backend else {})
    return name


def _no_daemons(subject, trial):
    """cinder-backup-assist is away: Nova copies all, and says why."""
    for name in subject.cloud.settings.backup_hosts:
        backups.stop_assist(subject.cloud, name)
    try:
        swapped = _while_writing(subject, trial)
    finally:
        for name in subject.cloud.settings.backup_hosts:
            backups.start_assist(subject.cloud, name)
    if swapped.filled or 'copied by Nova: ' not in trial.came_to:
        trial.problems.append('it was not copied by Nova with a reason')


def _one_daemon_dies(subject, trial):
    """One of two ends in the middle of the fill."""
    with Slowly(subject):
        still = _still(subject, trial)
        subject.begin_to_write()
        subject.request(DISK)
        _wait_for(subject.journal(DISK).exists)
        host = subject.cloud.host(subject.cloud.settings.backup_hosts[0])
        found = host.process(backups.ASSIST)
        for one in faults.session(host, found):
            one.send(signal.SIGKILL)
        begun = time.monotonic()
        with still:
            subject.wait_moved(DISK)
            trial.seconds = time.monotonic() - begun
        found.wait(10)
        backups.start_assist(subject.cloud, host.name)
    noted = subject.noted(DISK)
    trial.sources, trial.came_to = noted.sources, noted.outcome


@contextlib.contextmanager
def _come_to(subject, trial, moment, rate=_WRITES):
    """Have the volume move while the guest writes, until a moment of that.

    The guest stands still from then on, or from the mirror on if the moment is
    later. It gives the file that the volume began in. The volume may stay
    there, so that is to be copied before anything settles the move.

    :param rate: KB/s that it writes
    """
    path = subject.disk_path(DISK)
    still = _still(subject, trial, _fills if moment is _fills else None)
    subject.begin_to_write(rate=rate)
    subject.request(DISK)
    with still as kept:
        if moment is not _fills:
            _wait_for(lambda: moment(subject, path))
        yield kept


def _killed(moment):
    """nova-compute is killed at a moment of the move, and started again."""
    def trial_of(subject, trial):
        volume = subject.volumes()[DISK]
        before = subject.file(volume)[0]
        host = subject.host
        leader = host.process('nova-compute')
        with contextlib.ExitStack() as slow:
            slow.enter_context(Slowly(subject))
            with _come_to(subject, trial, moment) as kept:
                for one in faults.session(host, leader):
                    one.send(signal.SIGKILL)
                slow.close()
                leader.wait(10)
                with subject.copied(kept) as copy:
                    begun = time.monotonic()
                    nova.start_compute(subject.cloud, host.name)
                    _wait_for(lambda: subject.noted(DISK).phase
                              == operations.ENDED, _SETTLED)
                    subject.wait_moved(DISK, _SETTLED)
                    trial.seconds = time.monotonic() - begun
                    _compare(subject, trial, copy)
        trial.came_to = 'on the %s volume: %s' % (
            'old' if subject.file(volume)[0] is before else 'new',
            subject.noted(DISK).outcome)
        _wait_for(lambda: nova.computes_are_up(subject.cloud), _SETTLED)
    return trial_of


def _aborted(moment):
    """The administrator ends the move at a moment of it."""
    def trial_of(subject, trial):
        volume = subject.volumes()[DISK]
        before = subject.file(volume)[0]
        with (Slowly(subject),
              _come_to(subject, trial, moment, _WRITES_MUCH) as kept,
              subject.copied(kept) as copy):
            begun = time.monotonic()
            subject.abort(DISK)
            trial.seconds = time.monotonic() - begun
            subject.wait_moved(DISK, _SETTLED)
            _compare(subject, trial, copy)
        trial.came_to = subject.noted(DISK).outcome
        if subject.file(volume)[0] is not before:
            trial.problems.append('the volume has moved')
        if subject.block_job(DISK).startswith('Block Copy'):
            trial.problems.append('QEMU goes on copying')
    return trial_of


def _fills(subject, path):
    return subject.journal(DISK).exists()


def _copies(subject, path):
    """Nova has been called for the mirror, which may not be there yet."""
    noted = subject.noted(DISK)
    return noted is not None and noted.phase == operations.MIRRORING


def _mirrors(subject, path):
    return 'Block Copy' in subject.block_job(DISK)


def _has_pivoted(subject, path):
    return subject.disk_path(DISK) != path


class Slowly:
    """The links of NASes carry little meanwhile.

    :param rate: bytes/s, each way
    :param names: of NASes, None: all
    """

    def __init__(self, subject, rate=_SLOW, names=None):
        self._cloud = subject.cloud
        self._rate = rate
        self._names = (self._cloud.settings.nases if names is None
                       else names)

    def _limit(self, rate):
        for name in self._names:
            self._cloud.host(name).link('storage').limit(send=rate,
                                                         receive=rate)

    def __enter__(self):
        self._limit(self._rate)

    def __exit__(self, *exc_info):
        self._limit(self._cloud.settings.storage_rate or None)


def _wait_for(ready, limit=_MOMENT):
    deadline = time.monotonic() + limit
    while not ready():
        if time.monotonic() > deadline:
            raise errors.LabError('the moment has not come in %.0f s' % limit)
        time.sleep(0.02)


TRIALS = {
    'at-rest': _at_rest,
    'writing': _writing,
    'retyped': _retyped,
    'no-daemons': _no_daemons,
    'one-daemon-dies': _one_daemon_dies,
    'compute-killed-in-the-fill': _killed(_fills),
    'compute-killed-in-the-mirror': _killed(_mirrors),
    'compute-killed-after-the-pivot': _killed(_has_pivoted),
    'aborted-in-the-fill': _aborted(_fills),
    'aborted-in-the-mirror': _aborted(_mirrors),
}
#: Those of --quick.
QUICK = ('writing', 'compute-killed-in-the-mirror')


def boot(cloud, progress):
    """Boot the instance of the trials.

    :raises LabError: the lab has no backups
    """
    if not cloud.settings.backups:
        raise errors.LabError('the lab has no backups: make lab '
                              'ARGS="--profile volume --backups"')
    return volume_moves.Subject.boot(cloud, progress)


def judge(trials, found):
    """Add a row for each trial to a testkit.results.Results."""
    for one in trials:
        found.add(one.name, '; '.join(one.problems) or one.came_to, '',
                  'all bytes right, Nova and Cinder at rest',
                  not one.problems)


def show(trials):
    """Return the table."""
    return table.text(
        ('trial', 'seconds', 'from backup MiB', 'zeros MiB',
         'from volume MiB', 'storage sent MB', 'came to', 'wrong'),
        [(one.name, '%.1f' % one.seconds,
          *('%.1f' % (one.sources[name] / 2 ** 20)
            if name in one.sources else '-'
            for name in ('backup', 'zero', 'volume')),
          '%.1f' % (one.read / 1e6) if one.read else '-', one.came_to,
          '; '.join(one.problems) or '-') for one in trials])
