# SPDX-License-Identifier: Apache-2.0
"""What trials of volumes are judged by."""

import contextlib
import dataclasses
import pathlib
from unittest import mock

import fixtures

from lab import errors
from lab import volume_moves
from lab import volume_pairs
from lab import volume_trials
from nova_dedup_migrate.swaps import operations
from nova_dedup_migrate.tests import base
from testkit import results


class Progress:
    def say(self, text):
        pass


class Subject:
    """An instance that is what a test wants."""

    def __init__(self, wrong=(), unsettled=()):
        self._wrong, self._unsettled = wrong, unsettled

    def rest(self):
        pass

    def back_up(self, disk):
        pass

    def unsettled(self, disk):
        return iter(self._unsettled)

    def wrong(self):
        return iter(self._wrong)


def swapped(read, seconds, **sources):
    return volume_moves.Swapped(seconds, read, True, operations.Swap(
        'i', 'vdb', 'o', 'n', '/x', outcome='done', sources=sources))


class TestDifferent(base.TestCase):

    def compare(self, one, other):
        files = [self.useFixture(fixtures.TempDir()).join('volume')
                 for _ in range(2)]
        for path, content in zip(files, (one, other), strict=True):
            pathlib.Path(path).write_bytes(content)
        return volume_moves.different(*map(pathlib.Path, files))

    def test_equal(self):
        self.assertEqual('', self.compare(b'a' * 70000, b'a' * 70000))

    def test_each_byte_counts(self):
        for offset in (0, 32768, 69999):
            other = bytearray(b'a' * 70000)
            other[offset] = 0
            self.assertEqual(
                '1 of 3 blocks of 32768 bytes differ, at %d'
                % (offset // 32768 * 32768),
                self.compare(b'a' * 70000, bytes(other)))

    def test_size(self):
        self.assertIn('69999 bytes instead of 70000',
                      self.compare(b'a' * 70000, b'a' * 69999))


class Moving:
    """A volume that moves while a test says when: lines in self.log.

    :param mirrors: whether the mirror is ever seen
    :param pivoted: whether QEMU has the new volume when the guest stops
    """

    def __init__(self, directory, mirrors=True, pivoted=False):
        self.log = []
        self._pivoted = pivoted
        self._mirrors = mirrors
        self.path = 'old'
        self.old, self.new = (pathlib.Path(directory, name)
                              for name in ('old', 'new'))
        self.old.write_bytes(b'a' * 70000)
        self.new.write_bytes(b'a' * 70000)

    def volumes(self):
        return {'vdb': 'volume'}

    def disk_path(self, disk):
        return self.path

    def noted(self, disk):
        self.log.append('looked')
        return operations.Swap('i', 'vdb', 'o', 'n', '/x', phase=(
            operations.MIRRORING if self._mirrors else operations.FILLING))

    def block_job(self, disk):
        return 'Block Copy: [ 1 %]' if self._mirrors else ''

    @contextlib.contextmanager
    def stopped(self):
        self.log.append('stopped')
        if self._pivoted:
            self.path = 'new'
        try:
            yield
        finally:
            self.log.append('resumed')

    @contextlib.contextmanager
    def kept(self, volume):
        yield self.old

    def different(self, kept, volume):
        self.log.append('compared')
        return volume_moves.different(kept, self.new)


class TestStill(base.TestCase):

    def move(self, **values):
        subject = Moving(self.useFixture(fixtures.TempDir()).path, **values)
        trial = volume_trials.Trial('x')
        still = volume_trials._still(subject, trial)
        self.assertEqual([], subject.log)
        return subject, trial, still

    def test_compared_before_the_guest_goes_on(self):
        subject, trial, still = self.move()
        with still as kept:
            self.assertEqual(subject.old, kept)
            subject.path = 'new'
            subject.log.append('moved')
        self.assertEqual(['looked', 'stopped', 'moved', 'compared',
                          'resumed'], subject.log)
        self.assertEqual([], trial.problems)

    def test_one_byte(self):
        subject, trial, still = self.move()
        with still:
            subject.new.write_bytes(b'a' * 69999 + b'b')
        self.assertIn('1 of 3 blocks', trial.problems[0])

    def test_the_guest_stands_still_too_late(self):
        subject, trial, still = self.move(pivoted=True)
        self.assertRaisesRegex(errors.LabError, 'before the guest stood',
                               still.__enter__)
        self.assertEqual('resumed', subject.log[-1])

    def test_it_goes_on_after_an_error(self):
        subject, trial, still = self.move()

        def fail():
            with still:
                raise errors.LabError('late')

        self.assertRaises(errors.LabError, fail)
        self.assertEqual('resumed', subject.log[-1])


class Trialled(Moving):
    """The same with all that a trial does; the mirror ends as it is waited.

    :param wrong: whether settling it changes a byte of the old volume
    :param goes_on: whether QEMU goes on copying after an abort
    """

    def __init__(self, directory, wrong=False, goes_on=False):
        super().__init__(directory)
        self.cloud = mock.MagicMock()
        self.host = mock.MagicMock()
        self._wrong = wrong
        self._goes_on = goes_on
        self._moved = False

    def file(self, volume):
        return ((mock.sentinel.other, self.new) if self._moved
                else (self.host, self.old))

    def different(self, kept, volume):
        return volume_moves.different(kept, self.file(volume)[1])

    copied = volume_moves.Subject.copied

    def begin_to_write(self, rate=0):
        self.log.append('writes')

    def request(self, disk, kind=None):
        self.log.append('requested')

    def swap(self, disk, kind=None, meanwhile=None):
        self.request(disk, kind)
        with meanwhile:
            self.wait_moved(disk)
        return swapped(1, 1.0, backup=9)

    def wait_moved(self, disk, limit=0):
        self.log.append('moved')
        if 'aborted' not in self.log:
            self.path, self._moved = 'new', True

    def abort(self, disk):
        self.log.append('aborted')
        if self._wrong:
            self.old.write_bytes(b'b' + b'a' * 69999)

    def block_job(self, disk):
        return ('Block Copy: [50 %]' if 'aborted' not in self.log
                or self._goes_on else '')

    def journal(self, disk):
        return self.old

    def noted(self, disk):
        found = super().noted(disk)
        return dataclasses.replace(
            found, outcome='done', phase=operations.ENDED
        ) if 'started' in self.log or self._moved else found

    def settle(self, cloud, name):
        """What nova-compute does when it is started."""
        self.log.append('started')
        if self._wrong:
            self.old.write_bytes(b'b' + b'a' * 69999)
            self.new.write_bytes(b'b' + b'a' * 69999)


class TestMoves(base.TestCase):

    def setUp(self):
        super().setUp()
        for name in ('faults.session', 'nova.start_compute',
                     'nova.computes_are_up', 'backups.start_assist',
                     'backups.stop_assist'):
            patch = mock.patch('lab.volume_trials.' + name, autospec=True)
            setattr(self, name.rpartition('.')[2], patch.start())
            self.addCleanup(patch.stop)

    def try_one(self, name, **values):
        subject = Trialled(self.useFixture(fixtures.TempDir()).path, **values)
        self.start_compute.side_effect = subject.settle
        self.session.return_value = []
        if name == 'compute-killed-after-the-pivot':
            # It pivots after the guest was stopped.
            subject.disk_path = mock.Mock(side_effect=[
                'old', 'old', 'old', 'new'])
        trial = volume_trials.Trial(name)
        volume_trials.TRIALS[name](subject, trial)
        return subject, trial

    def test_each_trial_compares_while_the_guest_stands_still(self):
        for name in ('writing', 'one-daemon-dies',
                     'compute-killed-in-the-fill',
                     'compute-killed-in-the-mirror',
                     'compute-killed-after-the-pivot',
                     'aborted-in-the-fill', 'aborted-in-the-mirror'):
            with self.subTest(name):
                subject, trial = self.try_one(name)
                self.assertEqual([], trial.problems)
                log = [one for one in subject.log if one != 'looked']
                self.assertLess(log.index('writes'), log.index('stopped'))
                self.assertLess(log.index('stopped'), log.index('moved'))
                self.assertEqual('resumed', log[-1])

    def test_settling_changes_a_byte(self):
        """Of both files alike: the copy shows it."""
        for name in ('compute-killed-in-the-fill',
                     'compute-killed-in-the-mirror',
                     'compute-killed-after-the-pivot',
                     'aborted-in-the-fill', 'aborted-in-the-mirror'):
            with self.subTest(name):
                _, trial = self.try_one(name, wrong=True)
                self.assertIn('1 of 3 blocks', trial.problems[0])

    def test_it_was_not_aborted(self):
        _, trial = self.try_one('aborted-in-the-mirror', goes_on=True)
        self.assertEqual(['QEMU goes on copying'], trial.problems)
        with mock.patch.object(Trialled, 'abort'):
            _, trial = self.try_one('aborted-in-the-fill')
        self.assertIn('the volume has moved', trial.problems)


class TestKnown(base.TestCase):

    def test_share(self):
        path = pathlib.Path(self.useFixture(fixtures.TempDir()).join('f'))
        self.assertEqual(0, volume_moves.known(path))
        path.write_bytes(b'x' * 4096)
        self.assertEqual(0, volume_moves.known(path))
        path.write_bytes(b'x' * 4096 + bytes(15) + b'x' + bytes(48))
        self.assertEqual(0.25, volume_moves.known(path))


class TestVolumeTrials(base.TestCase):

    def run_with(self, subject, trial):
        names = dict(volume_trials.TRIALS)
        self.addCleanup(volume_trials.TRIALS.update, names)
        volume_trials.TRIALS['writing'] = trial
        (done,) = volume_trials.run(subject, ['writing'], Progress())
        found = results.Results('x')
        volume_trials.judge([done], found)
        self.assertIn('writing', volume_trials.show([done]))
        return done, found.status()

    def test_all_right(self):
        done, status = self.run_with(Subject(), lambda subject, trial: None)
        self.assertEqual(([], 0), (done.problems, status))

    def test_each_problem_fails(self):
        def raises(subject, trial):
            raise errors.LabError('late')

        for subject, trial, words in (
                (Subject(wrong=['bytes']), lambda *_: None, 'bytes'),
                (Subject(unsettled=['stuck']), lambda *_: None, 'stuck'),
                (Subject(), raises, 'late')):
            done, status = self.run_with(subject, trial)
            self.assertEqual(([words], 1), (done.problems, status))

    def test_a_copy_by_nova_is_not_filled(self):
        trial = volume_trials.Trial('x')
        volume_trials._must_be_filled(trial, swapped(1, 1, volume=9))
        self.assertEqual(1, len(trial.problems))
        trial = volume_trials.Trial('x')
        volume_trials._must_be_filled(trial, swapped(1, 1, zero=9))
        self.assertEqual([], trial.problems)


class TestVolumePairs(base.TestCase):

    def status(self, ours, same=True):
        found = results.Results('x')
        runs = [
            volume_pairs.Run(volume_pairs.NOVA, 1, swapped(1000, 40.0), True),
            volume_pairs.Run(volume_pairs.FINGERPRINTS, 1, ours, same)]
        volume_pairs.judge(runs, found)
        self.assertIn('fingerprints', volume_pairs.show(runs))
        return found.status()

    def test_targets(self):
        for ours, same, status in (
                (swapped(100, 10.0, backup=1), True, 0),
                (swapped(101, 10.0, backup=1), True, 1),
                (swapped(100, 10.1, backup=1), True, 1),
                (swapped(100, 10.0, volume=1), True, 1),
                (swapped(100, 10.0, backup=1), False, 1)):
            self.assertEqual(status, self.status(ours, same))

    def test_what_novas_driver_has_noted_is_of_another_move(self):
        run = volume_pairs.Run(volume_pairs.NOVA, 1,
                               swapped(1, 1.0, backup=9), True)
        self.assertEqual({}, run.sources)
