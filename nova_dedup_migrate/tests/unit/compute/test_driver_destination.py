# SPDX-License-Identifier: Apache-2.0
"""What the driver does as the destination's."""

from concurrent import futures
import functools
import threading
import time

from nova import exception
from nova import objects

from nova_dedup_migrate.compute import service
from nova_dedup_migrate.tests.unit.compute import test_driver


class ArrivedTest(test_driver.DriverCase):

    def test_libvirt_is_waited_for(self):
        theirs = self.nova('post_live_migration_at_destination',
                           return_value='done')
        wait = self.driver.dedup.await_libvirt
        wait.side_effect = lambda instance: theirs.assert_not_called()
        self.assertEqual(
            'done', self.driver.post_live_migration_at_destination(
                'context', self.instance, 'network', True, 'devices'))
        wait.assert_called_once_with(self.instance)
        theirs.assert_called_once_with(self.driver, 'context', self.instance,
                                       'network', True, 'devices')


class PreparingTest(test_driver.DriverCase):

    def setUp(self):
        super().setUp()
        self.driver.dedup.preparing = functools.partial(
            service.DedupMigrate.preparing, None)
        self.driver.dedup.is_wanted.return_value = True
        self.fetched = threading.Event()
        self.fetching = threading.Event()
        self.asked = threading.Event()
        self.check = self.nova('check_can_live_migrate_destination',
                               side_effect=self._check)
        self.prepare = self.nova('pre_live_migration',
                                 side_effect=self._prepare)

    def _check(self, driver, context, instance, *args, **kwargs):
        return 'after' if self.fetched.is_set() else 'meanwhile'

    def _prepare(self, driver, context, instance, *args, **kwargs):
        self.fetching.set()
        # until the other instance was asked about, and a little longer
        self.asked.wait(20)
        time.sleep(0.2)
        self.fetched.set()
        return 'data'

    def ask(self, instance):
        return self.driver.check_can_live_migrate_destination(
            'context', instance, 'from', 'to', block_migration=True)

    def test_it_is_not_wanted_any_more(self):
        self.driver.dedup.is_wanted.return_value = False
        self.assertRaises(exception.MigrationError,
                          self.driver.pre_live_migration, 'context',
                          self.instance, 'info')
        self.driver.dedup.is_wanted.assert_called_once_with('context',
                                                            self.instance)
        self.prepare.assert_not_called()

    def test_novas_own(self):
        self.assertEqual('meanwhile', self.ask(self.instance))
        self.check.assert_called_once_with(
            self.driver, 'context', self.instance, 'from', 'to',
            block_migration=True)
        self.asked.set()
        self.assertEqual('data', self.driver.pre_live_migration(
            'context', self.instance, 'devices', 'network', 'disks',
            migrate_data='data'))
        self.prepare.assert_called_once_with(
            self.driver, 'context', self.instance, 'devices', 'network',
            'disks', migrate_data='data')

    def test_asked_while_an_image_is_fetched(self):
        with futures.ThreadPoolExecutor() as pool:
            prepared = pool.submit(
                self.driver.pre_live_migration, 'context', self.instance,
                'devices', 'network', 'disks', 'data')
            self.assertTrue(self.fetching.wait(20))
            other = objects.Instance(
                uuid='33333333-0000-4000-8000-000000000003')
            self.assertEqual('meanwhile', self.ask(other))
            self.asked.set()
            self.assertEqual('after', self.ask(self.instance))
            self.assertEqual('data', prepared.result())
