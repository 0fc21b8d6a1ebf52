# SPDX-License-Identifier: Apache-2.0
import pathlib

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.tests import base
from testkit import options


class MigrationOptionsTest(base.TestCase):

    def states(self, **given):
        return {c['capability']: c['state'] for c in
                options.MigrationOptions(**given).qmp_capabilities()}

    def test_default_is_what_libvirt_does(self):
        states = self.states()
        on = {name for name, state in states.items() if state}
        self.assertEqual({'return-path', 'events'}, on)

    def test_off_is_said_too(self):
        # or a capability of an earlier attempt would stay on
        self.assertIs(False, self.states()['postcopy-ram'])
        self.assertIs(False, self.states()['multifd'])

    def test_further_capabilities_win(self):
        states = self.states(capabilities={'return-path': False,
                                           'zero-copy-send': True})
        self.assertFalse(states['return-path'])
        self.assertTrue(states['zero-copy-send'])

    def test_bad_values_name_their_option(self):
        for option, value in (
                ('max_bandwidth', 0), ('max_bandwidth', -1),
                ('max_bandwidth', 1 << 60), ('max_bandwidth', '1M'),
                ('max_bandwidth', True), ('max_postcopy_bandwidth', 0),
                ('downtime_limit_ms', -1), ('downtime_limit_ms', 2000001),
                ('multifd_channels', 256), ('multifd_channels', -1),
                ('multifd_compression', 'lzma'),
                ('multifd_compression', 'zstd'),
                ('xbzrle_cache_size', 5000), ('xbzrle_cache_size', 0),
                ('postcopy_preempt', True), ('transport', 'rdma'),
                ('port', 65536)):
            error = self.assertRaises(errors.OptionError,
                                      options.MigrationOptions,
                                      **{option: value})
            self.assertEqual((option, value), (error.option, error.value))
            self.assertIn(option, str(error))

    def test_combinations(self):
        self.assertRaises(errors.OptionError, options.MigrationOptions,
                          xbzrle=True, multifd_channels=2)
        self.assertRaises(errors.OptionError, options.MigrationOptions,
                          postcopy=True, return_path=False)

    def test_parameters(self):
        given = options.MigrationOptions(
            max_bandwidth=12500000, downtime_limit_ms=50,
            multifd_channels=4, multifd_compression='zstd',
            parameters={'multifd-zstd-level': 3}).qmp_parameters()
        self.assertEqual(
            {'max-bandwidth': 12500000, 'max-postcopy-bandwidth': 0,
             'downtime-limit': 50, 'multifd-compression': 'zstd',
             'multifd-channels': 4, 'tls-creds': '',
             'multifd-zstd-level': 3}, given)

    def test_no_limit(self):
        given = options.MigrationOptions().qmp_parameters()
        self.assertEqual(options.UNLIMITED, given['max-bandwidth'])

    def test_tls(self):
        tls = options.TlsCredentials(pathlib.Path('/s'), pathlib.Path('/d'),
                                     hostname='host')
        given = options.MigrationOptions(tls=tls).qmp_parameters('creds')
        self.assertEqual(('creds', 'host'),
                         (given['tls-creds'], given['tls-hostname']))
        server = tls.object('creds', 'server')
        self.assertEqual(('tls-creds-x509', '/d', 'server'),
                         (server['qom-type'], server['dir'],
                          server['endpoint']))
        self.assertEqual('/s', tls.object('creds', 'client')['dir'])

    def test_unknown_kind_of_tls(self):
        self.assertRaises(errors.OptionError, options.TlsCredentials,
                          pathlib.Path('/'), pathlib.Path('/'), kind='ssh')
