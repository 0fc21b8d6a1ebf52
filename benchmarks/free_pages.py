# SPDX-License-Identifier: Apache-2.0
"""make bench-free-pages: memory that a guest has freed, and what it costs.

A Linux guest reads files until its page cache is full, and drops them, as when
a large file is deleted.  Stock QEMU then migrates it, with free page reporting
on its balloon, as Nova has it, and without.  Linux reports only areas of 2 MiB
and more that are free as a whole, so it is done once with a guest that has
just booted, and once with one that has been in use: before, it turns pages of
its page cache into memory of processes and back, as fast as it can.  What that
writes in a second is the price of reporting.
"""

import argparse
import os
from pathlib import Path
import sys
import tempfile
import time

from benchmarks import rst
from benchmarks import spread
from guests.synthetic import channel
from guests.synthetic import disk
from guests.synthetic import image
from guests.synthetic import workload
from testkit import direct
from testkit import memory
from testkit import options
from testkit import qemus
from testkit import results
from testkit import spec

TOP = Path(__file__).parents[1]
BUILD = TOP / 'build' / 'free-pages'
INCLUDE = TOP / 'doc/source/benchmarks/results/free-pages.inc'
WAYS = ('off', 'on')
BOOTED, USED = GUESTS = ('booted', 'in use')
#: MiB of the guest, of its files, and of memory that it keeps.
MEMORY, CACHE, ANON = 768, 448, 64
QUICK = 256, 96, 16
#: Seconds of each measurement of the price, and until the guest has reported
#: what is free: Linux does it two seconds after the last page was freed.
WORK_S, REPORT_S = 20, 10
#: Of what was written without reporting.
TARGET = 0.97


class Run:
    """One guest and its migration.

    :ivar written: MB that it wrote in a second, None if it has just booted
    :ivar resident: MB of the source that are in memory, at last
    :ivar sent: MB
    :ivar seconds: of the migration
    :ivar differing: pages that are not the same at the destination
    """

    def __init__(self, directory, guest, way, sizes):
        self._directory = directory
        size, cache, anon = sizes
        binary = qemus.find('stock')
        linux = image.guest_image()
        data = disk.make_disk(directory / 'disk', mib=cache)
        work = workload.Workload(cache=cache, anon=anon)
        self._spec = spec.GuestSpec(
            binary=binary, memory_mib=size, kernel=linux.kernel,
            initrd=linux.initrd, append=work.append,
            disks=(spec.Disk(path=data.path),),
            channels=(spec.Channel('workload', 'uart', 'socket'),),
            extra_args=('-device', 'virtio-balloon-pci,free-page-reporting='
                        + way))
        source, destination = (
            direct.DirectGuest(self._spec, directory / name, name)
            for name in ('source', 'destination'))
        try:
            self._work(source, guest == USED)
            self._migrate(source, destination)
        finally:
            source.destroy()
            destination.destroy()

    def _work(self, source, used):
        source.start()
        self.written = None
        with channel.GuestChannel(source.channel('workload')) as talk:
            talk.wait_ready()
            if used:
                self._use(talk)
            talk.command('drop')
            time.sleep(REPORT_S)
        status = Path('/proc/%d/status' % source.pid).read_text()
        self.resident = int(status.split('VmRSS:')[1].split()[0]) / 1e3

    def _use(self, talk):
        talk.command('start recycle rate=0')
        before = talk.wait_report()
        time.sleep(WORK_S)
        after = talk.wait_report()
        self.written = (after.written - before.written) / 1e3 / (
            after.mono_ms - before.mono_ms)
        talk.command('stop')

    def _migrate(self, source, destination):
        began = time.monotonic()
        source.migrate(destination, options.MigrationOptions(
            paused=True, max_bandwidth=125_000_000)).wait(300)
        self.seconds = time.monotonic() - began
        self.sent = source.qmp('query-migrate')['ram']['transferred'] / 1e6
        here = source.save_memory(self._directory / 'here')
        there = destination.save_memory(self._directory / 'there')
        self.differing = memory.compare(here, there).differing
        here.remove()
        there.remove()
        with channel.GuestChannel(destination.channel('workload')) as talk:
            destination.cont()
            self.differing += talk.verify()['errors']


_HEAD = ('guest', 'free page reporting', 'sent, MB', 'time, s', 'resident, MB',
         'memory written in a second, MB')


def _show(runs, name, digits=0):
    found = spread.of(getattr(one, name) for one in runs)
    return '-' if found is None else found.show(digits)


def lines(runs):
    """Return the rows of the table.

    :param runs: {(guest, way): [Run, ...]}
    """
    return [(guest, way, _show(found, 'sent'), _show(found, 'seconds', 1),
             _show(found, 'resident'), _show(found, 'written'))
            for (guest, way), found in runs.items()]


def judge(into, runs):
    """Add rows to results.Results; runs as in lines."""
    for (guest, way), found in runs.items():
        name = '%s, %s: ' % (guest, way)
        wrong = sum(one.differing for one in found)
        into.add(name + 'wrong pages', wrong, '', '0', not wrong)
        into.add(name + 'sent', _show(found, 'sent'), 'MB', '-', True)
    for guest in GUESTS:
        less = _ratios(runs, guest, 'sent')
        into.add(guest + ': sent with reporting', less.show(), 'of without',
                 'below 1', less.median < 1)
    price = _ratios(runs, USED, 'written')
    into.add('written with reporting', price.show(), 'of without',
             'at least %g' % TARGET, price.median >= TARGET)


def _ratios(runs, guest, name):
    return spread.ratios(*([getattr(one, name) for one in runs[guest, way]]
                           for way in reversed(WAYS)))


def main(argv=None):
    parser = argparse.ArgumentParser(
        prog='make bench-free-pages', description=__doc__.split('\n')[0])
    parser.add_argument('--quick', action='store_true',
                        help='a small guest, once')
    parser.add_argument('--repeats', type=int, default=3,
                        help='pairs (default: %(default)s)')
    parser.add_argument('--publish', action='store_true',
                        help='write the table of the documentation')
    given = parser.parse_args(argv)
    typed = ' '.join(sys.argv[1:] if argv is None else argv)
    found = {(guest, way): [] for guest in GUESTS for way in WAYS}
    BUILD.mkdir(parents=True, exist_ok=True)
    for _ in range(1 if given.quick else given.repeats):
        for (guest, way), runs in found.items():
            with tempfile.TemporaryDirectory(dir=BUILD) as directory:
                runs.append(Run(Path(directory), guest, way, QUICK if
                                given.quick else (MEMORY, CACHE, ANON)))
            print('%s, %s: %.0f MB sent, %.0f MB resident' % (
                guest, way, runs[-1].sent, runs[-1].resident), flush=True)
    outcome = results.Results('make bench-free-pages' + (
        ' ARGS="%s"' % typed if typed else ''))
    judge(outcome, found)
    if given.publish:
        INCLUDE.write_text(rst.list_table(_HEAD, lines(found)))
    print(outcome.text())
    outcome.write(BUILD / 'report.json')
    print(os.path.relpath(BUILD / 'report.json'))
    return outcome.status()


if __name__ == '__main__':
    sys.exit(main())
