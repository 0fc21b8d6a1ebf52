# SPDX-License-Identifier: Apache-2.0
import threading
import time
from unittest import mock

try:
    import libvirt
    import libvirt_qemu

    from nova_dedup_migrate.hypervisor import libvirt_channel
except ImportError as error:
    import unittest
    raise unittest.SkipTest(
        'libvirt cannot be tested: %s' % error) from error

from nova_dedup_migrate.hypervisor import channel
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base

XML = """<domain><devices>
  <channel type='unix'><target type='virtio' name='a' state='connected'/>
  </channel>
  <channel type='unix'><target type='virtio' name='b' state='disconnected'/>
  </channel>
  <channel type='unix'><target type='virtio' name='c'/></channel>
  <channel type='unix'><target type='guestfwd' name='d' state='connected'/>
  </channel>
</devices></domain>"""


def libvirt_error(code, message='some reason'):
    error = libvirt.libvirtError(message)
    error.err = (code, 0, message, 2, None, None, None, 0, 0)
    return error


class StateTest(base.TestCase):

    def test_states(self):
        self.assertEqual(
            [channel.OPEN, channel.CLOSED, channel.CLOSED, channel.MISSING,
             channel.MISSING],
            [libvirt_channel.state(XML, name) for name in 'abcde'])


class ExecuteTest(base.TestCase):

    def execute(self, timeout=60, **given):
        with mock.patch.object(libvirt_qemu, 'qemuAgentCommand',
                               autospec=True, **given) as self.called:
            return libvirt_channel.execute('domain', 'guest-info', {'a': 1},
                                           timeout)

    def test_answer(self):
        self.assertEqual(7, self.execute(return_value='{"return": 7}'))
        self.called.assert_called_once_with(
            'domain', '{"execute": "guest-info", "arguments": {"a": 1}}',
            30, 0)

    def test_whole_seconds(self):
        self.execute(0.1, return_value='{"return": 7}')
        self.assertEqual(1, self.called.call_args.args[2])

    def test_errors(self):
        for code, expected in (
                (libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
                 errors.AgentUnavailable),
                (libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED,
                 errors.AgentUnavailable),
                (libvirt.VIR_ERR_INTERNAL_ERROR, errors.AgentError)):
            error = self.assertRaises(expected, self.execute,
                                      side_effect=libvirt_error(code))
            self.assertIn('some reason', str(error))

    def test_malformed(self):
        self.assertRaises(errors.MalformedReply, self.execute,
                          return_value='[]')

    def test_libvirt_hangs(self):
        go_on = threading.Event()
        self.addCleanup(go_on.set)
        self.assertRaises(errors.AgentTimeout, self.execute, 0.1,
                          side_effect=lambda *args: go_on.wait(60))


class Stream:
    """As libvirt.virStream with VIR_STREAM_NONBLOCK."""

    def __init__(self, script):
        self.script = list(script)
        self.sent = b''
        self.events = None
        self.aborted = 0

    def eventAddCallback(self, events, callback, opaque):
        self.callback = callback

    def eventUpdateCallback(self, events):
        self.events = events
        if events and self.script:
            threading.Thread(target=self.callback,
                             args=(self, events, None)).start()

    def eventRemoveCallback(self):
        self.callback = None

    def recv(self, size):
        if not self.script:
            return -2
        now = self.script.pop(0)
        if isinstance(now, Exception):
            raise now
        return now

    def send(self, data):
        now = self.recv(None)
        if now == -2:
            return -2
        self.sent += data[:now]
        return now

    def abort(self):
        self.aborted += 1
        raise libvirt_error(libvirt.VIR_ERR_INTERNAL_ERROR)


class LibvirtChannelTest(base.TestCase):

    def opened(self, *script):
        self.stream = Stream(script)
        domain = mock.create_autospec(libvirt.virDomain, instance=True)
        domain.connect.return_value.newStream.return_value = self.stream
        made = libvirt_channel.LibvirtChannel(domain, 'port')
        domain.openChannel.assert_called_once_with('port', self.stream, 0)
        self.addCleanup(made.close)
        return made

    @staticmethod
    def deadline(seconds=60):
        return time.monotonic() + seconds

    def test_receive(self):
        made = self.opened(b'one', -2, b'two', b'')
        self.assertEqual([b'one', b'two', b''], [
            made.receive(self.deadline()) for _ in range(3)])
        # the event loop is not to call without end
        self.eventually(lambda: self.stream.events == 0, 'rest')

    def test_nothing_comes(self):
        self.assertRaises(errors.WaitTimeout, self.opened().receive,
                          self.deadline(0.1))

    def test_send(self):
        made = self.opened(2, -2, 3)
        made.send(b'hello', self.deadline())
        self.assertEqual(b'hello', self.stream.sent)
        self.assertRaises(errors.WaitTimeout, made.send, b'x',
                          self.deadline(0.1))

    def test_broken(self):
        made = self.opened(libvirt_error(libvirt.VIR_ERR_RPC))
        self.assertRaises(errors.ChannelUnavailable, made.receive,
                          self.deadline())

    def test_close_twice(self):
        made = self.opened()
        made.close()
        made.close()
        self.assertEqual(1, self.stream.aborted)

    def test_none(self):
        domain = mock.create_autospec(libvirt.virDomain, instance=True)
        domain.openChannel.side_effect = libvirt_error(
            libvirt.VIR_ERR_INTERNAL_ERROR)
        self.assertRaises(errors.ChannelUnavailable,
                          libvirt_channel.LibvirtChannel, domain, 'port')
