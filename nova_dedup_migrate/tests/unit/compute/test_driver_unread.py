# SPDX-License-Identifier: Apache-2.0
"""The driver has volumes not read while their disks are needed."""

import contextlib

from nova_dedup_migrate.tests.unit.compute import test_driver


class UnreadTest(test_driver.DriverCase):
    """What needs the disks for itself begins when nobody reads them."""

    CALLS = {
        'detach_volume': ('context', 'info', 'instance', '/dev/vdb'),
        'extend_volume': ('context', 'info', 'instance', 1),
        'volume_snapshot_create': ('context', 'instance', 'volume', {}),
        'volume_snapshot_delete': ('context', 'instance', 'volume',
                                   'snapshot', {}),
        'snapshot': ('context', 'instance', 'image', 'update'),
        'suspend': ('context', 'instance'),
    }

    def each(self):
        for name, args in self.CALLS.items():
            args = [self.instance if one == 'instance' else one
                    for one in args]
            yield name, args, self.nova(name)

    def test_each(self):
        for name, args, theirs in self.each():
            events = []

            @contextlib.contextmanager
            def unread(instance, events=events):
                self.assertIs(self.instance, instance)
                events.append('not read')
                yield True
                events.append('may be read')

            self.driver.volumes.unread.side_effect = unread
            theirs.side_effect = (
                lambda *args, events=events: events.append('Nova') or 7)
            self.assertEqual(7, getattr(self.driver, name)(*args), name)
            self.assertEqual(['not read', 'Nova', 'may be read'], events,
                             name)
            theirs.assert_called_once_with(self.driver, *args)

    def test_disabled(self):
        self.driver.dedup.enabled = False
        for name, args, theirs in self.each():
            getattr(self.driver, name)(*args)
            theirs.assert_called_once_with(self.driver, *args)
        self.assertEqual([], self.driver.volumes.mock_calls)

    def test_a_live_migration(self):
        """From before its session, in which an agent reads disks."""
        events = []

        @contextlib.contextmanager
        def within(name):
            events.append(name)
            yield
            events.append(name + ' ends')

        self.driver.volumes.unread.side_effect = (
            lambda instance: within('unread'))
        self.driver.dedup.session.side_effect = (
            lambda *args: within('session'))
        self.nova('_live_migration')
        self.driver._live_migration('context', self.instance, 'dest', 'post',
                                    'recover', False, 'data')
        self.assertEqual(['unread', 'session', 'session ends',
                          'unread ends'], events)
