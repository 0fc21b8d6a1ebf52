# SPDX-License-Identifier: Apache-2.0
"""Hosts made of namespaces, and that nothing is left of them."""

import functools
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time
import unittest

try:
    from lab.hosts import far
    from lab.hosts import lab as labs
    from lab.hosts import process
    from lab.hosts import state
except ImportError as error:
    raise unittest.SkipTest('labs cannot be tested: %s' % error) from error

from nova_dedup_migrate.tests import base

TOP = pathlib.Path(__file__).parents[3]

#: Sends bytes to whoever connects, or counts those it gets.
SEND = textwrap.dedent('''
    import socket, sys
    with socket.create_server(('', 5000)) as server:
        print('listening', flush=True)
        connection, _ = server.accept()
        connection.sendall(b'x' * int(sys.argv[1]))
''')
RECEIVE = textwrap.dedent('''
    import socket, sys, time
    begin = time.monotonic()
    with socket.create_connection((sys.argv[1], 5000)) as connection:
        while connection.recv(1 << 20):
            pass
    print(time.monotonic() - begin)
''')
#: Sends back what it gets; the other prints the seconds a byte takes there
#: and back, the fastest of five.
ECHO = textwrap.dedent('''
    import socket
    with socket.create_server(('', 5000)) as server:
        print('listening', flush=True)
        connection, _ = server.accept()
        while data := connection.recv(1):
            connection.sendall(data)
''')
ROUND_TRIP = textwrap.dedent('''
    import socket, sys, time
    with socket.create_connection((sys.argv[1], 5000)) as connection:
        found = []
        for _ in range(5):
            begin = time.monotonic()
            connection.sendall(b'x')
            connection.recv(1)
            found.append(time.monotonic() - begin)
    print(min(found))
''')
#: Prints why nobody answers.
REACH = textwrap.dedent('''
    import socket, sys
    try:
        socket.create_connection((sys.argv[1], 5000), 20)
    except OSError as error:
        print(type(error).__name__)
''')


def _runs(pid):
    one = process.Process.of(pid)
    return one is not None and one.is_alive()


class LabCase(base.TestCase):

    timeout = 120

    def setUp(self):
        super().setUp()
        reason = labs.missing()
        if reason is not None:
            self.skipTest(reason)

    def lab(self, prefix='h', **given):
        given.setdefault('ephemeral', True)
        lab = labs.Lab(labs.unique_name(prefix), **given)
        self.addCleanup(lab.destroy)
        return lab.create()

    def assert_gone(self, name):
        """Nothing that exists has the lab's name."""
        def interfaces():
            return subprocess.run(['ip', '-brief', 'link'], check=True,
                                  capture_output=True, text=True).stdout
        self.assertNotIn(name, state.labs())
        self.assertNotIn('lab-%s-' % name, interfaces())
        self.assertEqual([], [each for each in os.listdir('/run/netns')
                              if each.startswith('lab-%s-' % name)])


class HostTest(LabCase):

    def test_hosts_have_names_directories_and_addresses_of_their_own(self):
        lab = self.lab(networks=('lan', 'wan'))
        one, two = lab.add_host('one'), lab.add_host('two', ['wan'])
        self.assertEqual('one\n', one.run(['hostname']).stdout)
        self.assertIn(two.address, one.run(['cat', '/etc/hosts']).stdout)
        self.assertEqual('198.18.0.0/15', str(labs.network.RANGE))
        self.assertNotEqual(one.link('lan').address,
                            one.link('wan').address)
        self.assertEqual({'lo', 'eth0'}, set(
            two.run(['ls', '/sys/class/net']).stdout.split()))
        for host in (one, two):
            directory = host.private('/etc/nova-dedup-migrate-test/deep')
            (directory / 'name').write_text(host.name)
            self.assertEqual(host.name, host.run(
                ['cat', '/etc/nova-dedup-migrate-test/deep/name']).stdout)
            self.assertEqual(host.name, (
                host.root / 'etc/nova-dedup-migrate-test/deep/name'
            ).read_text())
        lab.destroy()
        self.assertFalse(os.path.exists('/etc/nova-dedup-migrate-test'))
        self.assert_gone(lab.name)

    def test_failing_program(self):
        host = self.lab().add_host('one')
        error = self.assertRaises(
            RuntimeError, host.run, ['sh', '-c', 'echo why >&2; exit 3'])
        self.assertIn('why', str(error))
        self.assertEqual(3, host.run(['sh', '-c', 'exit 3'],
                                     check=False).returncode)

    def test_found_again(self):
        lab = self.lab()
        host = lab.add_host('one')
        sleeper = host.start('sleeper', ['sleep', 'infinity'])
        again = labs.Lab.load(lab.name).hosts['one']
        self.assertEqual(sleeper, again.process('sleeper'))
        # nsenter is not in the host yet when it has been started
        self.eventually(lambda: again.processes() == [sleeper], 'entry')
        self.assertEqual(host.address, again.address)
        again.process('sleeper').end()
        self.assertFalse(sleeper.is_alive())
        self.assertEqual([], host.processes())

    def serving(self, host, script, *arguments):
        """Start a server in a host; its process.Process."""
        log = host.directory / 'serve.log'
        log.unlink(missing_ok=True)
        server = host.start('serve', [sys.executable, '-c', script,
                                      *arguments], log=log)
        self.eventually(lambda: 'listening' in log.read_text(), 'server')
        return server

    def test_rate_limits(self):
        lab = self.lab()
        one, two = lab.add_host('one'), lab.add_host('two')

        def seconds(size):
            sender = self.serving(one, SEND, size)
            done = two.run([sys.executable, '-c', RECEIVE, 'one'])
            sender.wait(10)
            return float(done.stdout)

        # A limit makes it slow for certain; without one nothing is
        # certain on a busy machine.
        one.link().limit(send=1 << 20)
        self.assertGreater(seconds(2 << 20), 1.5)
        one.link().limit()
        self.assertNotIn('tbf', one.run(['tc', 'qdisc']).stdout)
        two.link().limit(receive=1 << 20)
        self.assertGreater(seconds(2 << 20), 1.5)

    def test_far_away(self):
        lab = self.lab(networks=('lan', 'wan'))
        one, two = lab.add_host('one'), lab.add_host('two')
        for host in (one, two):
            link = host.link('wan')
            far.lengthen(host, link)
            self.assertFalse(far.is_served(host, link))
            host.start('far', far.command(sys.executable, link, 0.05),
                       cwd=TOP)
            self.eventually(functools.partial(far.is_served, host, link),
                            'start')
        link = one.link('wan')
        echo = self.serving(one, ECHO)
        done = two.run([sys.executable, '-c', ROUND_TRIP, link.address])
        echo.wait(10)
        # it can be longer on a busy machine, but never shorter
        self.assertGreaterEqual(float(done.stdout), 0.1)
        # large segments pass, and limits and counts are as before
        link.limit(send=4 << 20, receive=4 << 20)
        before = link.carried()[0]
        sender = self.serving(one, SEND, 2 << 20)
        two.run([sys.executable, '-c', RECEIVE, link.address])
        sender.wait(10)
        self.assertGreater(link.carried()[0] - before, 2 << 20)
        self.assertIn('tbf', one.run(['tc', 'qdisc']).stdout)
        # only that link is long
        self.assertEqual({'lo', 'eth0', 'eth1', 'wire-eth1'}, set(
            two.run(['ls', '/sys/class/net']).stdout.split()))
        lab.destroy()
        self.assert_gone(lab.name)

    def test_taps_are_put_into_a_bridge(self):
        lab = self.lab()
        host, other = lab.add_host('one'), lab.add_host('two')
        host.link().add_bridge('br-test')
        # the host is reached by its address as before, by the bridge
        self.assertIn(' br-test ', host.run(
            ['ip', 'route', 'get', other.address]).stdout)
        self.assertEqual('ConnectionRefusedError\n', other.run(
            [sys.executable, '-c', REACH, host.address]).stdout)
        host.run(['ip', 'tuntap', 'add', 'tap-early', 'mode', 'tap'])
        watch = host.start('taps', [sys.executable, '-m', 'lab.hosts.taps',
                                    'br-test'], cwd=TOP)

        def ports():
            links = json.loads(host.run(
                ['ip', '-json', 'link', 'show', 'master', 'br-test']).stdout)
            return {one['ifname'] for one in links if 'UP' in one['flags']}

        self.eventually(lambda: ports() == {'eth0', 'tap-early'},
                        'tap that was there')
        for _ in range(20):
            # gone before anybody can look
            host.run(['sh', '-c', 'ip tuntap add tap-brief mode tap;'
                      'ip link del tap-brief'])
        for name in ('tap-late', 'other'):
            host.run(['ip', 'tuntap', 'add', name, 'mode', 'tap'])
        self.eventually(lambda: 'tap-late' in ports(), 'tap that came')
        self.assertEqual({'eth0', 'tap-early', 'tap-late'}, ports())
        self.assertTrue(watch.is_alive())
        lab.destroy()
        self.assert_gone(lab.name)

    def test_bad_names(self):
        for name in ('', 'UPPER', 'toolong', 'a b'):
            self.assertRaises(ValueError, labs.Lab, name, ephemeral=True)
        self.assertRaises(ValueError, labs.Lab, 'a')
        lab = self.lab()
        self.assertRaises(ValueError, lab.add_host, 'a/b')
        lab.add_host('a')
        self.assertRaises(ValueError, lab.add_host, 'a')


class EndTest(LabCase):
    """What goes on, and what is left, when programs end."""

    def test_processes_of_others_are_found_and_ended(self):
        lab = self.lab()
        host = lab.add_host('one')
        # neither a child of ours, nor willing to end
        script = 'trap "" TERM; sleep 1000 & echo $$ $!; wait; sleep 1000'
        log = host.directory / 'stubborn.log'
        host.start('stubborn', ['setsid', 'sh', '-c', script], log=log)
        pids = self.eventually(lambda: log.read_text().split(), 'start')
        lab.destroy()
        self.assertEqual([False, False], [_runs(int(p)) for p in pids])
        self.assert_gone(lab.name)

    def test_lab_of_a_killed_program(self):
        child, record = self.program(ephemeral=True)
        child.kill()
        child.wait()
        self.eventually(lambda: record['name'] not in state.labs(),
                        'end of the lab', 60)
        self.assert_gone(record['name'])
        self.assertFalse(os.path.exists(record['directory']))
        self.assertFalse(_runs(record['pid']))

    def test_lab_of_a_program_killed_with_its_guard(self):
        child, record = self.program(ephemeral=True)
        os.killpg(record['guard'], signal.SIGKILL)
        child.kill()
        child.wait()
        self.assertIn(record['name'], state.labs())
        labs.sweep()
        self.assert_gone(record['name'])

    def test_lasting_lab(self):
        child, record = self.program(ephemeral=False)
        child.kill()
        child.wait()
        labs.sweep()
        found = labs.Lab.load(record['name'])
        self.addCleanup(found.destroy)
        self.assertTrue(found.hosts['one'].process('sleeper').is_alive())
        # whoever makes it again gets a new one
        again = labs.Lab(record['name'], self.dir)
        again.create()
        self.assertFalse(_runs(record['pid']))
        again.destroy()
        self.assert_gone(record['name'])
        self.assertTrue(self.dir.is_dir())

    def program(self, ephemeral):
        """Start a program that makes a lab; return it and what it says."""
        self.dir = self.temporary_dir()
        script = textwrap.dedent('''
            import json, sys, time
            from lab.hosts import lab as labs
            directory = sys.argv[1] or None
            lab = labs.Lab(labs.unique_name('k'), directory,
                           ephemeral=directory is None).create()
            host = lab.add_host('one')
            sleeper = host.start('sleeper', ['sleep', 'infinity'])
            print(json.dumps({
                'name': lab.name, 'directory': str(lab.directory),
                'pid': sleeper.pid,
                'guard': lab._guard.pid if lab._guard else None}),
                flush=True)
            time.sleep(1000)
        ''')
        child = subprocess.Popen(
            [sys.executable, '-c', script, '' if ephemeral else self.dir],
            cwd=TOP, stdout=subprocess.PIPE, text=True)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        return child, json.loads(child.stdout.readline())


class ProcessTest(base.TestCase):

    def test_another_process_with_the_same_pid(self):
        child = subprocess.Popen(['sleep', 'infinity'])
        self.addCleanup(child.wait)
        self.addCleanup(child.kill)
        one = process.Process.of(child.pid)
        other = process.Process(one.pid, one.start + 1)
        self.assertTrue(one.is_alive())
        self.assertFalse(other.is_alive())
        self.assertFalse(other.send(signal.SIGKILL))
        self.assertTrue(other.wait(0))
        other.end()
        self.assertTrue(one.is_alive())

    def test_end(self):
        log = self.temporary_dir() / 'log'
        one = process.spawn(['sh', '-c', 'trap "" TERM; echo up; sleep 99'],
                            log)
        self.eventually(lambda: log.read_text(), 'start')
        begin = time.monotonic()
        self.assertFalse(one.wait(0))
        one.end(0.1)
        self.assertFalse(one.is_alive())
        self.assertLess(time.monotonic() - begin, 30)
        one.end()

    def test_program_that_does_not_exist(self):
        self.assertRaises(OSError, process.spawn, ['/no/such/program'],
                          self.temporary_dir() / 'log')
