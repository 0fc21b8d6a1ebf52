# SPDX-License-Identifier: Apache-2.0
"""Which guests are sampled, when, and which get no command at all."""

import threading
import unittest
from unittest import mock

try:
    import libvirt
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

from nova_dedup_migrate import deadline
from nova_dedup_migrate.agent import guest_samples
from nova_dedup_migrate.hypervisor import digests
from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt as libvirt_guest
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.hypervisor import statistics
from nova_dedup_migrate.hypervisor import survey
from nova_dedup_migrate.tests import base

UUID = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
OTHER = '0b1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
FOUND = survey.Survey(dirty_rate=5.0)


def libvirt_error(code):
    error = libvirt.libvirtError('test')
    error.err = (code, libvirt.VIR_FROM_QEMU, 'test', 2, '', '', '', -1, -1)
    return error


class GuestSamplesTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.host = mock.create_autospec(libvirt_host.LibvirtHost,
                                         instance=True)
        self.host.connection = mock.create_autospec(libvirt.virConnect,
                                                    instance=True)
        self.host.domain.side_effect = self._domain
        self.domains, self.guests = {}, {}
        self.busy = False
        self.survey = self.patch(survey, 'survey', return_value=FOUND)
        self.patch(libvirt_guest.LibvirtGuest, 'from_domain',
                   side_effect=lambda domain, host: self.guests[
                       domain.UUIDString()])
        self.samples = guest_samples.GuestSamples(self.host,
                                                  lambda: self.busy)

    def patch(self, *args, **kwargs):
        patcher = mock.patch.object(*args, autospec=True, **kwargs)
        self.addCleanup(patcher.stop)
        return patcher.start()

    def _domain(self, uuid, name):
        if uuid not in self.domains:
            raise errors.GuestNotRunning(name=name)
        return self.domains[uuid]

    def add(self, uuid=UUID, tracking=True, tainted=True, number=7):
        """Add a guest; tracking None: its QEMU is a stock one."""
        domain = mock.create_autospec(libvirt.virDomain, instance=True)
        domain.UUIDString.return_value = uuid
        domain.ID.return_value = number
        domain.isActive.return_value = 1
        domain.state.return_value = [libvirt.VIR_DOMAIN_RUNNING, 1]
        domain.messages.return_value = (
            ['tainted: custom monitor'] if tainted else [])
        guest = mock.create_autospec(libvirt_guest.LibvirtGuest,
                                     instance=True)
        if tracking is None:
            guest.dedup_statistics.side_effect = errors.DedupNotSupported(
                name=uuid)
        else:
            guest.dedup_statistics.return_value = (
                statistics.DedupStatistics(tracking=tracking))
        self.domains[uuid], self.guests[uuid] = domain, guest
        self.host.connection.listAllDomains.return_value = list(
            self.domains.values())
        return guest

    def sweep(self, times=1):
        for _ in range(times):
            self.samples.sweep(lambda: False)

    def sampled(self):
        return [call.args[0] for call in self.survey.call_args_list]

    # Requests

    def test_measured_now(self):
        guest = self.add()
        found, reason = self.samples.sample(UUID, 60.0, 30.0)
        self.assertEqual((FOUND, ''), (found.found, reason))
        self.survey.assert_called_once_with(guest, 1, True)

    def test_recent_sample(self):
        self.add()
        first, _ = self.samples.sample(UUID, 60.0, 30.0)
        self.assertIs(first, self.samples.sample(UUID, 60.0, 30.0)[0])
        self.assertIsNot(first, self.samples.sample(UUID, -1.0, 30.0)[0])
        self.assertEqual(2, self.survey.call_count)

    def test_sample_of_the_background(self):
        self.add()
        self.sweep()
        self.samples.sample(UUID, 60.0, 30.0)
        self.assertEqual(1, self.survey.call_count)

    def test_sample_of_an_earlier_qemu(self):
        """A guest that was started again has other figures."""
        self.add()
        self.samples.sample(UUID, 60.0, 30.0)
        self.domains[UUID].ID.return_value = 8
        self.samples.sample(UUID, 60.0, 30.0)
        self.assertEqual(2, self.survey.call_count)

    def test_guest_that_does_not_record(self):
        """It may list its page cache all the same."""
        self.add(tracking=False)
        self.assertEqual(FOUND,
                         self.samples.sample(UUID, 60.0, 30.0)[0].found)

    def test_stock(self):
        guest = self.add(tracking=None)
        found, reason = self.samples.sample(UUID, 60.0, 30.0)
        self.assertIsNone(found)
        self.assertIn('no dedup support', reason)
        guest.dedup_statistics.assert_called_once_with()
        self.survey.assert_not_called()

    def test_guest_that_is_not_here(self):
        found, reason = self.samples.sample(UUID, 60.0, 30.0)
        self.assertEqual((None, 'guest %s has no running process' % UUID),
                         (found, reason))

    def test_guest_that_arrives_or_has_left(self):
        self.add()
        for state, job in (
                ([libvirt.VIR_DOMAIN_PAUSED,
                  libvirt.VIR_DOMAIN_PAUSED_MIGRATION], libvirt_error(
                      libvirt.VIR_ERR_OPERATION_UNSUPPORTED)),
                ([libvirt.VIR_DOMAIN_PAUSED,
                  libvirt.VIR_DOMAIN_PAUSED_POSTCOPY], None)):
            self.domains[UUID].state.return_value = state
            self.domains[UUID].jobStats.side_effect = job
            self.assertIsNone(self.samples.sample(UUID, 60.0, 30.0)[0])
        self.survey.assert_not_called()

    def test_paused(self):
        guest = self.add()
        self.domains[UUID].state.return_value = [
            libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]
        self.samples.sample(UUID, 60.0, 30.0)
        self.survey.assert_called_once_with(guest, 1, False)

    def test_qemu_hangs(self):
        done = threading.Event()
        self.addCleanup(done.set)
        self.add()
        self.survey.side_effect = lambda *args: done.wait(30)
        with mock.patch.object(guest_samples, '_QEMU',
                               deadline.Runner('QEMU', 8)):
            found, reason = self.samples.sample(UUID, 60.0, 0.01)
        self.assertIsNone(found)
        self.assertIn('QEMU did not answer', reason)

    def test_one_measurement_for_all_who_ask(self):
        begun, done = threading.Event(), threading.Event()
        self.addCleanup(done.set)
        self.add()

        def measure(*args):
            begun.set()
            done.wait(30)
            return FOUND

        self.survey.side_effect = measure
        found = []
        threads = [threading.Thread(target=lambda: found.append(
            self.samples.sample(UUID, 60.0, 30.0)[0])) for _ in range(3)]
        for thread in threads:
            thread.start()
        begun.wait(30)
        done.set()
        for thread in threads:
            thread.join()
        self.assertEqual(1, self.survey.call_count)
        self.assertIs(found[0], found[2])

    # Sweeps

    def test_sweep(self):
        first, second = self.add(), self.add(OTHER)
        self.sweep()
        self.assertEqual([first, second], self.sampled())
        self.sweep()
        self.assertEqual(4, self.survey.call_count)

    def test_off_costs_nothing(self):
        """A guest that never got a command gets none."""
        guest = self.add(tainted=False)
        self.sweep(3)
        self.assertEqual([], guest.method_calls)

    def test_not_recorded(self):
        guest = self.add(tracking=False)
        self.sweep(5)
        self.assertEqual([mock.call.dedup_statistics()] * 2,
                         guest.method_calls)
        self.survey.assert_not_called()

    def test_stock_gets_one_command(self):
        guest = self.add(tracking=None)
        self.sweep(5)
        self.assertEqual([mock.call.dedup_statistics()], guest.method_calls)

    def test_recorded_from_now_on(self):
        """nova-compute may switch it on just after the guest has begun."""
        guest = self.add(tracking=False)
        self.sweep()
        guest.dedup_statistics.return_value = (
            statistics.DedupStatistics(tracking=True))
        self.sweep()
        self.assertEqual([guest], self.sampled())

    def test_recorded_later(self):
        guest = self.add(tracking=False)
        self.sweep(5)
        guest.dedup_statistics.return_value = (
            statistics.DedupStatistics(tracking=True))
        self.sweep()
        self.survey.assert_not_called()
        self.samples.sample(UUID, 60.0, 30.0)
        self.sweep()
        self.assertEqual([guest] * 2, self.sampled())

    def test_recording_is_switched_off(self):
        guest = self.add()
        self.sweep()
        guest.dedup_statistics.return_value = statistics.DedupStatistics()
        self.sweep(5)
        self.assertEqual(1, self.survey.call_count)

    def test_never_beside_a_migration(self):
        self.add()
        self.busy = True
        self.sweep()
        self.survey.assert_not_called()
        self.busy = False
        self.add(OTHER)
        self.survey.side_effect = lambda *args: setattr(
            self, 'busy', True) or FOUND
        self.sweep()
        self.assertEqual(1, self.survey.call_count)

    def test_guest_that_arrives_gets_no_command(self):
        guest = self.add()
        self.domains[UUID].state.return_value = [
            libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_MIGRATION]
        self.domains[UUID].jobStats.side_effect = libvirt_error(
            libvirt.VIR_ERR_OPERATION_UNSUPPORTED)
        self.sweep()
        self.assertEqual([], guest.method_calls)

    def test_guest_that_ends_meanwhile(self):
        self.add()
        second = self.add(OTHER)
        self.domains[UUID].messages.side_effect = libvirt_error(
            libvirt.VIR_ERR_NO_DOMAIN)
        self.sweep()
        self.assertEqual([second], self.sampled())

    def test_stop(self):
        self.add()
        self.samples.sweep(lambda: True)
        self.survey.assert_not_called()

    def test_libvirt_is_away(self):
        self.host.connection.listAllDomains.side_effect = libvirt_error(
            libvirt.VIR_ERR_NO_CONNECT)
        self.assertRaises(errors.HypervisorUnavailable, self.sweep)

    # Working sets

    def measure(self, wait=lambda seconds: None):
        """Measure with digests of 100 pages, of which all change."""
        looks = iter(range(100))
        self.guests[UUID].page_digests.side_effect = lambda seed: (
            digests.PageDigests(100, 100 * next(looks).to_bytes(4, 'big')))
        self.samples.measure(UUID, wait)
        return [(round(one.seconds), one.bytes)
                for one in self.samples.windows(UUID)]

    def test_working_set(self):
        guest, waited = self.add(), []
        with mock.patch.object(
                digests.time, 'monotonic',
                side_effect=lambda: 1000.0 + sum(waited)):
            self.assertEqual(
                [(1, 409600.0), (10, 409600.0), (60, 409600.0)],
                self.measure(waited.append))
        self.assertEqual([1.0, 9.0, 50.0], waited)
        # The same pages each time: to look at some allocates them.
        self.assertEqual(1, len({call.args for call in
                                 guest.page_digests.call_args_list}))

    def test_sample_while_a_working_set_is_measured(self):
        guest, found = self.add(), []

        def wait(seconds):
            found.append(self.samples.sample(UUID, -1.0, 30.0)[0].found)
            return len(found) == 2

        self.measure(wait)
        self.assertEqual([FOUND, FOUND], found)
        self.survey.assert_called_with(guest, 1, True)
        guest.dirty_rate.assert_not_called()

    def test_no_working_set_beside_a_migration(self):
        guest = self.add()
        self.busy = True
        self.assertEqual([], self.measure())
        guest.page_digests.assert_not_called()
        self.busy = False
        self.assertEqual([], self.measure(
            lambda seconds: setattr(self, 'busy', True)))
        self.assertEqual(1, guest.page_digests.call_count)

    def test_no_working_set_of_a_guest_that_is_paused(self):
        guest = self.add()
        self.domains[UUID].state.return_value = [
            libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER]
        self.assertEqual([], self.measure())
        guest.page_digests.assert_not_called()

    def test_working_set_of_an_earlier_qemu(self):
        self.add()
        self.measure(lambda seconds: seconds > 1)
        self.assertEqual(1, len(self.samples.windows(UUID)))
        self.domains[UUID].ID.return_value = 8
        self.sweep()
        self.assertEqual((), self.samples.windows(UUID))

    def test_working_set_of_another_qemu(self):
        self.add().page_digests.side_effect = errors.DedupNotSupported(
            name=UUID)
        self.assertRaises(errors.DedupNotSupported, self.samples.measure,
                          UUID, lambda seconds: None)
        self.assertEqual((), self.samples.windows(UUID))

    def test_who_records(self):
        self.add()
        other = self.add(OTHER)
        self.assertEqual([], self.samples.recording())
        self.sweep()
        self.assertEqual([UUID, OTHER], self.samples.recording())
        other.dedup_statistics.return_value = statistics.DedupStatistics()
        self.sweep()
        self.assertEqual([UUID], self.samples.recording())

    def test_guests_that_are_gone_are_forgotten(self):
        self.add()
        self.sweep()
        self.host.connection.listAllDomains.return_value = []
        self.sweep()
        self.assertEqual({}, self.samples._guests)
