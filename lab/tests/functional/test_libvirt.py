# SPDX-License-Identifier: Apache-2.0
"""The suite over two libvirtds, each in a host of its own."""

import concurrent.futures
import dataclasses
import functools
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import time
import unittest

try:
    import libvirt

    from lab.hosts import lab as labs
    from lab.services import libvirtd
    from nova_dedup_migrate.agent import guest_samples
    from nova_dedup_migrate.agent import local
    from nova_dedup_migrate.agent import remains
    from testkit import libvirt as guests
except ImportError as error:
    raise unittest.SkipTest(
        'libvirt cannot be tested: %s' % error) from error

from nova_dedup_migrate.agent import errors as agent_errors
from nova_dedup_migrate.agent import incoming
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.functional.hypervisor import suites
from testkit import options
from testkit import qemus
from testkit import spec

#: The two libvirtds, made once for all tests of this module.
_daemons = []
_numbers = itertools.count()


def setUpModule():
    reason = labs.missing()
    if reason is not None:
        raise unittest.SkipTest(reason)
    try:
        binary = qemus.find('patched')
    except qemus.QemuNotFound as error:
        raise unittest.SkipTest(str(error)) from error
    lab = labs.Lab(labs.unique_name(), ephemeral=True).create()
    unittest.addModuleCleanup(lab.destroy)
    hosts = [lab.add_host(name) for name in ('one', 'two')]
    _daemons[:] = [libvirtd.Libvirtd(host, binary.parent)
                   for host in hosts]
    # most of the time goes into asking QEMU what it can do
    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(_start, _daemons))


def _start(daemon):
    daemon.prepare()
    daemon.start()
    host = guests.LibvirtHost(daemon.uri)
    host.connection.getCapabilities()
    host.close()


class LibvirtCase(base.TestCase):
    """Guests of the class's kind of QEMU; the source is on host one."""

    kind = 'patched'
    timeout = 120

    def setUp(self):
        self.binary = qemus.require(self, self.kind)
        super().setUp()
        self.hosts = []
        for daemon in _daemons:
            # a test that kills one may have failed before it came back
            if not daemon.process.is_alive():
                daemon.start()
            host = guests.LibvirtHost(daemon.uri, daemon.tcp_uri)
            self.addCleanup(host.close)
            self.hosts.append(host)

    def spec(self, **given):
        given.setdefault('disks', (spec.Disk(self.image),))
        given.setdefault('memory_mib', 32)
        return spec.GuestSpec(binary=self.binary, **given)

    def make(self, name, **given):
        # all guests of a test but the first one are destinations
        place = min(len(self.made), 1)
        run_dir = (_daemons[place].host.directory / 'guests'
                   / str(next(_numbers)))
        guest = guests.LibvirtGuest.from_spec(
            self.hosts[place], self.spec(**given), run_dir, name,
            unsafe=True)
        self.made.append(guest)
        self.addCleanup(guest.close)
        self.addCleanup(self.kill, guest)
        return guest

    def kill(self, guest):
        """Destroy a guest without the second QEMU takes to say good-bye."""
        try:
            os.kill(self.pid(guest), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            # it is not here, or not any more
            pass
        guest.destroy()

    @property
    def made(self):
        return self.__dict__.setdefault('_made', [])

    def console(self, guest):
        return guest.console.read_bytes()

    def pid(self, guest):
        daemon = _daemons[self.hosts.index(guest.host)]
        path = daemon.host.root / ('run/libvirt/qemu/%s.pid' % guest.name)
        return int(path.read_text())


class LifecycleTest(suites.LifecycleSuite, LibvirtCase):
    pass


class FactsTest(suites.FactsSuite, LibvirtCase):
    pass


class MigrationTest(suites.MigrationSuite, LibvirtCase):
    pass


class ParametersTest(suites.ParametersSuite, LibvirtCase):
    pass


class PostcopyTest(suites.PostcopySuite, LibvirtCase):
    pass


class DedupTest(suites.DedupSuite, LibvirtCase):
    pass


class StockTest(suites.StockSuite, LibvirtCase):
    kind = 'stock'

    test_precopy = suites.MigrationSuite.test_precopy
    test_paused_guest = suites.MigrationSuite.test_paused_guest


class LibvirtOnlyTest(suites.Suite, LibvirtCase):
    """What is libvirt's alone."""

    def test_killed_guest(self):
        guest = self.started()
        mark = guest.events.mark()
        os.kill(self.pid(guest), signal.SIGKILL)
        # no event can follow: this does not take an hour
        self.assertRaises(errors.WaitTimeout, guest.events.wait, 'STOP',
                          mark, timeout=3600)
        self.assertFalse(guest.is_alive())
        self.assertRaises(errors.GuestNotRunning, guest.qmp, 'stop')

    def test_hung_guest(self):
        guest = self.started()
        guest.qmp_timeout = 0.2
        os.kill(self.pid(guest), signal.SIGSTOP)
        error = self.assertRaises(errors.QmpTimeout, guest.qmp, 'stop')
        self.assertEqual('stop', error.command)
        self.kill(guest)
        self.assertFalse(guest.is_alive())

    def test_no_commands_to_a_guest_that_arrives(self):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination,
                                 max_bandwidth=suites.MIB)
        error = self.assertRaises(errors.InvalidMigrationState,
                                  destination.qmp, 'query-status')
        self.assertEqual('incoming', error.status)
        migration.cancel()

    def test_guest_of_another_program(self):
        made = self.started()
        connection = libvirt.open(_daemons[0].uri)
        self.addCleanup(connection.close)
        # As nova-compute does; libvirt lets a connection do so only once.
        connection.domainEventRegisterAny(
            None, libvirt.VIR_DOMAIN_EVENT_ID_LIFECYCLE,
            lambda *event: None, None)
        guest = guests.LibvirtGuest.from_domain(
            connection.lookupByName(made.name))
        self.addCleanup(guest.close)
        self.assertEqual('running', guest.run_state())
        mark = guest.events.mark()
        guest.pause()
        guest.events.wait('STOP', mark, 10)
        self.assertEqual('paused', made.run_state())

    def test_libvirtd_is_restarted(self):
        guest = self.started()
        pid = self.pid(guest)
        guest.pause()
        _daemons[0].process.send(signal.SIGKILL)
        _daemons[0].process.wait(10)
        self.assertRaises(errors.HypervisorUnavailable, guest.run_state)
        _daemons[0].start()
        self.assertEqual('paused', guest.run_state())
        self.assertEqual(pid, self.pid(guest))
        mark = guest.events.mark()
        guest.cont()
        guest.events.wait('RESUME', mark, 10)
        self.assert_works(guest)

    def test_libvirtd_of_the_destination_dies(self):
        self._test_dying_libvirtd(1)

    def test_libvirtd_of_the_source_dies(self):
        self._test_dying_libvirtd(0)

    def _test_dying_libvirtd(self, place):
        source, destination = self.started(), self.make('destination')
        migration = self.migrate(source, destination,
                                 max_bandwidth=suites.MIB)
        _daemons[place].process.send(signal.SIGKILL)
        _daemons[place].process.wait(10)
        error = self.assertRaises(errors.MigrationFailed, migration.wait,
                                  60)
        self.assertEqual('failed', error.status)
        _daemons[place].start()
        # it takes up what its predecessor left undone
        self.eventually(lambda: not destination.is_alive(),
                        'end of the destination')
        self.eventually(lambda: source.run_state() == 'running',
                        'return of the source')
        self.assert_works(source)
        migration = self.migrate(source, destination)
        self.assert_arrives(source, destination, migration)

    def test_forgotten(self):
        """What is left of a guest that ended as it arrived."""
        agent = local.LocalLibvirt(_daemons[0].uri, lambda *event: None)
        self.addCleanup(agent.stop)
        migrations = incoming.IncomingMigrations()
        undefine = remains.Remains(agent.host, migrations)
        guest = self.started()
        connection = libvirt.open(_daemons[0].uri)
        self.addCleanup(connection.close)
        domain = connection.lookupByName(guest.name)
        uuid = domain.UUIDString()
        connection.defineXML(domain.XMLDesc())
        migrations.announce(uuid, 'migration')
        self.assertRaises(agent_errors.ForgetRefused, undefine.forget, uuid,
                          'migration')
        self.assertTrue(domain.isPersistent())
        self.assert_works(guest)
        os.kill(self.pid(guest), signal.SIGKILL)
        self.eventually(lambda: not domain.isActive(), 'end of the guest')
        self.assertRaises(agent_errors.ForgetRefused, undefine.forget, uuid,
                          'another migration')
        self.assertTrue(undefine.forget(uuid, 'migration'))
        self.assertRaises(libvirt.libvirtError,
                          connection.lookupByUUIDString, uuid)
        self.assertFalse(undefine.forget(uuid, 'migration'))

    def test_samples_of_the_agent(self):
        """Only a guest that records its I/O gets commands by itself."""
        agent = local.LocalLibvirt(_daemons[0].uri, lambda *event: None)
        self.addCleanup(agent.stop)
        samples = guest_samples.GuestSamples(agent.host, agent.is_busy)
        guest = self.started()
        tainted = functools.partial(
            guest.domain().messages, libvirt.VIR_DOMAIN_MESSAGE_TAINTING)

        def sweep():
            before = time.monotonic()
            samples.sweep(lambda: False)
            known = samples._guests[guest.uuid].sample
            return known is not None and known.taken > before

        self.assertFalse(agent.is_busy())
        # A QEMU that runs as root is tainted already, and gets a command.
        clean = not tainted()
        self.assertFalse(sweep())
        self.assertNotEqual(clean, bool(tainted()))
        guest.track_dedup()
        self.assertIn('tainted: custom monitor control commands issued',
                      tainted())
        self.assertTrue(sweep())
        sample, reason = samples.sample(guest.uuid, 60.0, 30.0)
        self.assertEqual('', reason)
        self.assertEqual((), sample.found.warnings)
        self.assertGreater(sample.found.dirty_rate, 0)
        self.assertGreater(sample.found.in_use.bytes, 0)
        self.assertIsNotNone(sample.found.hints)
        guest.track_dedup(False)
        self.assertFalse(sweep())
        self.assertEqual('here', agent.guest(guest.uuid).state)

    def test_agent_during_a_migration(self):
        """Both hosts are busy, and the guest is at its source."""
        agents = [local.LocalLibvirt(daemon.uri, lambda *event: None)
                  for daemon in _daemons]
        for agent in agents:
            self.addCleanup(agent.stop)
        source = self.started()
        destination = self.make('destination')
        migration = source.migrate(destination, options.MigrationOptions(
            max_bandwidth=1 << 20))
        self.eventually(lambda: all(agent.is_busy() for agent in agents),
                        'both are busy')
        self.assertEqual(['here', 'arriving'], [
            agent.guest(source.uuid).state for agent in agents])
        migration.cancel()
        self.assertEqual(['here', 'none'], [
            agent.guest(source.uuid).state for agent in agents])
        self.eventually(
            lambda: not any(agent.is_busy() for agent in agents),
            'neither is busy')

    def test_agent_during_post_copy(self):
        """From the switch on the guest is at its destination."""
        agents = [local.LocalLibvirt(daemon.uri, lambda *event: None)
                  for daemon in _daemons]
        for agent in agents:
            self.addCleanup(agent.stop)
        source = self.started()
        destination = self.make('destination')
        migration = source.migrate(destination, options.MigrationOptions(
            max_bandwidth=1 << 20, max_postcopy_bandwidth=4 << 20,
            postcopy=True))
        migration.start_postcopy()

        def switched():
            found = [agent.guest(source.uuid) for agent in agents]
            # libvirt notes QEMU's events one after the other
            self.assertNotEqual(['here', 'here'],
                                [one.state for one in found])
            return [(one.state, one.reason) for one in found] == [
                ('none', 'paused (postcopy)'), ('here', 'running (postcopy)')]

        self.eventually(switched, 'the guest is at its destination')
        migration.set_rate(None)
        migration.wait(60)
        self.assertEqual(['none', 'here'], [
            agent.guest(source.uuid).state for agent in agents])

    def test_early_exit_tells_why(self):
        guest = self.make('guest', extra_args=('-no-such-option',))
        error = self.assertRaises(errors.GuestExited, guest.start)
        self.assertIn('no-such-option', error.log)
        self.assertFalse(guest.is_alive())

    def test_refused_destination_tells_why(self):
        source = self.started()
        destination = self.make('destination')
        destination.spec = dataclasses.replace(
            destination.spec, binary='/no/such/qemu')
        error = self.assertRaises(errors.HypervisorRefused, self.migrate,
                                  source, destination)
        self.assertIn('/no/such/qemu', error.reason)
        self.assertFalse(destination.is_alive())
        self.assert_works(source)

    def test_disks_by_target(self):
        guest = self.make('guest', disks=(
            spec.Disk(self.image, device='ide'),
            spec.Disk(self.boot.write_image(self.dir / 'second.img'),
                      id='data')))
        guest.start(paused=True)
        self.assertEqual({'hda': 'ide0-0-0', 'vdb': 'ua-data'},
                         guest.disks())

    def test_channels(self):
        guest = self.make('guest', channels=(
            spec.Channel('report'), spec.Channel('agent', 'virtio-serial',
                                                 'socket')))
        guest.start()
        self.assertTrue((guest.run_dir / 'report.log').is_file())
        self.assertTrue((guest.run_dir / 'agent.sock').is_socket())
        self.assert_works(guest)

    def test_on_eventlet(self):
        """A nova-compute that runs on eventlet is not held up."""
        if importlib.util.find_spec('eventlet') is None:
            self.skipTest('eventlet is not installed')
        guest = self.started()
        pid = self.pid(guest)
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        # It ends only if what is to wake QEMU up has its turn while QEMU
        # is asked.
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-m',
             'lab.tests.functional.on_eventlet',
             guest.host.uri, guest.uuid, str(pid)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, timeout=self.timeout / 2)
        self.assertEqual('running RESUME True True ()\n', done.stdout,
                         done.stderr)
