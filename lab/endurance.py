# SPDX-License-Identifier: Apache-2.0
"""Faults during migrations, and what has become of the instance then.

For each fault and moment: an instance migrates, the fault is struck and
mended, and when Nova has come to rest

- the instance is ACTIVE and runs once, on the host that Nova says (or it
  is SHUTOFF and runs nowhere, where its QEMU was killed),
- the guest finds its memory as it was,
- nothing is left armed, and no domain is left on the other host,
- a new migration brings it to the other host.
"""

import dataclasses
import json
import time

from lab import client
from lab import errors
from lab import faults
from lab import guest
from lab import instances
from lab import migrations
from lab import table
from lab.services import nova

#: Part of the bytes of an undisturbed migration after which a fault is
#: struck; before: as soon as Nova has taken the request.
MOMENTS = {'before': 0.0, 'during': 0.4, 'end': 0.97}
_NAME = 'endure'
#: Seconds until Nova comes to rest at the latest.
_REST = 240
_FINAL = ('completed', 'error', 'failed', 'cancelled')


@dataclasses.dataclass
class Trial:
    """One fault at one moment.

    :ivar status: of the instance, when Nova has come to rest
    :ivar migration: status of the migration
    :ivar host: that Nova says the instance is on
    :ivar seconds: from the fault until then
    :ivar problems: what is not as it should be, sentences
    """

    fault: str
    moment: str
    source: str = ''
    status: str = ''
    migration: str = ''
    host: str = ''
    seconds: float = 0.0
    problems: list = dataclasses.field(default_factory=list)


class Endurance:
    """Does trials, one after the other, with one instance.

    :param disks: instances.Disks
    """

    def __init__(self, cloud, disks, progress):
        self._cloud = cloud
        self._disks = disks
        self._progress = progress
        self._compute = client.connect(cloud).compute
        self._server = None
        self._bytes = None

    def run(self, wanted, moments):
        """Return a Trial for each pair.

        :param wanted: names of faults.FAULTS
        :param moments: of MOMENTS
        :raises LabError: the lab itself does not work
        """
        trials = []
        try:
            for name in wanted:
                for moment in moments:
                    trials.append(self._trial(faults.FAULTS[name], moment))
        finally:
            if self._server is not None:
                self._compute.delete_server(self._server, force=True)
        return trials

    def _trial(self, fault, moment):
        self._prepare()
        trial = Trial(fault.name, moment)
        try:
            self._endure(fault, trial)
        except (errors.LabError, *client.ERRORS) as error:
            trial.problems.append(str(error))
        self._progress.say('%s, %s: %s' % (
            fault.name, moment, '; '.join(trial.problems) or 'as it should '
            'be, %s on %s' % (trial.status, trial.host)))
        if trial.problems or not fault.survives:
            self._compute.delete_server(self._server, force=True)
            self._server = None
        return trial

    def _prepare(self):
        """Have an instance that has just migrated undisturbed."""
        self._cloud.wait(self._cloud.control, 'nova-conductor',
                         lambda: nova.computes_are_up(self._cloud), 120)
        if self._server is None:
            server = instances.boot(self._cloud, _NAME, 'dedup', self._disks)
            self._server = instances.wait_active(self._compute, server)
            guest.ready(guest.console(self._host(), self._server.id))
        if self._bytes is None:
            self._bytes = migrations.migrate(
                self._cloud, 'dedup', self._server).link_bytes

    def _host(self):
        self._server = self._compute.get_server(self._server.id)
        return instances.host_of(self._cloud, self._server)

    def _other(self, host):
        return next(one for one in self._cloud.computes
                    if one.name != host.name)

    def _endure(self, fault, trial):
        source = self._host()
        trial.source = source.name
        target = (source if fault.side == 'source' else self._other(source))
        last = self._newest()
        sent = source.link('migration').carried()[0]
        self._compute.live_migrate_server(self._server,
                                          block_migration='auto')
        self._wait_for(MOMENTS[trial.moment] * self._bytes, source, sent)
        fault.strike(target, self._server.id)
        started = time.monotonic()
        time.sleep(fault.mend_after)
        fault.mend(self._cloud, target)
        try:
            self._rest(last)
        finally:
            trial.seconds = time.monotonic() - started
            self._note(trial)
        trial.problems += self._wrong(fault)
        self._note(trial)
        if fault.survives and not trial.problems:
            trial.problems += self._goes_on()

    def _note(self, trial):
        trial.host = self._host().name
        trial.status = self._server.status
        trial.migration = instances.migration(
            self._compute, self._server).status

    def _newest(self):
        found = list(self._compute.migrations(instance_uuid=self._server.id))
        return max((one.id for one in found), default=None)

    def _wait_for(self, share, source, sent):
        """Wait until that many bytes have gone, or Nova is done."""
        while share and source.link('migration').carried()[0] - sent < share:
            if self._compute.get_server(self._server.id).status not in (
                    'ACTIVE', 'MIGRATING'):
                return
            time.sleep(0.02)

    def _rest(self, last):
        """Wait until Nova does nothing more about the instance."""
        deadline = time.monotonic() + _REST
        while time.monotonic() < deadline:
            server = self._compute.get_server(self._server.id)
            newest = instances.migration(self._compute, server)
            if (server.task_state is None and newest.id != last
                    and newest.status in _FINAL):
                return
            time.sleep(0.5)
        raise errors.LabError('Nova does not come to rest within %d s: the '
                              'instance is %s, its migration %s' % (
                                  _REST, server.status, newest.status))

    def _wrong(self, fault):
        """Yield what is not as it should be."""
        host = self._host()
        running = {one.name: self._state(one) for one in self._cloud.computes
                   if faults.qemus(one, self._server.id)}
        wanted = {host.name: 'running'} if fault.survives else {}
        if running != wanted:
            yield 'QEMUs: %s' % (', '.join(
                '%s %s' % item for item in running.items()) or 'none')
        status = 'ACTIVE' if fault.survives else 'SHUTOFF'
        if not fault.survives:
            # Nova looks for guests that have ended now and then
            self._wait_status(status)
        if self._server.status != status:
            yield 'Nova says %s' % self._server.status
        if running == wanted and fault.survives:
            yield from self._memory(host)
            yield from self._armed(host)

    def _wait_status(self, status):
        deadline = time.monotonic() + 60
        while (self._server.status != status
               and time.monotonic() < deadline):
            time.sleep(1)
            self._server = self._compute.get_server(self._server.id)

    def _state(self, host):
        done = host.run(['virsh', 'domstate', self._server.id], check=False)
        return done.stdout.strip() or done.stderr.strip()

    def _memory(self, host):
        verified, wrong, first = guest.verify(
            guest.console(host, self._server.id))
        if wrong or not verified:
            yield '%d wrong pages of %d MiB: %s' % (
                wrong, verified >> 20, first)

    def _armed(self, host):
        done = host.run(['virsh', 'qemu-monitor-command', self._server.id,
                         '{"execute":"query-x-dedup"}'], check=False)
        if done.returncode == 0:
            state = json.loads(done.stdout).get('return', {}).get(
                'source', {}).get('state')
            if state == 'armed':
                yield 'the source is still armed'

    def _goes_on(self):
        """Yield what keeps it from migrating again."""
        self._cloud.wait(self._cloud.control, 'nova-conductor',
                         lambda: nova.computes_are_up(self._cloud), 120)
        outcome = migrations.migrate(self._cloud, 'dedup', self._server)
        if outcome.errors or not outcome.verified:
            yield 'the next migration: %d wrong pages of %d MiB' % (
                outcome.errors, outcome.verified >> 20)


def show(trials):
    """Return the table."""
    return table.text(
        ('fault', 'moment', 'from', 'rests after s', 'instance', 'on',
         'migration', 'wrong'),
        [(one.fault, one.moment, one.source, '%.0f' % one.seconds,
          one.status, one.host, one.migration,
          '; '.join(one.problems) or '-') for one in trials])
