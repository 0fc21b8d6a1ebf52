# SPDX-License-Identifier: Apache-2.0
from unittest import mock

from nova import objects
from nova.virt.libvirt import config as vconfig
from oslo_config import cfg

from nova_dedup_migrate.compute import page_cache
from nova_dedup_migrate.conf import dedup_migrate
from nova_dedup_migrate.hypervisor import base as hypervisor
from nova_dedup_migrate.pagecache import loader as loading
from nova_dedup_migrate.tests import base


class LoaderTest(base.TestCase):

    def loader(self, **options):
        conf = cfg.ConfigOpts()
        dedup_migrate.register_opts(conf)
        conf([])
        for name, value in options.items():
            conf.set_override('page_cache_' + name, value, 'dedup_migrate')
        guest = mock.create_autospec(hypervisor.Guest, instance=True)
        with mock.patch.object(loading, 'PageCacheLoader',
                               autospec=True) as made:
            found = page_cache.loader(conf.dedup_migrate, guest)
        if found is None:
            return None
        _, ways, limits = made.call_args.args
        return [way.name for way in ways], limits

    def test_default(self):
        ways, limits = self.loader()
        self.assertEqual(['port'], ways)
        self.assertEqual((5.0, 65536, 1 << 22), (
            limits.seconds, limits.memory_kib, limits.extents))

    def test_transports(self):
        self.assertIsNone(self.loader(transports=[]))
        self.assertEqual(['agent', 'port'], self.loader(
            transports=['agent', 'port', 'agent'])[0])
        self.assertRaises(ValueError, self.loader, transports=['telepathy'])


class PortTest(base.TestCase):

    def ports(self, value):
        metadata = {'image_os_distro': 'debian'}
        if value is not None:
            metadata['image_dedup_migrate:page_cache_port'] = value
        guest = vconfig.LibvirtConfigGuest()
        page_cache.add_port(guest, objects.Instance(
            id=7, uuid='22222222-0000-4000-8000-000000000002',
            system_metadata=metadata))
        return guest.devices

    def test_wanted(self):
        for value in ('true', 'True', 'yes', '1'):
            port, = self.ports(value)
            xml = ' '.join(port.to_xml().split())
            self.assertIn('<channel type="unix">', xml)
            self.assertIn(
                'path="/var/lib/libvirt/qemu/page-cache.instance-00000007'
                '.sock"', xml)
            self.assertIn('<target type="virtio" '
                          'name="org.nova_dedup_migrate.page_cache.0"/>',
                          xml)

    def test_not_known(self):
        guest = vconfig.LibvirtConfigGuest()
        # nothing is loaded, and there is nothing to load it from
        page_cache.add_port(guest, objects.Instance(id=7))
        self.assertEqual([], guest.devices)

    def test_not_wanted(self):
        for value in (None, 'false', 'no', '', 'perhaps', 'x' * 10000):
            self.assertEqual([], self.ports(value))
