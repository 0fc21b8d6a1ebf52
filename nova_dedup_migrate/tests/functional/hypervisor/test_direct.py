# SPDX-License-Identifier: Apache-2.0
"""The suite over directly started QEMUs, and what is theirs alone."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import textwrap

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import memory
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.functional.hypervisor import suites
from testkit import bootsector
from testkit import direct
from testkit import options
from testkit import qemus
from testkit import spec


class DirectCase(base.TestCase):
    """Guests of the class's kind of QEMU."""

    kind = 'stock'
    timeout = 120
    accel = 'tcg'

    def setUp(self):
        self.binary = qemus.require(self, self.kind)
        super().setUp()

    def spec(self, **given):
        given.setdefault('disks', (spec.Disk(self.image),))
        given.setdefault('memory_mib', 32)
        # A paravirtual clock is a page the host's kernel writes to, so
        # it is no use to compare it.
        given.setdefault('cpu', 'qemu64,kvm=off'
                         if self.accel == 'kvm' else None)
        return spec.GuestSpec(binary=self.binary, accel=self.accel, **given)

    def make(self, name, **given):
        guest = direct.DirectGuest(self.spec(**given), name=name)
        self.addCleanup(guest.destroy)
        return guest

    def console(self, guest):
        return guest.console.read_bytes()


class StockLifecycleTest(suites.LifecycleSuite, DirectCase):
    pass


class StockFactsTest(suites.FactsSuite, DirectCase):
    pass


class StockMigrationTest(suites.MigrationSuite, DirectCase):
    pass


class StockParametersTest(suites.ParametersSuite, DirectCase):
    pass


class StockPostcopyTest(suites.PostcopySuite, DirectCase):
    pass


class StockWithoutDedupTest(suites.StockSuite, DirectCase):
    pass


class PatchedLifecycleTest(suites.LifecycleSuite, DirectCase):
    kind = 'patched'


class PatchedFactsTest(suites.FactsSuite, DirectCase):
    kind = 'patched'


class PatchedMigrationTest(suites.MigrationSuite, DirectCase):
    kind = 'patched'


class PatchedParametersTest(suites.ParametersSuite, DirectCase):
    kind = 'patched'


class PatchedPostcopyTest(suites.PostcopySuite, DirectCase):
    kind = 'patched'


class PatchedDedupTest(suites.DedupSuite, DirectCase):
    kind = 'patched'


class KvmCase(suites.Suite, DirectCase):
    """Less work of the same kind.

    Where KVM cannot run such a guest natively it emulates each of its
    instructions, about five million a second.
    """

    accel = 'kvm'
    boot = bootsector.BootSector(chunks=2, pages=256, delay=50_000)

    def setUp(self):
        if not qemus.kvm_works():
            self.skipTest('/dev/kvm cannot be opened')
        super().setUp()


class KvmMigrationTest(KvmCase):

    def test_precopy(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination)
        self.assert_arrives(source, destination, migration)

    def test_cancel_and_retry(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination,
                                 max_bandwidth=128 << 10)
        migration.wait_status(('active',), 10)
        migration.cancel()
        self.assert_works(source)
        migration = self.migrate(source, destination, multifd_channels=2)
        self.assert_arrives(source, destination, migration)


class KvmDedupTest(KvmCase):
    kind = 'patched'

    tracked = suites.DedupSuite.tracked
    test_armed_migration_reads_storage = (
        suites.DedupSuite.test_armed_migration_reads_storage)


class DirectOnlyTest(suites.Suite, DirectCase):
    """How a process starts and ends."""

    def test_missing_binary(self):
        self.binary = str(self.dir / 'qemu')
        error = self.assertRaises(errors.BinaryNotFound,
                                  self.make('guest').start)
        self.assertEqual(self.binary, error.binary)

    def test_unreadable_disk(self):
        guest = self.make('guest',
                          disks=(spec.Disk(self.dir / 'missing'),))
        self.assertRaises(errors.OptionError, guest.start)

    def test_early_exit_tells_why(self):
        guest = self.make('guest', extra_args=('-no-such-option',))
        error = self.assertRaises(errors.GuestExited, guest.start)
        self.assertEqual(1, error.status)
        self.assertIn('no-such-option', error.log)
        self.assertFalse(guest.is_alive())

    def test_killed_guest(self):
        guest = self.started()
        os.kill(guest.pid, signal.SIGKILL)
        self.eventually(lambda: not guest.is_alive(), 'end')
        self.assertRaises(errors.QmpDisconnected, guest.qmp, 'stop')
        # no event can follow: this does not take an hour
        self.assertRaises(errors.WaitTimeout, guest.events.wait, 'STOP',
                          timeout=3600)

    def test_hung_guest(self):
        guest = self.started()
        guest.qmp_timeout = 0.2
        os.kill(guest.pid, signal.SIGSTOP)
        error = self.assertRaises(errors.QmpTimeout, guest.qmp, 'stop')
        self.assertEqual('stop', error.command)
        guest.destroy()
        self.assertFalse(guest.is_alive())

    def test_killed_source(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination, max_bandwidth=1 << 20)
        os.kill(source.pid, signal.SIGKILL)
        error = self.assertRaises(errors.MigrationFailed,
                                  migration.wait, 10)
        self.assertEqual('source lost', error.status)

    def test_port_in_use(self):
        source, destination = self.started(), self.make('destination')
        with socket.create_server(('127.0.0.1', 0)) as taken:
            error = self.assertRaises(
                errors.AddressInUse, self.migrate, source, destination,
                transport='tcp', port=taken.getsockname()[1])
        self.assertIn('127.0.0.1', error.address)
        self.assertFalse(destination.is_alive())
        self.assert_works(source)

    def test_incompatible_destination_tells_why(self):
        source = self.started()
        destination = self.make('destination', memory_mib=64)
        migration = self.migrate(source, destination)
        error = self.assertRaises(errors.MigrationFailed,
                                  migration.wait, 30)
        self.assertEqual('failed', error.status)
        self.assertIn('pc.ram', error.reason)
        self.assert_works(source)

    def test_run_dir_stays_if_given(self):
        guest = direct.DirectGuest(self.spec(), self.dir / 'run')
        with guest:
            guest.start()
            self.assert_works(guest)
            self.assertEqual(str(guest.pid),
                             (self.dir / 'run/pid').read_text().strip())
        self.assertIn(b'B', (self.dir / 'run/console.log').read_bytes())

    def test_channels(self):
        guest = self.make('guest', channels=(
            spec.Channel('report'), spec.Channel('agent', 'virtio-serial',
                                                 'socket')))
        guest.start()
        self.assertTrue(guest.channel('report').is_file())
        self.assertTrue(guest.channel('agent').is_socket())
        self.assert_works(guest)

    def test_every_kind_of_disk(self):
        for device in spec.DEVICES:
            for iothread in {False, device.startswith('virtio')}:
                for machine in ('pc', 'q35'):
                    guest = self.make(
                        'guest', machine=machine,
                        disks=(spec.Disk(self.image, device=device,
                                         iothread=iothread),))
                    # SeaBIOS before 1.16.3 waits 32 s for an AHCI disk
                    ahci = device == 'ide' and machine == 'q35'
                    guest.start(paused=ahci)
                    if not ahci:
                        self.assert_works(guest, 1)
                    guest.destroy()

    def test_explicit_block_nodes(self):
        guest = self.make('guest', extra_args=(
            '-object', 'throttle-group,id=slow,x-iops-total=1000'),
            disks=(spec.Disk(blockdev=(
                {'driver': 'file', 'node-name': 'file',
                 'filename': str(self.image)},
                {'driver': 'throttle', 'node-name': 'top',
                 'throttle-group': 'slow', 'file': 'file'})),))
        guest.start()
        self.assert_works(guest)

    def test_ram_ranges_are_those_of_qemu(self):
        cases = [(machine, size) for machine in ('pc', 'q35')
                 for size in (32, 2815, 2816, 3583, 3584, 4096)]
        for machine, size in cases:
            guest = self.make('guest', machine=machine, memory_mib=size)
            guest.start(paused=True)
            tree = guest.qmp('human-monitor-command',
                             **{'command-line': 'info mtree'})
            guest.destroy()
            mapped = re.findall(
                r'^ +([0-9a-f]{16})-([0-9a-f]{16}) \(prio 0, (?:i/o|ram)\):'
                r' alias ram-(?:below|above)-4g', tree, re.MULTILINE)
            found = [memory.RamRange(int(start, 16),
                                     int(end, 16) + 1 - int(start, 16))
                     for start, end in mapped]
            self.assertIn(list(memory.boot_ranges(machine, size << 20)),
                          [found[:1], found[:2]], (machine, size, tree))

    def test_memory_on_both_sides_of_the_hole(self):
        # the smallest such guest
        shape = {'machine': 'q35', 'memory_mib': 2816}
        guest = self.make('guest', **shape)
        guest.start()
        self.assert_works(guest)
        guest.pause()
        image = guest.save_memory(self.dir)
        self.assertEqual(2816 << 20, image.size)
        self.assertEqual([0, 4 << 30], [f.range.start for f in image.files])

    def test_plugged_memory_is_compared(self):
        guest = self.make('guest', extra_args=('-m', '32M,slots=1,maxmem=1G'))
        guest.start(paused=True)
        before = memory.ranges(guest)
        guest.qmp('object-add', **{'qom-type': 'memory-backend-ram',
                                   'id': 'more', 'size': 128 << 20})
        guest.qmp('device_add', driver='pc-dimm', id='dimm', memdev='more')
        added = [r for r in memory.ranges(guest) if r not in before]
        self.assertEqual([128 << 20], [r.size for r in added])

    def test_shared_memory_backend(self):
        source = self.started()
        destination = self.make('destination', memory_share=True)
        migration = self.migrate(source, destination)
        self.assert_arrives(source, destination, migration)

    def test_nothing_outlives_the_program(self):
        script = textwrap.dedent('''
            import sys
            from testkit import direct, spec
            guest = direct.DirectGuest(spec.GuestSpec(
                binary=sys.argv[1], memory_mib=16))
            guest.start(paused=True)
            print(guest.pid, guest.run_dir, flush=True)
            sys.stdin.read()
        ''')
        child = subprocess.Popen(
            [sys.executable, '-c', script, self.binary],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            pid, run_dir = child.stdout.readline().split()
            self.addCleanup(shutil.rmtree, run_dir)
        finally:
            child.kill()
            child.communicate()
        self.eventually(lambda: not _exists(pid), 'end of the guest')

    def test_tls(self):
        keys = self.dir / 'keys'
        keys.mkdir()
        (keys / 'keys.psk').write_text('qemu:' + '17' * 32 + '\n')
        source, destination = self.started(), self.make('destination')
        try:
            migration = self.migrate(
                source, destination,
                tls=options.TlsCredentials(keys, keys, kind='psk'))
        except errors.QmpError as error:
            self.skipTest('this QEMU was built without TLS: %s' % error)
        self.assert_arrives(source, destination, migration)


def _exists(pid):
    """Whether a process runs; one that waits to be reaped does not."""
    try:
        with open('/proc/%s/stat' % pid) as stat:
            return stat.read().rsplit(')', 1)[1].split()[0] != 'Z'
    except FileNotFoundError:
        return False
