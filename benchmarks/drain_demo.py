# SPDX-License-Identifier: Apache-2.0
"""make drain-demo: a host is emptied by the controller, and by hand.

A lab with the controller has six guests on one host.  They write to memory
at rates from none to two thirds of the link's.  The host is emptied

- by ``openstack dedup drain create HOST --wait``,
- by the same with ``--max-parallel 2``,
- by requests to Nova one after the other, in the order of the list,
- by requests to Nova for all of them at once,

in turn and to and fro, with nova-compute that allows six at a time.  Each
guest verifies its memory afterwards.  In the end a drain runs whose
controller is killed in the middle and started again.

Shown are the time until the last one has arrived, what all guests together
and the one of them with the most stood still, the bytes on the link and the
order; for the drains what was predicted, whether nova-compute was disabled
before the first one moved, and whether the host was safe to power off.
"""

from concurrent import futures
import contextlib
import dataclasses
import json
import subprocess
import sys
import time

from benchmarks import lab_bench
from benchmarks import writer_guests
from lab import client
from lab import errors
from lab import instances
from lab import migrations
from lab import settings
from lab.services import controller
from lab.services import nova
from nova_dedup_migrate.osc import sdk
from testkit import table
from testkit.results import Row

TARGET = 'drain-demo'
WANTED = settings.Settings(controller=True)
#: KB/s that the guests write, in the order of the list.
RATES = (4000, 0, 8000, 500, 2000, 1000)
_NAME = 'drain-%d'
_LIMIT_S, _SAMPLED_S = 900.0, 180.0
_POLL_S = 0.5
#: Seconds for which the controller is away.
_AWAY_S = 8.0

DRAIN, TWO, LISTED, AT_ONCE, KILLED = (
    'drain', 'drain, two at a time', 'one after the other', 'all at once',
    'drain, controller killed')
#: Seconds for each server that a drain may take longer than requests one
#: after the other: it checks the host first, its steps are two seconds
#: apart, and its command takes some to start.
LONGER_S = 8.0
#: Part of the time by which a prediction may miss it, as elsewhere.
MISSED = 0.25


@dataclasses.dataclass
class Pass:
    """The host was emptied once.

    :ivar seconds: until the last one has arrived
    :ivar order: names, as they arrived
    :ivar downtimes: ms by name
    :ivar link_bytes: that the host sent on the migration network
    :ivar wrong: guests whose memory is not as it was, or that stayed
    :ivar requests: live migrations that Nova was asked for, by name
    :ivar predicted: band of the total time, seconds
    :ivar problems: of the drain, sentences
    """

    variant: str
    source: str
    seconds: float = 0.0
    order: list = dataclasses.field(default_factory=list)
    downtimes: dict = dataclasses.field(default_factory=dict)
    link_bytes: int = 0
    wrong: list = dataclasses.field(default_factory=list)
    requests: dict = dataclasses.field(default_factory=dict)
    predicted: dict = dataclasses.field(default_factory=dict)
    problems: list = dataclasses.field(default_factory=list)


class Demo:
    """The guests, and what is done with them.

    :param cloud: lab.cloud.Cloud
    """

    def __init__(self, cloud, progress) -> None:
        self._cloud = cloud
        self._progress = progress
        self._compute = client.connect(cloud).compute
        self._guests = writer_guests.WriterGuests(cloud, _NAME, RATES)
        connection = client.connect(cloud)
        connection.add_service(sdk.DESCRIPTION)
        #: The controller's API as a program uses it.
        self._api = connection.dedup_migrate

    def boot(self) -> None:
        self._progress.say(
            f'{len(RATES)} guests run on {self._guests.boot()}')

    def close(self) -> None:
        self._guests.close()

    @property
    def servers(self) -> list:
        return self._guests.servers

    # The variants

    def run(self, variant: str) -> Pass:
        """Empty the host that they are on."""
        self._guests.refresh()
        source = self.servers[0].compute_host
        done = Pass(variant, source)
        link = self._cloud.host(source).link('migration')
        self._guests.write()
        self._wait_for_samples(source)
        before = {one.id: self._requests(one) for one in self.servers}
        sent = link.carried()[0]
        started = time.monotonic()
        {DRAIN: self._drain, TWO: self._drain, LISTED: self._listed,
         AT_ONCE: self._at_once, KILLED: self._killed}[variant](done,
                                                                started)
        done.link_bytes = link.carried()[0] - sent
        for server in self.servers:
            now = self._compute.get_server(server.id)
            if now.compute_host == source or now.status != 'ACTIVE':
                done.wrong.append(f'{now.name} is {now.status} on '
                                  f'{now.compute_host}')
            done.requests[now.name] = self._requests(now) - before[now.id]
            done.downtimes[now.name] = migrations.downtime(
                instances.host_of(self._cloud, now), now)
        done.wrong += self._guests.verify()
        self._progress.say(f'{variant}: {done.seconds:.0f} s')
        return done

    def _requests(self, server) -> int:
        return sum(one.action == 'live-migration'
                   for one in self._compute.server_actions(server.id))

    def _wait_for_samples(self, host: str) -> None:
        """Wait until the controller has a sample of each guest."""
        deadline = time.monotonic() + _SAMPLED_S
        while True:
            found = self._api.create_estimate(host=host)
            while found['state'] in ('pending', 'running'):
                time.sleep(_POLL_S)
                found = self._api.get_estimate(found.id)
            if found['state'] == 'failed':
                raise errors.LabError(f'the estimate failed: '
                                      f'{found["error"]}')
            unknown = [one['server_name'] for one in found['servers']
                       if one['confidence'] == 'low']
            if not unknown:
                return
            if time.monotonic() > deadline:
                raise errors.LabError('there is no sample of '
                                      + ', '.join(unknown))
            time.sleep(5)

    def _arrive(self, done: Pass, started: float, number: int | None = None,
                seen=lambda: None) -> None:
        """Wait until all have arrived, or so many.

        :param seen: called once, when the first one migrates
        """
        number = len(self.servers) if number is None else number
        deadline = started + _LIMIT_S
        while len(done.order) < number:
            for one in self._compute.servers(name='^drain-'):
                if one.status == 'MIGRATING' and seen is not None:
                    seen()
                    seen = None
                if (one.compute_host != done.source
                        and one.status == 'ACTIVE'
                        and one.name not in done.order):
                    done.order.append(one.name)
                    done.seconds = time.monotonic() - started
            if time.monotonic() > deadline:
                raise errors.LabError(
                    f'{done.variant}: after {_LIMIT_S:.0f} s only '
                    f'{", ".join(done.order) or "none"} have arrived')
            time.sleep(_POLL_S)

    def _wait_for_next(self, started: float) -> None:
        """Wait until one of them migrates."""
        while not any(one.status == 'MIGRATING'
                      for one in self._compute.servers(name='^drain-')):
            if time.monotonic() > started + _LIMIT_S:
                raise errors.LabError('the drain does not go on')
            time.sleep(_POLL_S)

    def _listed(self, done: Pass, started: float) -> None:
        for number, server in enumerate(self.servers, 1):
            self._compute.live_migrate_server(server,
                                              block_migration='auto')
            self._arrive(done, started, number)

    def _at_once(self, done: Pass, started: float) -> None:
        with futures.ThreadPoolExecutor(len(self.servers)) as pool:
            list(pool.map(
                lambda one: client.connect(
                    self._cloud).compute.live_migrate_server(
                        one, block_migration='auto'), self.servers))
        self._arrive(done, started)

    def _drain(self, done: Pass, started: float) -> None:
        words = ['drain', 'create', done.source, '--wait', '-f', 'json']
        if done.variant == TWO:
            words += ['--max-parallel', '2']
        plan = json.loads(self._openstack(*words, '--dry-run'))
        done.predicted = plan['eta']
        print(self._openstack('drain', 'server', 'list', plan['id'], '-c',
                              'position', '-c', 'server_name', '-c',
                              'state', '-c', 'reason'), flush=True)
        started = time.monotonic()
        with self._command(*words) as command:
            self._arrive(done, started, seen=lambda: self._disabled(done))
            output = command.communicate(timeout=_LIMIT_S)[0]
        self._judge(done, command.returncode, json.loads(output))

    def _killed(self, done: Pass, started: float) -> None:
        drain = self._api.create_drain(host=done.source)
        self._arrive(done, started, 1, lambda: self._disabled(done))
        self._wait_for_next(started)
        controller.kill(self._cloud)
        self._progress.say('the controller is killed')
        self._arrive(done, started, 2)
        time.sleep(_AWAY_S)
        controller.start(self._cloud)
        with self._command('drain', 'show', drain.id, '--wait', '-f',
                           'json') as command:
            self._arrive(done, started)
            output = command.communicate(timeout=_LIMIT_S)[0]
        self._judge(done, command.returncode, json.loads(output))

    def _disabled(self, done: Pass) -> None:
        """Check that Nova places nothing there when the first one moves."""
        service = self._service(done.source)
        if (service.status != 'disabled'
                or 'dedup-migrate' not in (service.disabled_reason or '')):
            done.problems.append(
                f'nova-compute is {service.status} while the first one '
                f'moves: {service.disabled_reason}')

    def _service(self, host: str):
        return next(self._compute.services(binary='nova-compute',
                                           host=host))

    def _judge(self, done: Pass, status: int, drain: dict) -> None:
        """Check the end of a drain, let Nova use the host again."""
        if status or drain['state'] != 'drained':
            done.problems.append(f'the command ended with {status}, the '
                                 f'drain is {drain["state"]}')
        if not drain['safe_to_power_off']:
            done.problems.append('not safe to power off: ' + '; '.join(
                one['reason'] for one in drain['conditions']
                if not one['status']))
        self._compute.enable_service(self._service(done.source).id)
        shown = list(self._api.migrations(drain=drain['id']))
        reported = [one for one in shown
                    if one['state'] == 'completed' and one['strategy']]
        if len(reported) != len(self.servers):
            done.problems.append(
                f'{len(reported)} of {len(self.servers)} migrations have a '
                f'report, {len(shown)} are known')

    # The command

    @contextlib.contextmanager
    def _command(self, *words: str):
        """Run openstack dedup; its standard error is shown."""
        with subprocess.Popen(
                [*map(str, self._cloud.script('openstack')), '--os-cloud',
                 'lab', 'dedup', *words], cwd=self._cloud.directory,
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                text=True) as command:
            try:
                yield command
            finally:
                command.terminate()

    def _openstack(self, *words: str) -> str:
        """Return what openstack dedup prints.

        :raises LabError: it fails
        """
        with self._command(*words) as command:
            output = command.communicate(timeout=_LIMIT_S)[0]
        if command.returncode:
            raise errors.LabError('openstack dedup %s ended with status %d'
                                  % (' '.join(words), command.returncode))
        return output


def _mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def rows_of(passes: list[Pass]) -> list[Row]:
    found = []
    by: dict[str, list[Pass]] = {}
    for one in passes:
        by.setdefault(one.variant, []).append(one)
    for variant, ours in by.items():
        if variant == KILLED:
            continue
        for name, unit, value in (
                ('until the last one has arrived', 's',
                 lambda one: one.seconds),
                ('downtime, sum', 'ms',
                 lambda one: sum(filter(None, one.downtimes.values()))),
                ('downtime, most', 'ms',
                 lambda one: max(filter(None, one.downtimes.values()),
                                 default=0)),
                ('sent', 'MB', lambda one: one.link_bytes / 1e6)):
            found.append(Row(f'{variant}: {name}, mean of {len(ours)}',
                             round(_mean(map(value, ours)), 1), unit,
                             'shown', True))
    for variant in (DRAIN, TWO):
        longer = (_mean(one.seconds for one in by[variant])
                  - _mean(one.seconds for one in by[LISTED])) / len(RATES)
        found.append(Row(f'{variant}: longer than one after the other, '
                         'for each server', round(longer, 1), 's',
                         f'at most {LONGER_S:g}', longer <= LONGER_S))
    for one in (*by[DRAIN], *by[TWO]):
        low, high = one.predicted['low'], one.predicted['high']
        known = low is not None and high is not None
        found.append(Row(
            f'{one.variant}, of {one.source}: time', round(one.seconds, 1),
            's',
            'predicted: %s' % ('%.0f to %.0f, or 25 %% off' % (low, high)
                               if known else one.predicted),
            bool(known and low * (1 - MISSED) <= one.seconds
                 <= high * (1 + MISSED))))
    wrong = [line for one in passes for line in one.wrong]
    found.append(Row('guests that have moved with their memory as it was',
                     len(passes) * len(RATES) - len(wrong), '',
                     f'{len(passes) * len(RATES)}', not wrong))
    problems = [line for one in passes for line in one.problems]
    found.append(Row(
        'drains: disabled first, drained, safe to power off, all reported',
        '; '.join(problems) or 'yes', '', 'yes', not problems))
    more = [f'{one.variant}: {name} {number} times' for one in passes
            for name, number in one.requests.items() if number != 1]
    found.append(Row('live migrations requested of Nova for each guest, '
                     'controller killed or not', '; '.join(more) or 'one',
                     '', 'one', not more))
    return found


def measure(cloud, quick, progress) -> list[Row]:
    lab_bench.use_driver(cloud, lab_bench.OURS, at_once=len(RATES))
    for host in cloud.computes:
        # It tells the controller how many Nova allows.
        host.process(nova.AGENT).end(20)
        nova.start_agent(cloud, host.name)
    demo = Demo(cloud, progress)
    passes = []
    try:
        demo.boot()
        # The other way round in the second round: each goes to and fro.
        variants = (DRAIN, LISTED, TWO, AT_ONCE)
        for order in (variants, variants[::-1])[:1 if quick else 2]:
            for variant in order:
                passes.append(demo.run(variant))
        passes.append(demo.run(KILLED))
    finally:
        demo.close()
    for one in passes:
        for line in (*one.wrong, *one.problems):
            progress.say(f'{one.variant}: {line}')
    print('\n' + table.text(
        ('variant', 'from', 's', 'downtime ms, sum', 'most', 'MB',
         'order'),
        [(one.variant, one.source, f'{one.seconds:.0f}',
          sum(filter(None, one.downtimes.values())),
          max(filter(None, one.downtimes.values()), default='-'),
          f'{one.link_bytes / 1e6:.0f}',
          ' '.join(name.removeprefix('drain-') for name in one.order))
         for one in passes])
          + '\nGuests %s write %s KB/s.' % (
              ', '.join(map(str, range(1, len(RATES) + 1))),
              ', '.join(map(str, RATES))))
    return rows_of(passes)


if __name__ == '__main__':
    sys.exit(lab_bench.main(TARGET, __doc__, measure, wanted=WANTED,
                            lab='drain'))
