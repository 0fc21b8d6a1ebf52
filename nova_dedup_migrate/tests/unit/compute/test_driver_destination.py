# SPDX-License-Identifier: Apache-2.0
"""What the driver does as the destination's."""

from concurrent import futures
import threading
from unittest import mock

import libvirt
from nova import exception
from nova import objects
from nova.virt.libvirt import guest as libvirt_guest
import oslo_messaging

from nova_dedup_migrate.compute import destination
from nova_dedup_migrate.tests import base
from nova_dedup_migrate.tests.unit.compute import fakes
from nova_dedup_migrate.tests.unit.compute import test_driver


class ArrivedTest(test_driver.DriverCase):

    def test_libvirt_is_waited_for(self):
        theirs = self.nova('post_live_migration_at_destination',
                           return_value='done')
        self.driver.dedup.with_libvirt.side_effect = (
            lambda instance, method, *args: method(*args))
        self.assertEqual(
            'done', self.driver.post_live_migration_at_destination(
                'context', self.instance, 'network', True, 'devices'))
        theirs.assert_called_once_with(self.driver, 'context', self.instance,
                                       'network', True, 'devices')

    def test_off(self):
        theirs = self.nova('post_live_migration_at_destination')
        self.driver.dedup.enabled = False
        self.driver.post_live_migration_at_destination(
            'context', self.instance, 'network', True, 'devices')
        theirs.assert_called_once()
        self.driver.dedup.with_libvirt.assert_not_called()


class PreparingTest(test_driver.DriverCase):

    def setUp(self):
        super().setUp()
        self.fetching, self.fetched = threading.Event(), threading.Event()
        self.events = []
        self.prepare = self.nova('pre_live_migration',
                                 side_effect=self._prepare)
        self.roll_back = self.nova(
            'rollback_live_migration_at_destination',
            side_effect=lambda *args: self.events.append('rolled back'))
        self.driver._host.get_guest.side_effect = (
            exception.InstanceNotFound(instance_id=fakes.UUID))
        self.driver.dedup.with_libvirt.side_effect = (
            lambda instance, method: method())

    def _prepare(self, driver, context, instance, *args, **kwargs):
        self.fetching.set()
        self.fetched.wait(20)
        self.events.append('prepared')
        return 'data'

    def pre(self):
        return self.driver.pre_live_migration(
            'context', self.instance, 'devices', 'network', 'disks',
            migrate_data='data')

    def test_cancelled_before(self):
        self.driver.dedup.require_wanted.side_effect = (
            exception.MigrationError(reason='cancelled'))
        self.assertRaises(exception.MigrationError, self.pre)
        self.prepare.assert_not_called()

    def test_cancelled_meanwhile(self):
        """Nova's manager then takes back what it has attached."""
        self.fetched.set()
        self.driver.dedup.require_wanted.side_effect = [
            None, exception.MigrationError(reason='cancelled')]
        self.assertRaises(exception.MigrationError, self.pre)
        self.prepare.assert_called_once()

    def test_novas_own(self):
        self.fetched.set()
        self.assertEqual('data', self.pre())
        self.prepare.assert_called_once_with(
            self.driver, 'context', self.instance, 'devices', 'network',
            'disks', migrate_data='data')

    def test_rolled_back_while_an_image_is_fetched(self):
        with futures.ThreadPoolExecutor() as pool:
            prepared = pool.submit(self.pre)
            self.assertTrue(self.fetching.wait(20))
            rolled_back = pool.submit(
                self.driver.rollback_live_migration_at_destination,
                'context', self.instance, 'network', 'devices')
            futures.wait([rolled_back], 0.2)
            self.assertEqual([], self.events)
            self.fetched.set()
            rolled_back.result()
            prepared.result()
        self.assertEqual(['prepared', 'rolled back'], self.events)

    def test_off(self):
        self.driver.dedup.enabled = False
        self.fetched.set()
        self.pre()
        self.driver.rollback_live_migration_at_destination(
            'context', self.instance, 'network', 'devices')
        self.driver.dedup.require_wanted.assert_not_called()
        self.driver._host.get_guest.assert_not_called()

    def test_rolling_back_waits_for_libvirt(self):
        """The source sends the request only once."""
        self.driver.dedup.with_libvirt.side_effect = None
        self.driver.rollback_live_migration_at_destination(
            'context', self.instance, 'network', 'devices')
        self.driver._host.get_guest.assert_not_called()
        instance, roll_back = self.driver.dedup.with_libvirt.call_args.args
        self.assertIs(self.instance, instance)
        roll_back()
        self.roll_back.assert_called_once_with(
            self.driver, 'context', self.instance, 'network', 'devices')

    def arrived(self, *state):
        guest = mock.create_autospec(libvirt_guest.Guest, instance=True)
        guest._domain = mock.Mock(state=mock.Mock(return_value=list(state)))
        self.driver._host.get_guest.side_effect = [guest]

    def test_the_guest_that_would_be_destroyed_runs(self):
        for reason in (libvirt.VIR_DOMAIN_RUNNING_MIGRATED,
                       libvirt.VIR_DOMAIN_RUNNING_POSTCOPY):
            self.arrived(libvirt.VIR_DOMAIN_RUNNING, reason)
            self.assertRaises(
                exception.MigrationError,
                self.driver.rollback_live_migration_at_destination,
                'context', self.instance, 'network', 'devices')
        self.roll_back.assert_not_called()

    def test_a_guest_that_has_not_arrived(self):
        for count, state in enumerate((
                (libvirt.VIR_DOMAIN_PAUSED,
                 libvirt.VIR_DOMAIN_PAUSED_MIGRATION),
                (libvirt.VIR_DOMAIN_RUNNING,
                 libvirt.VIR_DOMAIN_RUNNING_UNKNOWN))):
            self.arrived(*state)
            self.driver.rollback_live_migration_at_destination(
                'context', self.instance, 'network', 'devices')
            self.assertEqual(count + 1, self.roll_back.call_count)


class WantedTest(base.TestCase):

    def setUp(self):
        super().setUp()
        objects.register_all()
        patch = mock.patch.object(objects.MigrationList, 'get_by_filters',
                                  autospec=True)
        self.found = patch.start()
        self.addCleanup(patch.stop)

    def require(self, *destinations):
        self.found.side_effect = None
        self.found.return_value = [objects.Migration(dest_compute=one)
                                   for one in destinations]
        destination.require_wanted('c', objects.Instance(uuid=fakes.UUID),
                                   'there')

    def test_wanted(self):
        self.require('here', 'there')

    def test_not_wanted(self):
        for destinations in ((), ('elsewhere',)):
            error = self.assertRaises(exception.MigrationError, self.require,
                                      *destinations)
            self.assertIn('cancelled', str(error))

    def test_what_cannot_be_read_counts_as_wanted(self):
        self.found.side_effect = oslo_messaging.MessagingTimeout('x')
        destination.require_wanted('c', objects.Instance(uuid=fakes.UUID),
                                   'there')
