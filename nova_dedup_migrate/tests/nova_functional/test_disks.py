# SPDX-License-Identifier: Apache-2.0
"""A block migration whose disk is built before: when, and if it fails."""

import os
import unittest

from nova.virt.libvirt import driver as libvirt_driver
from nova.virt.libvirt import utils

from nova_dedup_migrate.tests import nova_functional
from nova_dedup_migrate.tests.nova_functional import adopt
from nova_dedup_migrate.tests.nova_functional import internals
from nova_dedup_migrate.tests.nova_functional import world

_BUILT = ['take_replica', 'watch_disk', 'have_blocks', 'fill_disk',
          'filling', 'arm_disk']
_SIZE = 1 << 30


def _create_image(path, disk_format, disk_size, *args, **kwargs):
    """As Nova's, of raw images."""
    with open(path, 'wb') as file:
        file.truncate(int(disk_size))


@unittest.skipIf(adopt.STOCK, "Nova's own driver builds no disks")
@unittest.skipUnless(nova_functional.THREADS, 'Nova before 34')
class DisksTest(world.World):

    def setUp(self):
        super().setUp()
        self.flags(group='dedup_migrate', disks='auto',
                   disk_image_store=False, link_bandwidth=10.0)
        #: (step, host) in their order
        self.seen = []
        self.agents = internals.replace_disk_agents(
            self.replace, self._state_at, self._forget_at, self.seen)
        # there may be no qemu-img
        self.replace(utils, 'create_image', _create_image)
        prepare = libvirt_driver.LibvirtDriver.pre_live_migration

        def prepared(driver, *args, **kwargs):
            result = prepare(driver, *args, **kwargs)
            self.seen.append(('prepared', driver._host.get_hostname()))
            return result

        self.replace(libvirt_driver.LibvirtDriver, 'pre_live_migration',
                     prepared)

    def _migrate_guest(self, domain, params):
        self.seen.append(('migrated', 'src'))
        super()._migrate_guest(domain, params)

    def boot(self, host='src'):
        """Return a server with a disk of Nova's; it has its file."""
        server = self.api.post_server({'server': self._build_server(
            host=host, networks='none')})
        server = self._wait_for_state_change(server, 'ACTIVE',
                                             max_retries=60)
        # of which Nova's fixture makes none
        directory = self.instance_directory(host, server)
        os.makedirs(directory)
        _create_image(os.path.join(directory, 'disk'), 'raw', _SIZE)
        return server

    def end(self, server, host, status):
        """Wait for the end; return the report of the migration.

        :param host: where the instance has to be
        """
        self.assertTrue(self.settled(server), self.said(server))
        self.assertEqual('ACTIVE at %s, task None; migration %s'
                         % (host, status), self.said(server))
        report, = internals.reports(self.hosts.directory('src', 'state_path'))
        self.assertEqual(status, report['outcome'])
        for name in self.names():
            self.assertEqual(name == host, os.path.exists(os.path.join(
                self.instance_directory(name, server), 'disk')), name)
        return report

    def test_built(self):
        """After Nova has made its file, and before libvirt migrates."""
        server = self.boot()
        self.migrate(server, 'dest')
        report = self.end(server, 'dest', 'completed')
        steps = [step for step, _host in self.seen]
        order = [self.seen.index(step) for step in (
            ('prepared', 'dest'), ('take_replica', 'dest'),
            ('watch_disk', 'src'), ('have_blocks', 'dest'),
            ('fill_disk', 'dest'), ('filling', 'dest'), ('arm_disk', 'src'),
            ('migrated', 'src'), ('abort_filling', 'dest'),
            ('forget_disks', 'src'))]
        self.assertEqual(sorted(order), order, self.seen)
        self.assertEqual(1, steps.count('fill_disk'))
        request = self.agents.filled
        self.assertEqual(
            (server['id'], 'vda', 'raw', 'src', [], _SIZE),
            (request.instance_uuid, request.target, request.image.format,
             request.source, request.backing, request.size))
        disk, = report['disks']
        self.assertEqual(('vda', _SIZE, {'local': 77}, ''),
                         (disk['target'], disk['size'], disk['sources'],
                          disk['reason']))

    def test_agent_of_the_destination_is_down(self):
        """The migration is an ordinary one."""
        self.agents.down.add('dest')
        server = self.boot()
        self.migrate(server, 'dest')
        report = self.end(server, 'dest', 'completed')
        steps = [step for step, _host in self.seen]
        self.assertIn('migrated', steps)
        self.assertEqual([], [step for step in _BUILT if step in steps])
        self.assertEqual([], report['disks'])
        self.assertEqual('stock', report['strategy_used'])
        self.assertIn('preparing the disks: the dedup agent of dest is '
                      'not available', report['warnings'][0])

    def test_aborted_while_it_is_built(self):
        """The instance stays, and libvirt was never called."""
        self.agents.state = 'running'
        server = self.boot()
        self.migrate(server, 'dest')
        self.assertTrue(self.until(
            lambda: ('filling', 'dest') in self.seen), self.said(server))
        self.api.api_delete('/servers/%s/migrations/%d' % (
            server['id'], self.migration(server).id))
        self.end(server, 'src', 'cancelled')
        steps = [step for step, _host in self.seen]
        self.assertNotIn('arm_disk', steps)
        self.assertNotIn('migrated', steps)
        self.assertLess(self.seen.index(('filling', 'dest')),
                        self.seen.index(('abort_filling', 'dest')))
        self.assertIn(('forget_disks', 'src'), self.seen)
