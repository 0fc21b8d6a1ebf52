# SPDX-License-Identifier: Apache-2.0
import importlib.util
import os
import subprocess
import sys
import textwrap
import threading

from nova_dedup_migrate import native
from nova_dedup_migrate.tests import base


class NativeTest(base.TestCase):
    """Without eventlet."""

    def test_nothing_is_different(self):
        self.assertFalse(native.is_patched())
        self.assertIs(threading, native.threading())
        self.assertIs(self, native.raw(self))
        self.assertEqual(threading.get_ident(),
                         native.call(threading.get_ident))


class EventletTest(base.TestCase):
    """With eventlet, which is for a process of its own.

    read() is a function of C that waits for what another green thread
    writes: held up, the process would wait for ever.
    """

    COMMON = '''
        import eventlet
        eventlet.monkey_patch()
        import ctypes
        import os
        import threading
        from nova_dedup_migrate import native

        come, go = os.pipe()
        def read():
            return ctypes.CDLL(None).read(
                come, ctypes.create_string_buffer(1), 1)

        def write():
            os.write(go, b'x')
    '''

    def setUp(self):
        super().setUp()
        if importlib.util.find_spec('eventlet') is None:
            self.skipTest('eventlet is not installed')

    def run_patched(self, script):
        """Run a script, return what it printed."""
        done = subprocess.run(
            [sys.executable, '-W', 'ignore', '-c',
             textwrap.dedent(self.COMMON) + textwrap.dedent(script)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            timeout=45, env={k: v for k, v in os.environ.items()
                             if not k.startswith('OS_')})
        self.assertEqual(0, done.returncode, done.stderr)
        return done.stdout.split()

    def test_others_go_on(self):
        self.assertEqual(['1'], self.run_patched('''
            eventlet.spawn(write)
            print(native.call(read))
        '''))

    def test_errors(self):
        self.assertEqual(['12'], self.run_patched('''
            before = len(os.listdir('/proc/self/fd'))
            try:
                native.call(int, '12', 99)
            except ValueError:
                print(native.call(int, '12'))
            assert before == len(os.listdir('/proc/self/fd'))
        '''))

    def test_monitor(self):
        """As a domain of Nova's is asked."""
        self.assertEqual(['running'], self.run_patched('''
            from eventlet import tpool
            import libvirt
            from unittest import mock
            from nova_dedup_migrate.hypervisor import libvirt_monitor

            domain = mock.create_autospec(libvirt.virDomain, instance=True)
            domain.state.return_value = [libvirt.VIR_DOMAIN_RUNNING, 1]

            def answer(given, text, flags):
                assert given is domain, given
                read()
                return '{"return": "running"}'

            eventlet.spawn(write)
            with mock.patch('libvirt_qemu.qemuMonitorCommand', answer):
                print(libvirt_monitor.execute(
                    tpool.Proxy(domain, autowrap=(libvirt.virDomain,)),
                    'name', 'query-status', {}, 30))
        '''))

    def test_late(self):
        self.assertEqual(['QmpTimeout'], self.run_patched('''
            from nova_dedup_migrate.hypervisor import errors
            from nova_dedup_migrate.hypervisor import libvirt_monitor
            try:
                libvirt_monitor.within(0.1, 'command', read)
            except errors.QmpTimeout as error:
                print(type(error).__name__)
            write()
        '''))

    def test_events_come_from_elsewhere(self):
        """A callback meets somebody who holds the lock."""
        self.assertEqual(['EVENT'], self.run_patched('''
            from nova_dedup_migrate.hypervisor import events
            log = events.EventLog()
            begun = native.threading().Event()
            def add():
                begun.set()
                log.add('EVENT', {})
            with log._changed:
                thread = native.threading().Thread(target=add, daemon=True)
                thread.start()
                begun.wait()
                # it waits for the lock by then, or does a moment later
                native.threading().Event().wait(0.2)
            thread.join(30)
            print(*(event.name for event in log.since()))
        '''))

    def test_channel(self):
        """libvirt tells from its own thread that there is data."""
        self.assertEqual(["b'data'"], self.run_patched('''
            import time
            from nova_dedup_migrate.hypervisor import libvirt_channel

            class Stream:
                """Of a domain and its connection, too."""
                answers = [-2, b'data']

                def connect(self):
                    return self

                def newStream(self, flags):
                    return self

                def openChannel(self, name, stream, flags):
                    return 0

                def eventAddCallback(self, events, callback, opaque):
                    self.callback = callback

                def eventUpdateCallback(self, events):
                    if events:
                        native.threading().Thread(target=self.tell).start()

                def tell(self):
                    read()
                    self.callback(self, 1, None)

                def recv(self, size):
                    return self.answers.pop(0)

                def eventRemoveCallback(self):
                    return 0

                abort = eventRemoveCallback

            eventlet.spawn(write)
            with libvirt_channel.LibvirtChannel(Stream(), 'port') as channel:
                print(channel.receive(time.monotonic() + 30))
        '''))
