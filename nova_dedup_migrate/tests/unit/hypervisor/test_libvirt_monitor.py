# SPDX-License-Identifier: Apache-2.0
import json
import threading
import unittest
from unittest import mock

try:
    import libvirt
    import libvirt_qemu
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt_monitor
from nova_dedup_migrate.tests import base


def libvirt_error(code, domain=libvirt.VIR_FROM_QEMU):
    error = libvirt.libvirtError('what failed')
    error.err = (code, domain, 'what libvirt said', 0, '', '', '', 0, 0)
    return error


class LibvirtMonitorTest(base.TestCase):

    def setUp(self):
        super().setUp()
        self.domain = mock.create_autospec(libvirt.virDomain, instance=True)
        self.domain.state.return_value = [libvirt.VIR_DOMAIN_RUNNING, 1]
        self.domain.isActive.return_value = 1
        patcher = mock.patch.object(libvirt_qemu, 'qemuMonitorCommand',
                                    autospec=True)
        self.command = patcher.start()
        self.addCleanup(patcher.stop)

    def execute(self, reply=None, timeout=10, **arguments):
        if isinstance(reply, Exception):
            self.command.side_effect = reply
        else:
            self.command.return_value = (
                reply if isinstance(reply, str) else json.dumps(reply))
        return libvirt_monitor.execute(self.domain, 'one', 'query-it',
                                       arguments, timeout)

    def test_arguments_and_result(self):
        self.assertEqual([1], self.execute({'return': [1], 'id': 'x'}, a=2))
        (domain, text, flags), _ = self.command.call_args
        self.assertEqual({'execute': 'query-it', 'arguments': {'a': 2}},
                         json.loads(text))

    def test_error_of_qemu(self):
        error = self.assertRaises(
            errors.QmpError, self.execute,
            {'error': {'class': 'GenericError', 'desc': 'not now'}})
        self.assertEqual(
            ('query-it', 'GenericError', 'not now'),
            (error.command, error.error_class, error.description))
        self.assertRaises(
            errors.CommandNotFound, self.execute,
            {'error': {'class': 'CommandNotFound', 'desc': ''}})

    def test_malformed_replies(self):
        for reply in ('', '{', '[]', '{}', '{"error": 1}', '[' * 100000,
                      ' ' * (libvirt_monitor.MAX_REPLY + 1)):
            error = self.assertRaises(errors.MalformedReply, self.execute,
                                      reply)
            self.assertEqual('query-it', error.field)
            self.assertLess(len(str(error)), 300)

    def test_timeout(self):
        late = threading.Event()
        self.addCleanup(late.set)
        self.command.side_effect = lambda *args: late.wait(60)
        error = self.assertRaises(errors.QmpTimeout, self.execute,
                                  {'return': {}}, timeout=0.01)
        self.assertEqual(('query-it', 0.01), (error.command, error.seconds))

    def test_errors_of_libvirt(self):
        for expected, code, active in (
                (errors.GuestNotRunning, libvirt.VIR_ERR_NO_DOMAIN, 0),
                (errors.GuestNotRunning,
                 libvirt.VIR_ERR_OPERATION_INVALID, 0),
                (errors.QmpDisconnected, libvirt.VIR_ERR_INTERNAL_ERROR, 0),
                (errors.HypervisorRefused,
                 libvirt.VIR_ERR_INTERNAL_ERROR, 1),
                (errors.QmpTimeout, libvirt.VIR_ERR_OPERATION_TIMEOUT, 1),
                (errors.HypervisorUnavailable,
                 libvirt.VIR_ERR_INVALID_CONN, 0)):
            self.domain.isActive.return_value = active
            self.assertRaises(expected, self.execute, libvirt_error(code))

    def test_lost_connection(self):
        lost = libvirt_error(libvirt.VIR_ERR_SYSTEM_ERROR,
                             libvirt.VIR_FROM_RPC)
        self.domain.isActive.side_effect = lost
        self.assertRaises(errors.HypervisorUnavailable, self.execute, lost)

    def test_refusal_says_what_libvirt_said(self):
        error = self.assertRaises(
            errors.HypervisorRefused, self.execute,
            libvirt_error(libvirt.VIR_ERR_OPERATION_DENIED))
        self.assertEqual('query-it of guest one: what libvirt said',
                         str(error))
        self.assertEqual(libvirt.VIR_ERR_OPERATION_DENIED, error.code)

    def test_nothing_is_asked_of_a_guest_that_arrives(self):
        self.domain.state.return_value = [
            libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
        self.domain.jobStats.side_effect = libvirt_error(
            libvirt.VIR_ERR_OPERATION_UNSUPPORTED)
        self.assertRaises(errors.InvalidMigrationState, self.execute,
                          {'return': {}})
        self.command.assert_not_called()

    def test_source_at_its_switchover_is_asked(self):
        self.domain.state.return_value = [
            libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
        self.assertEqual({}, self.execute({'return': {}}))

    def test_descriptor(self):
        answer = mock.Mock()
        with mock.patch.object(
                libvirt_qemu, 'qemuMonitorCommandWithFiles', autospec=True,
                return_value=('{"return": {}}', [answer])) as call:
            libvirt_monitor.execute(self.domain, 'one', 'getfd',
                                    {'fdname': 'x'}, 10, fd=7)
        self.assertEqual([7], call.call_args.args[2])
        answer.close.assert_called_once_with()


def reasons(state):
    """Return the values of all reasons for a state, by its name."""
    prefix = 'VIR_DOMAIN_%s_' % state
    return sorted({getattr(libvirt, name) for name in vars(libvirt)
                   if name.startswith(prefix)
                   and name != 'VIR_DOMAIN_%s_LAST' % state})


class GuestStateTest(base.TestCase):
    """Every (state, reason), with and without an incoming migration."""

    STATES = ('NOSTATE', 'RUNNING', 'BLOCKED', 'PAUSED', 'SHUTDOWN',
              'CRASHED', 'PMSUSPENDED')

    def setUp(self):
        super().setUp()
        self.domain = mock.create_autospec(libvirt.virDomain, instance=True)
        self.domain.isActive.return_value = 1

    def state(self, name, reason, incoming):
        self.domain.state.return_value = [
            getattr(libvirt, 'VIR_DOMAIN_' + name), reason]
        self.domain.jobStats.side_effect = libvirt_error(
            libvirt.VIR_ERR_OPERATION_UNSUPPORTED) if incoming else None
        return libvirt_monitor.guest_state(self.domain)

    def test_all(self):
        postcopy = (libvirt.VIR_DOMAIN_PAUSED_POSTCOPY,
                    libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED)
        seen = 0
        for name in self.STATES:
            for reason in reasons(name):
                handed_over = name == 'PAUSED' and reason in postcopy
                source, destination = (
                    ('here', 'here') if name == 'RUNNING'
                    else ('none', 'here') if handed_over
                    else ('here', 'arriving'))
                with self.subTest(state=name, reason=reason):
                    self.assertEqual(source, self.state(name, reason, False))
                    self.assertEqual(destination,
                                     self.state(name, reason, True))
                seen += 1
        self.assertGreater(seen, 35)

    def test_named(self):
        """The rows that decide whether anything is deleted."""
        for name, reason, incoming, expected in (
                ('RUNNING', libvirt.VIR_DOMAIN_RUNNING_POSTCOPY, True,
                 'here'),
                ('RUNNING', libvirt.VIR_DOMAIN_RUNNING_POSTCOPY_FAILED, True,
                 'here'),
                ('PAUSED', libvirt.VIR_DOMAIN_PAUSED_POSTCOPY, False,
                 'none'),
                ('PAUSED', libvirt.VIR_DOMAIN_PAUSED_POSTCOPY_FAILED, False,
                 'none'),
                ('PAUSED', libvirt.VIR_DOMAIN_PAUSED_MIGRATION, False,
                 'here'),
                ('PAUSED', libvirt.VIR_DOMAIN_PAUSED_MIGRATION, True,
                 'arriving'),
                ('PAUSED', libvirt.VIR_DOMAIN_PAUSED_STARTING_UP, True,
                 'arriving')):
            self.assertEqual(expected, self.state(name, reason, incoming))

    def test_not_active(self):
        self.domain.isActive.return_value = 0
        for name, reason in (('SHUTOFF', 1), ('CRASHED', 0)):
            self.assertEqual('none', self.state(name, reason, False))

    def test_it_ends_between_two_calls(self):
        self.assertEqual('none', self.state(
            'SHUTOFF', libvirt.VIR_DOMAIN_SHUTOFF_CRASHED, False))

    def test_error_of_the_job(self):
        self.domain.state.return_value = [libvirt.VIR_DOMAIN_PAUSED, 1]
        self.domain.jobStats.side_effect = libvirt_error(
            libvirt.VIR_ERR_OPERATION_INVALID)
        self.assertRaises(libvirt.libvirtError, libvirt_monitor.guest_state,
                          self.domain)

    def test_words(self):
        for state, expected in (
                ([3, 13], 'paused (postcopy failed)'),
                ([1, 10], 'running (postcopy)'),
                ([5, 3], 'shutoff (crashed)'),
                ([4, 1], 'shutdown (user)'), ([4, 0], 'shutdown (unknown)'),
                ([1, 99], 'running (99)'), ([99, 1], 'state 99 (1)')):
            self.domain.state.return_value = state
            self.assertEqual(expected,
                             libvirt_monitor.state_in_words(self.domain))
