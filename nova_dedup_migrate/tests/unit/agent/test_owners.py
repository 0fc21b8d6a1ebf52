# SPDX-License-Identifier: Apache-2.0
"""Whose content a file is."""

import hashlib
import importlib.util
import time
import unittest
from unittest import mock

if importlib.util.find_spec('libvirt') is None:
    raise unittest.SkipTest('libvirt-python is not installed')

import fixtures
import libvirt

from nova_dedup_migrate.agent import owners
from nova_dedup_migrate.storage.index import store
from nova_dedup_migrate.tests import base

IMAGE = '0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
OTHER = '1a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f'
DOMAIN = '''<domain><metadata>
<nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1">
<nova:owner><nova:project uuid="%s">admin</nova:project></nova:owner>
</nova:instance></metadata><devices>
<disk type="file" device="disk"><source file="/i/1/disk"/></disk>
<disk type="file" device="disk"><source file="/i/1/shared"/><shareable/>
</disk>
<disk type="file" device="disk"><source file="/i/1/secret">
<encryption format="luks"/></source></disk>
<disk type="file" device="cdrom"><source file="/i/1/disk.config"/></disk>
<disk type="network" device="disk"><source name="vms/1"/></disk>
</devices></domain>'''


class OwnersTest(base.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = self.temporary_dir()
        self.connection = mock.create_autospec(libvirt.virConnect,
                                               instance=True)
        self.connection.listAllDomains.return_value = []
        self.owners = owners.Owners(lambda: self.connection,
                                    str(self.cache), 3600.0)

    def test_cached_images(self):
        name = hashlib.sha1(IMAGE.encode()).hexdigest()
        for each in (name, name + '_20', 'x' * 40, name + '.part',
                     'ephemeral_1'):
            (self.cache / each).write_bytes(b'')
        self.assertEqual(
            {str(self.cache / each): owners.of_image(IMAGE)
             for each in (name, name + '_20')}, self.owners.files())
        self.assertEqual(str(self.cache / name), self.owners.cached(IMAGE))
        self.assertIsNone(self.owners.cached(IMAGE.replace('0', '1')))
        self.assertIn(owners.of_image(IMAGE), owners.allowed('p', [IMAGE]))
        self.assertNotIn(owners.of_image(IMAGE), owners.allowed('p', []))

    def test_name_is_novas(self):
        try:
            from nova.virt.libvirt import imagecache
        except ImportError:
            self.skipTest('Nova is not installed')
        self.assertEqual('image:' + imagecache.get_cache_fname(IMAGE),
                         owners.of_image(IMAGE))

    def test_public_images(self):
        own, public = owners.of_image(IMAGE), owners.of_image(OTHER)
        private = {store.PUBLIC, 'p1', own}
        self.assertEqual(private, self.owners.allowed('p1', [IMAGE]))
        self.owners.set_public([OTHER])
        self.assertEqual(private | {public},
                         self.owners.allowed('p1', [IMAGE]))
        self.assertEqual({store.PUBLIC, 'p2', public},
                         self.owners.allowed('p2', []))
        # One is withdrawn, another one published.
        self.owners.set_public([IMAGE])
        self.assertEqual({store.PUBLIC, 'p2', own},
                         self.owners.allowed('p2', []))
        self.owners.set_public([])
        self.assertEqual(private, self.owners.allowed('p1', [IMAGE]))

    def test_list_that_is_too_old(self):
        now = self.useFixture(fixtures.MockPatchObject(
            time, 'monotonic', autospec=True)).mock
        now.return_value = 100.0
        self.owners.set_public([OTHER])
        now.return_value = 3699.0
        self.assertIn(owners.of_image(OTHER), self.owners.allowed('p2', []))
        now.return_value = 3700.0
        with self.assertLogs(owners.LOG, 'WARNING') as logged:
            for _ in range(2):
                self.assertEqual({store.PUBLIC, 'p2'},
                                 self.owners.allowed('p2', []))
        self.assertEqual(1, len(logged.output))
        self.owners.set_public([OTHER])
        self.assertIn(owners.of_image(OTHER), self.owners.allowed('p2', []))

    def test_disks_of_instances(self):
        domain = mock.create_autospec(libvirt.virDomain, instance=True)
        domain.XMLDesc.return_value = DOMAIN % 'p1'
        gone = mock.create_autospec(libvirt.virDomain, instance=True)
        gone.XMLDesc.side_effect = libvirt.libvirtError('gone')
        self.connection.listAllDomains.return_value = [gone, domain]
        self.assertEqual({'/i/1/disk': 'p1'}, self.owners.files())

    def test_owner_that_nobody_can_be(self):
        for project in ('', store.PUBLIC, owners.of_image(IMAGE)):
            self.assertEqual({}, owners.disks(DOMAIN % project))
        self.assertEqual({}, owners.disks('<domain/>'))

    def test_libvirt_is_away(self):
        self.connection.listAllDomains.side_effect = libvirt.libvirtError(
            'away')
        self.assertEqual({}, self.owners.files())
