# SPDX-License-Identifier: Apache-2.0
"""Start, stop, monitor."""

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests.functional.hypervisor.suites import suite
from testkit import memory


class LifecycleSuite(suite.Suite):
    """Start, stop, monitor."""

    def test_start_and_destroy(self):
        guest = self.started()
        self.assertEqual('running', guest.run_state())
        guest.destroy()
        self.assertFalse(guest.is_alive())
        guest.destroy()

    def test_start_again_after_destroy(self):
        guest = self.started()
        guest.destroy()
        guest.start()
        self.assert_works(guest)

    def test_start_paused(self):
        guest = self.make('paused')
        guest.start(paused=True)
        self.assertIn(guest.run_state(), ('prelaunch', 'paused'))
        self.assertEqual(b'', self.console(guest))
        guest.cont()
        self.assert_works(guest)

    def test_pause_and_cont_with_their_events(self):
        guest = self.started()
        mark = guest.events.mark()
        guest.pause()
        guest.events.wait('STOP', mark, 10)
        self.assertEqual('paused', guest.run_state())
        written = self.console(guest)
        guest.cont()
        guest.events.wait('RESUME', mark, 10)
        self.assert_works(guest)
        self.assertTrue(self.console(guest).startswith(written))
        self.assertEqual(['STOP', 'RESUME'],
                         [e.name for e in guest.events.since(mark)])

    def test_subscription(self):
        guest = self.started()
        names = []
        end = guest.events.subscribe(lambda event: names.append(event.name))
        guest.pause()
        guest.cont()
        self.eventually(lambda: 'RESUME' in names, 'second event')
        end()
        guest.pause()
        guest.events.wait('STOP', guest.events.mark() - 1, 10)
        self.assertEqual(['STOP', 'RESUME'], names)

    def test_qmp_error_has_fields(self):
        guest = self.make('guest')
        guest.start(paused=True)
        error = self.assertRaises(errors.QmpError, guest.qmp, 'qom-get',
                                  path='/nowhere', property='type')
        self.assertEqual('qom-get', error.command)
        self.assertEqual('DeviceNotFound', error.error_class)
        self.assertIn('/nowhere', error.description)

    def test_unknown_command(self):
        guest = self.make('guest')
        guest.start(paused=True)
        error = self.assertRaises(errors.CommandNotFound, guest.qmp,
                                  'x-no-such-command')
        self.assertEqual('x-no-such-command', error.command)

    def test_command_to_a_guest_that_is_gone(self):
        guest = self.make('guest')
        guest.start(paused=True)
        guest.destroy()
        self.assertRaises(errors.GuestNotRunning, guest.qmp, 'stop')

    def test_memory_of_a_paused_guest_does_not_change(self):
        guest = self.started()
        guest.pause()
        first = guest.save_memory(self.dir / 'first')
        second = guest.save_memory(self.dir / 'second')
        self.assertTrue(memory.compare(first, second).identical)
        guest.cont()
        self.assert_works(guest)
        guest.pause()
        third = guest.save_memory(self.dir / 'third')
        changed = memory.compare(first, third, limit=10000)
        # the pages of the window and no other
        window = range(self.boot.start,
                       self.boot.start + 4096 * self.boot.pages, 4096)
        self.assertEqual(set(), set(changed.addresses) - set(window))
        self.assertGreater(changed.differing, 0)
