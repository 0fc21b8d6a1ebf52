# SPDX-License-Identifier: Apache-2.0
"""Every template is rendered for every profile."""

import configparser
import dataclasses
import types

from lab import cloud as clouds
from lab import guest
from lab import settings
from lab.services import backups
from lab.services import mariadb
from lab.services import nova
from nova_dedup_migrate.tests import base

_ADDRESSES = {'control': '198.18.0.11', 'compute1': '198.18.0.12',
              'compute2': '198.18.0.13', 'nas': '198.18.1.14',
              'ceph': '198.18.1.15'}


def _host(name):
    return types.SimpleNamespace(
        name=name, address=_ADDRESSES[name],
        link=lambda network: types.SimpleNamespace(
            address=network + ' address'))


class TestTemplates(base.TestCase):

    def cloud(self, profile):
        cloud = clouds.Cloud('none', self.temporary_dir(),
                             settings.Settings(profile, password='secret'))
        cloud.lab = types.SimpleNamespace(
            hosts={name: _host(name) for name in _ADDRESSES})
        return cloud

    def render(self, cloud, template, host='control', **values):
        text = cloud.render(template, host=_host(host), **values)
        parser = configparser.ConfigParser(
            strict=True, interpolation=None, allow_no_value=True)
        parser.read_string(text)
        return parser

    def each(self):
        for profile in settings.PROFILES:
            yield profile, self.cloud(profile)

    def test_services_find_keystone_and_their_database(self):
        for _profile, cloud in self.each():
            for name, section in (('glance-api', 'database'),
                                  ('placement', 'placement_database'),
                                  ('neutron', 'database'),
                                  ('cinder', 'database')):
                conf = self.render(cloud, name + '.conf')
                user = name.removesuffix('-api')
                self.assertEqual(
                    'mysql+pymysql://openstack:secret@198.18.0.11/%s'
                    '?charset=utf8' % user, conf[section]['connection'])
                self.assertEqual('http://198.18.0.11:5000',
                                 conf['keystone_authtoken']['auth_url'])
                self.assertEqual(user,
                                 conf['keystone_authtoken']['username'])

    def test_a_compute_host_has_no_database(self):
        for _profile, cloud in self.each():
            conf = self.render(cloud, 'nova.conf', 'compute1',
                               driver=nova.DRIVERS['dedup'])
            self.assertNotIn('database', conf)
            self.assertNotIn('api_database', conf)
            self.assertEqual('dedup_migrate.DedupMigrateLibvirtDriver',
                             conf['DEFAULT']['compute_driver'])
            self.assertEqual(
                'migration address',
                conf['libvirt']['live_migration_inbound_addr'])
            self.assertTrue(conf['nova_sys_admin']['helper_command']
                            .endswith('--config-file /etc/nova/nova.conf'))

    def test_tls_is_switched_on_where_it_is_wanted(self):
        for tls in (False, True):
            cloud = self.cloud('shared')
            cloud.settings = settings.Settings(tls=tls)
            conf = self.render(cloud, 'nova.conf', 'compute1', driver='d')
            self.assertEqual(
                'true' if tls else None,
                conf['libvirt'].get('live_migration_with_native_tls'))

    def test_the_controller_is_a_user_of_the_cloud(self):
        cloud = self.cloud('shared')
        conf = self.render(cloud, 'nova-dedup-migrate.conf')
        for section in ('openstack', 'keystone_authtoken'):
            self.assertEqual('dedup-migrate', conf[section]['username'])
            self.assertEqual('http://198.18.0.11:5000',
                             conf[section]['auth_url'])
        self.assertEqual('12.5', conf['engine']['link_rate'])
        self.assertEqual(cloud.transport_url,
                         conf['DEFAULT']['transport_url'])

    def test_io_is_tracked_unless_it_is_switched_off(self):
        for tracking in (False, True):
            cloud = self.cloud('local')
            cloud.settings = settings.Settings(tracking=tracking)
            conf = self.render(cloud, 'nova.conf', 'compute1', driver='d')
            self.assertEqual(
                None if tracking else 'false',
                conf['dedup_migrate'].get('track_io'))

    def test_disks_are_built_with_profile_local(self):
        for profile, disks, wanted in (('local', 'auto', 'auto'),
                                       ('local', 'off', None),
                                       ('shared', 'auto', None)):
            cloud = self.cloud(profile)
            cloud.settings = settings.Settings(profile, disks=disks)
            conf = self.render(cloud, 'nova.conf', 'compute1', driver='d',
                               qemu='/q/bin', channel='/c')['dedup_migrate']
            self.assertEqual(wanted, conf.get('disks'))
            if wanted:
                self.assertEqual(
                    ('/q/bin/qemu-storage-daemon', '/c/host-key.pem'),
                    (conf['storage_daemon'], conf['channel_key_file']))

    def test_disks_are_flat_if_they_are_to_be(self):
        cloud = self.cloud('local')
        cloud.settings = settings.Settings('local', flat=True)
        conf = self.render(cloud, 'nova.conf', 'compute1', driver='d')
        self.assertEqual('flat', conf['libvirt']['images_type'])

    def test_the_driver_is_switched_off_if_a_bench_wants_it(self):
        cloud = self.cloud('shared')
        for values, enabled, at_once in (
                ({}, None, None),
                ({'enabled': False}, 'false', None),
                ({'enabled': True, 'at_once': 20}, None, '20')):
            conf = self.render(cloud, 'nova.conf', 'compute1', driver='d',
                               **values)
            self.assertEqual(enabled, conf['dedup_migrate'].get('enabled'))
            self.assertEqual(at_once, conf['DEFAULT'].get(
                'max_concurrent_live_migrations'))

    def test_migrations_have_several_connections_if_a_bench_wants_it(self):
        for values, wanted in ({}, None), ({'connections': 2}, '2'):
            conf = self.render(self.cloud('local'), 'nova.conf', 'compute1',
                               driver='d', **values)
            self.assertEqual(wanted, conf['libvirt'].get(
                'live_migration_parallel_connections'))

    def test_ephemeral_disks_of_the_lab_are_filled(self):
        cloud = self.cloud('local')
        conf = self.render(cloud, 'nova.conf', 'compute1', driver='d')
        kind, command = conf['DEFAULT']['virt_mkfs'].split('=', 1)
        self.assertEqual(guest.OS_TYPE, kind)
        self.assertEqual(
            ['dd', 'if=%s' % cloud.data_disk, 'of=/d/disk.eph0'],
            (command % {'target': '/d/disk.eph0'}).split()[:3])

    def test_the_control_host_has_no_driver(self):
        conf = self.render(self.cloud('shared'), 'nova.conf')
        self.assertNotIn('compute_driver', conf['DEFAULT'])
        self.assertIn('nova_cell1', conf['database']['connection'])

    def test_storage_is_that_of_the_profile(self):
        kinds = {}
        for profile, cloud in self.each():
            conf = self.render(cloud, 'nova.conf', 'compute2', driver='d')
            images = self.render(cloud, 'glance-api.conf')
            kinds[profile] = (conf['libvirt'].get('images_type'),
                              conf['libvirt'].get('nfs_mount_point_base'),
                              images['glance_store']['default_backend'])
        self.assertEqual({
            'shared': (None, None, 'files'),
            'local': (None, None, 'files'),
            'volume': (None, '/var/lib/nova/mnt-compute2', 'files'),
            'ceph': ('rbd', None, 'ceph')}, kinds)

    def test_cinder_has_the_driver_of_its_storage(self):
        drivers = {}
        for profile in ('volume', 'ceph'):
            conf = self.render(self.cloud(profile), 'cinder.conf')
            section = conf[conf['DEFAULT']['enabled_backends']]
            drivers[profile] = section['volume_driver'].split('.')[-1]
        self.assertEqual({'volume': 'NfsDriver', 'ceph': 'RBDDriver'},
                         drivers)

    def test_backups_have_two_backends_and_certificates(self):
        cloud = self.cloud('volume')
        cloud.settings = settings.Settings('volume', backups=True)
        conf = self.render(cloud, 'cinder.conf')
        self.assertEqual('nas,nas2', conf['DEFAULT']['enabled_backends'])
        self.assertEqual('/etc/cinder/shares_nas2',
                         conf['nas2']['nfs_shares_config'])
        self.assertEqual('StorageCopyNfsDriver',
                         conf['nas']['volume_driver'].split('.')[-1])
        self.assertTrue(conf['DEFAULT']['backup_driver'])
        self.assertTrue(conf['backup_assist']['certificate'].startswith(
            backups.TLS))
        nova_conf = self.render(cloud, 'nova.conf', 'compute1', driver='d')
        self.assertTrue(
            nova_conf['dedup_migrate']['backup_certificate'].startswith(
                backups.COMPUTE_TLS))
        self.assertNotIn('backup_certificate', self.render(
            self.cloud('volume'), 'nova.conf', 'compute1', driver='d')[
                'dedup_migrate'])

    def test_the_others_are_complete(self):
        cloud = self.cloud('ceph')
        self.render(cloud, 'keystone.conf')
        self.render(cloud, 'ml2_conf.ini')
        self.render(cloud, 'ceph.conf', fsid='f')
        self.assertIn('export OS_PASSWORD=secret\n',
                      cloud.render('openrc'))
        self.assertIn('\nexport PATH=', cloud.render('openrc'))
        self.assertIn('198.18.0.11:5000/v3', cloud.render('clouds.yaml'))
        self.assertIn('198.18.0.11:5672', cloud.render('rabbitmq.conf'))
        sql = cloud.render('mariadb.sql', databases=mariadb.DATABASES)
        self.assertEqual(len(mariadb.DATABASES),
                         sql.count('CREATE DATABASE IF NOT EXISTS'))

    def test_tempest_logs_in_by_the_network_of_instances(self):
        for profile, cloud in self.each():
            conf = self.render(
                cloud, 'tempest.conf', directory='/d', image='1',
                image_alt='2', flavor='3', flavor_alt='4',
                network='instances', extensions=['a', 'b'],
                image_file='/image', image_properties={'a': 'b', 'c': 'd'},
                logs_in=True, host_without_agent='')
            self.assertEqual('instances',
                             conf['validation']['network_for_ssh'])
            self.assertEqual('a:b,c:d', conf['scenario']['img_properties'])
            self.assertEqual(
                profile in ('volume', 'ceph'),
                conf['dedup_migrate'].getboolean('shared_volumes'))

    def test_tempest_moves_and_backs_up_volumes_if_it_can(self):
        values = {'directory': '/d', 'image': '1', 'image_alt': '2',
                  'flavor': '3', 'flavor_alt': '4', 'network': 'instances',
                  'extensions': ['a'], 'image_file': '/image',
                  'image_properties': {'a': 'b'}, 'logs_in': True,
                  'host_without_agent': ''}
        for profile, cloud in self.each():
            conf = self.render(cloud, 'tempest.conf', **values)
            self.assertFalse(
                conf['volume-feature-enabled'].getboolean('backup'))
            self.assertNotIn('backend_names', conf['volume'])
            if profile != 'volume':
                continue
            cloud.settings = dataclasses.replace(cloud.settings,
                                                 backups=True)
            conf = self.render(cloud, 'tempest.conf', **values)
            for name in 'backup', 'multi_backend':
                self.assertTrue(
                    conf['volume-feature-enabled'].getboolean(name))
            self.assertEqual('nas,nas2', conf['volume']['backend_names'])

    def test_ssh_between_compute_hosts(self):
        for _profile, cloud in self.each():
            text = cloud.render('sshd_config', host=_host('compute1'),
                                home='/root/.ssh', key='id', port=22)
            self.assertIn('ListenAddress 198.18.0.12:22\n', text)
            self.assertIn('PasswordAuthentication no\n', text)
