# SPDX-License-Identifier: Apache-2.0
"""A fault campaign: faults during migrations, and the instance afterwards.

For each fault and moment: an instance migrates, the fault is injected and
undone, and when Nova has come to rest

- the instance is ACTIVE and runs once, on the host that Nova says (or it
  is SHUTOFF and runs nowhere, where its QEMU was killed),
- the guest finds its memory as it was,
- nothing is left armed, and neither domains, processes, files nor
  allocations where no instance needs them,
- where disks are block-migrated, each is as it was, byte by byte,
- a new migration brings it to the other host.
"""

import contextlib
import fnmatch
import functools
import random
import time

import openstack

from guests.errors import GuestError
from guests.synthetic import console
from lab import client
from lab import concurrent_migrations
from lab import disk_checks
from lab import errors
from lab import faults
from lab import guest
from lab import instance_checks
from lab import instances
from lab import migrations
from lab.services import nova
from lab.trials import Trial

#: While the destination's nova-compute prepares itself.
_PREPARING = 'preparing'
#: While its agent builds a disk.
_FILLING = 'filling'
#: Part of the bytes of an undisturbed migration after which a fault is
#: injected; before: as soon as Nova has taken the request; random: None.
MOMENTS = {'before': 0.0, _PREPARING: 0.0, _FILLING: 0.0, 'during': 0.4,
           'end': 0.9, 'random': None}
#: Those that are tried if nothing is said.
USUAL = ('before', 'during', 'end')
NAMES = (*faults.FAULTS, *concurrent_migrations.SIZES)
#: A quarter of an hour's worth on two processors, each at one moment: in a
#: lab that builds disks some of them while it does.
QUICK = ('compute-source', 'compute-destination', 'libvirtd-source',
         'libvirtd-destination', 'agent-source', 'agent-destination',
         'disk-writer', 'rabbitmq', 'qemu-source', 'qemu-destination',
         'link-cut', 'abort', 'force-complete')
QUICK_MOMENT = 'during'
QUICK_FILLING = ('compute-source', 'agent-source', 'agent-destination',
                 'disk-writer', 'qemu-source', 'abort')
_NO_MOMENT = '-'
_NAME = 'faults'
#: Seconds in which the guest boots, on a machine that has more to do.
_BOOT = 600.0
#: Seconds until Nova comes to rest at the latest.
_REST = 300
#: Seconds that preparing takes, or more.
_PREPARES = 1.0
#: Seconds that building a disk takes at least.
_FILLS = 3.0
#: Seconds in which the disks of a guest that has booted have to stay as they
#: are.
_QUIET = 10.0
#: Seconds between two questions whether Nova still migrates.
_ASK = 0.5
#: Seconds in which Nova finds a host for a new migration.
_AGAIN = 150
_FINAL = ('completed', 'error', 'failed', 'cancelled')


def pairs(patterns, moments, settings):
    """Return the (fault, moment) pairs that are wanted and fit the lab.

    :param patterns: of names, as the shell has them
    """
    found = []
    for name in NAMES:
        if not any(fnmatch.fnmatchcase(name, one) for one in patterns):
            continue
        if name in concurrent_migrations.SIZES:
            found.append((name, _NO_MOMENT))
        elif faults.FAULTS[name].fits(settings):
            fitting = faults.FAULTS[name].moments or moments
            found += [(name, moment) for moment in moments
                      if moment in fitting and (
                          moment != _FILLING or settings.builds_disks)]
    return found


def quick_pairs(settings):
    """Return the (fault, moment) pairs of a quarter of an hour."""
    found = []
    for name in QUICK:
        filling = settings.builds_disks and name in QUICK_FILLING
        found += pairs((name,), (_FILLING if filling else QUICK_MOMENT,),
                       settings)
    return found


class FaultCampaign:
    """Does trials, one after the other, with one instance.

    :param disks: instances.Disks
    :param ledger: trials.Ledger, which keeps them
    """

    def __init__(self, cloud, disks, ledger, progress):
        self._cloud = cloud
        self._disks = disks
        self._progress = progress
        self._compute = client.connect(cloud).compute
        self._ledger = ledger
        self._server = None
        self._bytes = None
        self._left = set()
        self._cached = False

    def run(self, wanted):
        """Try each pair, and note it in the ledger.

        :param wanted: (fault, moment) pairs
        :returns: Trials
        :raises LabError: the lab itself does not work
        """
        trials = []
        with contextlib.ExitStack() as stack:
            for name in sorted({name for name, _moment in wanted}
                               & set(faults.FAULTS)):
                stack.enter_context(faults.FAULTS[name].around(self._cloud))
            stack.callback(self._delete)
            for name, moment in wanted:
                trial = Trial(name, moment, self._cloud.settings.profile)
                self._ready()
                if name in concurrent_migrations.SIZES:
                    self._delete()
                    self._try(concurrent_migrations.run, self._cloud,
                              self._disks, trial)
                else:
                    self._prepare()
                    self._try(self._run_trial, faults.FAULTS[name], trial)
                self._ledger.add(trial)
                trials.append(trial)
        return trials

    def _try(self, run, *args):
        trial = args[-1]
        self._left |= instance_checks.leftovers(self._cloud, self._left)
        try:
            run(*args)
        except (errors.LabError, GuestError, *client.ERRORS) as error:
            trial.problems.append(str(error))
        self._progress.say('%s, %s: %s' % (
            trial.fault, trial.moment, '; '.join(trial.problems)
            or 'as it should be, %s on %s' % (trial.status, trial.host)))
        if trial.problems or trial.status != 'ACTIVE':
            self._delete()

    # The instance

    def _ready(self):
        self._cloud.wait(self._cloud.control, 'nova-conductor',
                         lambda: nova.computes_are_up(self._cloud), 180)

    def _prepare(self):
        """Have an instance that has just migrated undisturbed."""
        if self._cloud.settings.builds_disks and not self._cached:
            instances.cache_image(self._cloud, functools.partial(
                instances.boot, disks=self._disks))
            self._cached = True
        if self._server is None:
            server = instances.boot(self._cloud, _NAME, 'dedup', self._disks)
            self._server = instances.wait_active(self._compute, server)
            console.ready(guest.console(self._host(), self._server.id), _BOOT)
            self._settle()
        if self._bytes is None:
            self._bytes = migrations.migrate(
                self._cloud, 'dedup', self._server).link_bytes

    def _delete(self):
        if self._server is not None:
            instances.delete(self._compute, self._server)
            self._server = None

    def _host(self):
        self._server = self._compute.get_server(self._server.id)
        return instances.host_of(self._cloud, self._server)

    def _scene(self):
        source = self._host()
        other = next(one for one in self._cloud.computes
                     if one.name != source.name)
        return faults.Scene(self._cloud, self._compute, self._server.id,
                            source, other)

    # A trial

    def _run_trial(self, fault, trial):
        scene = self._scene()
        trial.source = scene.source.name
        share = MOMENTS[trial.moment]
        if share is None:
            share = random.random()  # noqa: S311
            trial.note = 'at %.0f %%' % (share * 100)
        disks = self._digests(scene.source)
        last = self._newest()
        sent = scene.source.link('migration').carried()[0]
        self._compute.live_migrate_server(self._server,
                                          block_migration='auto')
        if trial.moment == _PREPARING:
            in_time = self._wait_prepares()
        elif trial.moment == _FILLING:
            in_time = self._wait_fills(scene.destination)
        else:
            in_time = self._wait_for(share * self._bytes, scene.source, sent)
        if not in_time:
            trial.note = 'injected after it'
        started = time.monotonic()
        note = self._inject(fault, scene, trial)
        try:
            self._rest(last)
        finally:
            trial.seconds = time.monotonic() - started
            self._note(trial)
        self._ready()
        survives = fault.has_to_run(note, trial.host != trial.source)
        if survives and not fault.survives:
            trial.note = faults.HAD_LEFT
        if not survives:
            # Nova looks for guests that have ended now and then
            self._wait_status('SHUTOFF')
        host = self._host()
        trial.problems += instance_checks.failures(self._cloud, self._server,
                                              host, survives)
        self._note(trial)
        if not trial.problems and self._digests(host, survives) != disks:
            trial.problems.append('its disks are not as they were')
        trial.problems += sorted(
            instance_checks.leftovers(self._cloud, self._left))
        if survives and not trial.problems:
            trial.problems += self._goes_on()

    def _inject(self, fault, scene, trial):
        try:
            note = fault.inject(scene)
            trial.note = ', '.join(filter(None, (trial.note, note)))
            time.sleep(fault.undo_after)
            return note
        finally:
            fault.undo(scene)

    def _note(self, trial):
        trial.host = self._host().name
        trial.status = self._server.status
        trial.migration = instances.migration(
            self._compute, self._server).status

    def _newest(self):
        found = list(self._compute.migrations(instance_uuid=self._server.id))
        return max((one.id for one in found), default=None)

    def _wait_prepares(self):
        """Wait until the middle of it; False if Nova was faster."""
        status = ''
        while status in ('', 'accepted', 'queued') and self._migrates():
            found = list(self._compute.server_migrations(self._server))
            status = found[-1].status if found else ''
            time.sleep(0.02)
        time.sleep(random.random() * _PREPARES)  # noqa: S311
        return status == _PREPARING

    def _wait_fills(self, destination):
        """Wait until some of a disk is built; False if none is."""
        asked = time.monotonic()
        while not faults.writers(destination):
            if time.monotonic() - asked > _ASK:
                if not self._migrates():
                    return False
                asked = time.monotonic()
            time.sleep(0.02)
        time.sleep(random.random() * _FILLS)  # noqa: S311
        return bool(faults.writers(destination))

    def _digests(self, host, running=True):
        """What is on its disks, None if they are not copied."""
        if self._cloud.settings.profile != 'local':
            return None
        return disk_checks.digests(self._cloud, host, self._server.id,
                                   running)

    def _settle(self):
        """Wait until the guest writes nothing more to its disks.

        ext4 initialises its tables in the background, after the first mount.

        :raises LabError: it goes on to write
        """
        deadline = time.monotonic() + _REST
        last = self._digests(self._host())
        while last is not None:
            time.sleep(_QUIET)
            found = self._digests(self._host())
            if found == last:
                return
            if time.monotonic() > deadline:
                raise errors.LabError('the guest still writes to its disks '
                                      '%d s after it has booted' % _REST)
            last = found

    def _wait_for(self, share, source, sent):
        """Wait until that many bytes have gone; False if Nova was faster.

        How many an undisturbed migration sends varies by some percent.
        """
        asked = time.monotonic()
        while source.link('migration').carried()[0] - sent < share:
            # An answer takes longer than the last part of a migration.
            if time.monotonic() - asked > _ASK:
                if not self._migrates():
                    return False
                asked = time.monotonic()
            time.sleep(0.02)
        return not share or self._migrates()

    def _migrates(self):
        return self._compute.get_server(
            self._server.id).task_state is not None

    def _rest(self, last):
        """Wait until Nova does nothing more about the instance."""
        deadline = time.monotonic() + _REST
        status = 'none'
        while time.monotonic() < deadline:
            server = self._compute.get_server(self._server.id)
            newest = self._newest()
            if newest != last:
                status = instances.migration(self._compute, server).status
                if server.task_state is None and status in _FINAL:
                    return
            time.sleep(0.5)
        raise errors.LabError('Nova does not come to rest within %d s: the '
                              'instance is %s, its migration %s' % (
                                  _REST, server.status, status))

    def _wait_status(self, status):
        deadline = time.monotonic() + 60
        while (self._compute.get_server(self._server.id).status != status
               and time.monotonic() < deadline):
            time.sleep(1)

    def _goes_on(self):
        """Yield what keeps it from migrating again."""
        outcome = self._again(time.monotonic() + _AGAIN)
        if outcome.errors or not outcome.verified:
            yield 'the next migration: %d wrong pages of %d MiB' % (
                outcome.errors, outcome.verified >> 20)

    def _again(self, deadline):
        """Migrate it once more.

        After RabbitMQ was killed, an answer may still be lost; Nova then
        finds no host.
        """
        while True:
            try:
                return migrations.migrate(self._cloud, 'dedup', self._server)
            except openstack.exceptions.BadRequestException:
                if time.monotonic() > deadline:
                    raise
                self._ready()
