# SPDX-License-Identifier: Apache-2.0
"""A source, a destination and a scripted guest between them."""

import contextlib
import dataclasses
import os
import signal
import time

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.tests.functional.migration import scripted
from testkit import direct
from testkit import memory
from testkit import options
from testkit import spec

_CHANNEL = 'script'
#: Bytes per second.  Sending the pages that hum once has to take more than
#: the 100 ms for which QEMU apportions bandwidth.  Otherwise it makes two
#: passes at once, the guest has no time to change anything in between, and
#: QEMU switches over.
RATE = 1 << 20
#: So little that the pages that hum are too much.
DOWNTIME_MS = 1
_FOREVER_MS = 2_000_000


@dataclasses.dataclass
class Outcome:
    """What a migration came to.

    :ivar failed: why it failed, None: it completed
    :ivar home: run state of the source, if it failed
    :ivar differing: pages that differ between source and destination
    :ivar wrong: pages that are not what the guest made them
    :ivar source: SourceStatistics
    :ivar incoming: IncomingStatistics, None if it failed
    """

    failed: str | None = None
    home: str | None = None
    differing: int = 0
    wrong: tuple = ()
    source: statistics.SourceStatistics | None = None
    incoming: statistics.IncomingStatistics | None = None

    @property
    def right(self):
        return not (self.failed or self.differing or self.wrong)


class Rig:
    """One guest, for one migration at a time.

    :param test: a base.TestCase
    :param source_disks, destination_disks: spec.Disk of each drive
    :param contents: bytearray of each drive, as the guest sees it
    :param inject, source_inject: QEMU_DEDUP_INJECT of the destination
        and of the source
    :param kind: class of the destination
    :param given: further fields of GuestSpec
    """

    def __init__(self, test, binary, source_disks, destination_disks,
                 contents, inject='', source_inject='',
                 kind=direct.DirectGuest, destination_binary=None,
                 destination_args=(), **given):
        self.test = test
        self.model = scripted.Model(contents)
        given.setdefault('memory_mib', 32)
        if given.get('accel') == 'kvm':
            # a paravirtual clock is written to by the host's kernel
            given.setdefault('cpu', 'qemu64,kvm=off')
        given['extra_args'] = tuple(given.get('extra_args', ()))
        self.spec = spec.GuestSpec(
            binary=binary, disks=tuple(source_disks),
            channels=(spec.Channel(_CHANNEL, 'uart', 'socket'),),
            env=environment(source_inject), **given)
        self.destination_spec = dataclasses.replace(
            self.spec, binary=destination_binary or binary,
            disks=tuple(destination_disks), env=environment(inject),
            extra_args=(*given['extra_args'], *destination_args))
        self._kind = kind
        self.migration = None
        self.armed = False
        self.source = direct.DirectGuest(
            self.spec, test.temporary_dir(), 'source')
        test.addCleanup(self.source.destroy)
        self.new_destination()
        self.guest = None

    def new_destination(self, **changes):
        """Make a fresh destination, changed from the one before."""
        self.destination_spec = dataclasses.replace(
            self.destination_spec, **changes)
        self.destination = self._kind(
            self.destination_spec, self.test.temporary_dir(), 'destination')
        self.test.addCleanup(self.destination.destroy)

    def connect(self, where):
        remote = scripted.Remote(where.channel(_CHANNEL), self.model)
        self.test.addCleanup(remote.close)
        return remote

    def boot(self, track=True):
        """Start the guest at the source; it hums."""
        self.source.start(paused=True)
        if track:
            self.source.track_dedup()
        self.guest = self.connect(self.source)
        self.source.cont()
        self.guest.wait()
        # KVM may have to emulate each instruction of real mode
        self.guest.hum(words=4 if self.spec.accel == 'kvm' else 1024)
        return self.guest

    def read_pages(self, pages, drive=0, sector=scripted.DATA, step=8):
        """Have the guest read pages, from step sectors further each."""
        for number, page in enumerate(pages):
            self.guest.read(page, sector + number * step, drive)

    def migrate(self, arm=True, copy='shared', resend=False, disks=(),
                records=True, compression=None, lazy=True, defer=False,
                **given):
        """Begin; it does not end before finish().

        Without resending, unless asked for: what is outstanding stays so
        until it is answered, or until the end.
        """
        given.setdefault('max_bandwidth', RATE)
        given.setdefault('downtime_limit_ms', DOWNTIME_MS)
        given.setdefault('paused', True)
        self.armed = arm
        if arm:
            self.source.arm_dedup(copy=copy, resend=resend, disks=disks,
                                  records=records, compression=compression,
                                  lazy=lazy, defer_redirtied=defer)
        self.migration = self.source.migrate(
            self.destination, options.MigrationOptions(**given))
        return self.migration

    def figures(self):
        """SourceStatistics now."""
        return self.source.dedup_statistics().source

    def arrived(self):
        """IncomingStatistics now; zeros before there are any."""
        with contextlib.suppress(errors.QmpError):
            return (self.destination.dedup_statistics().incoming
                    or statistics.IncomingStatistics())

    def until(self, condition, what, timeout=30.0):
        """Wait for a condition of this migration."""
        def check():
            if condition():
                return True
            now = self.migration.progress()
            if now.finished:
                self.test.fail('%s: the migration has ended as %s: %s' % (
                    what, now.status, now.error))
            return False
        self.test.eventually(check, what, timeout)

    @contextlib.contextmanager
    def frozen(self):
        """Stop the destination's program, so that it cannot be too early."""
        pid = self.destination.pid
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def active(self):
        """Wait until records go out, or are known not to."""
        self.until(lambda: self.figures().state not in (
            'armed', 'negotiating'), 'records')

    def recorded(self, pages):
        """Wait until so many records were sent."""
        self.until(lambda: self.figures().record_pages >= pages,
                   '%d records' % pages)

    def fetched(self, pages):
        """Wait until so many pages were placed."""
        self.until(lambda: self.arrived().fetched_pages >= pages,
                   '%d pages fetched' % pages)

    def rounds(self, count=2):
        """Wait until what changed before has been sent.

        The round that goes on may have passed a page already.
        """
        first = self.migration.progress().rounds
        self.until(lambda: self.migration.progress().rounds
                   >= first + count, 'a round')

    def let_go(self):
        """Allow the switch-over."""
        self.source.qmp('migrate-set-parameters',
                        **{'downtime-limit': _FOREVER_MS})

    def finish(self, timeout=60):
        """Let it complete, compare all memory and return an Outcome."""
        self.let_go()
        return self.outcome(timeout)

    def outcome(self, timeout=60):
        """As finish(), for a migration that ends by itself."""
        result = Outcome()
        try:
            last = self.migration.wait(timeout)
        except errors.MigrationFailed as error:
            result.failed = str(error)
            result.home = self.source.run_state()
            last = self.migration.progress()
        if last.dedup is not None:
            result.source = last.dedup.source
        elif self.armed:
            result.source = self.figures()
        if result.failed is None:
            self._compare(result)
        elif result.home == 'running':
            self.check_home()
        return result

    def _compare(self, result):
        directory = self.test.temporary_dir()
        there = self.destination.save_memory(directory / 'destination')
        here = self.source.save_memory(directory / 'source')
        result.differing = memory.compare(here, there).differing
        result.wrong = tuple(self.model.wrong_pages(there))
        # or the model is no use
        self.test.assertEqual([], self.model.wrong_pages(here))
        for image in here, there:
            image.remove()
        with contextlib.suppress(errors.DedupNotSupported):
            result.incoming = self.destination.dedup_statistics().incoming

    def check_home(self):
        """The guest has to be well at the source, and goes on there."""
        self.guest.fill(scripted.LAST, 1)
        self.source.pause()
        image = self.source.save_memory(self.test.temporary_dir())
        self.test.assertEqual([], self.model.wrong_pages(image))
        image.remove()
        self.source.cont()

    def move(self):
        """Let the guest run at the destination, which becomes the source."""
        arrived = self.connect(self.destination)
        self.destination.cont()
        arrived.fill(scripted.LAST, 1)
        self.source.destroy()
        self.guest, self.source = arrived, self.destination
        self.spec, self.destination_spec = self.destination_spec, self.spec
        self.new_destination()
        return arrived


def wait_quiet(value, seconds=0.3, timeout=30.0):
    """Wait until value() has not changed for some time."""
    deadline = time.monotonic() + timeout
    last, since = value(), time.monotonic()
    while time.monotonic() - since < seconds:
        now = value()
        if now != last:
            last, since = now, time.monotonic()
        if time.monotonic() > deadline:
            raise AssertionError('it never gets quiet')
        time.sleep(0.01)


def environment(inject=''):
    """Faults, and no switch-over before let_go().

    The guest's hum alone does not see to that: on a busy machine it may
    get no processor for as long as a pass over its memory takes.
    """
    hold = 'hold-below-ms=%d' % (DOWNTIME_MS + 1)
    return {'QEMU_DEDUP_INJECT': ','.join(filter(None, (hold, inject)))}
