# SPDX-License-Identifier: Apache-2.0
import unittest

try:
    import libvirt
except ImportError as error:
    raise unittest.SkipTest(str(error)) from error

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base
from testkit import libvirt_options
from testkit import options

ALWAYS = libvirt.VIR_MIGRATE_LIVE | libvirt.VIR_MIGRATE_PEER2PEER
URI = 'qemu+tcp://192.0.2.7/system'


class LibvirtOptionsTest(base.TestCase):

    def flags(self, unsafe=False, **given):
        return libvirt_options.flags(options.MigrationOptions(**given),
                                     unsafe) & ~ALWAYS

    def parameters(self, **given):
        return libvirt_options.parameters(options.MigrationOptions(**given),
                                          URI)

    def test_default(self):
        self.assertEqual(ALWAYS, libvirt_options.flags(
            options.MigrationOptions(), False))
        self.assertEqual({}, self.parameters())

    def test_flags(self):
        for flag, given in (
                (libvirt.VIR_MIGRATE_PAUSED, {'paused': True}),
                (libvirt.VIR_MIGRATE_PARALLEL, {'multifd_channels': 2}),
                (libvirt.VIR_MIGRATE_COMPRESSED, {'xbzrle': True}),
                (libvirt.VIR_MIGRATE_AUTO_CONVERGE, {'auto_converge': True}),
                (libvirt.VIR_MIGRATE_POSTCOPY, {'postcopy': True}),
                (libvirt.VIR_MIGRATE_UNSAFE, {'unsafe': True})):
            self.assertEqual(flag, self.flags(**given))

    def test_bandwidth_is_whole_mebibytes(self):
        for rate, expected in ((1, 1), (1 << 20, 1), ((1 << 20) + 1, 2),
                               (None, 1 << 24)):
            self.assertEqual(expected, libvirt_options.mib_per_s(rate))
        self.assertEqual(
            {libvirt.VIR_MIGRATE_PARAM_BANDWIDTH: 2,
             libvirt.VIR_MIGRATE_PARAM_BANDWIDTH_POSTCOPY: 1},
            self.parameters(max_bandwidth=2 << 20,
                            max_postcopy_bandwidth=4096))

    def test_parameters(self):
        self.assertEqual(
            {libvirt.VIR_MIGRATE_PARAM_PARALLEL_CONNECTIONS: 2,
             libvirt.VIR_MIGRATE_PARAM_COMPRESSION: 'zstd',
             libvirt.VIR_MIGRATE_PARAM_URI: 'tcp://192.0.2.7:49152'},
            self.parameters(multifd_channels=2, multifd_compression='zstd',
                            port=49152))
        self.assertEqual(
            {libvirt.VIR_MIGRATE_PARAM_COMPRESSION: 'xbzrle',
             libvirt.VIR_MIGRATE_PARAM_COMPRESSION_XBZRLE_CACHE: 8192},
            self.parameters(xbzrle=True, xbzrle_cache_size=8192))

    def test_what_libvirt_cannot_do(self):
        libvirt_options.check(options.MigrationOptions(), 9_000_000)
        for version, given in (
                (11_000_000, {'transport': 'unix'}),
                (11_000_000, {'pause_before_switchover': True}),
                (11_000_000, {'return_path': False}),
                (11_000_000, {'postcopy': True, 'paused': True}),
                (11_000_000, {'tls': options.TlsCredentials('/a', '/b')}),
                (11_000_000, {'capabilities': {'x': True}}),
                (11_000_000, {'parameters': {'x': 1}}),
                (9_003_000, {'multifd_channels': 2,
                             'multifd_compression': 'zstd'})):
            error = self.assertRaises(
                errors.NotOffered, libvirt_options.check,
                options.MigrationOptions(**given), version)
            self.assertIn(error.option, given)
            self.assertIn('libvirt', str(error))
