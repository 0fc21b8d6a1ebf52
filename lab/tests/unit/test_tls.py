# SPDX-License-Identifier: Apache-2.0
"""The certificates are made with openssl, and read with it."""

import subprocess
import types

from lab.services import tls
from nova_dedup_migrate.tests import base


class TestIssue(base.TestCase):

    def test_a_certificate_is_for_both_ends_and_one_address(self):
        top = self.temporary_dir()
        cloud = types.SimpleNamespace(name='x', directory=top)
        for name in ('one', 'two'):
            host = types.SimpleNamespace(name=name, directory=top / name)
            tls.issue(cloud, host, '198.18.0.11')
        directories = [top / name / tls.DIRECTORY.lstrip('/')
                   for name in ('one', 'two')]
        for directory in directories:
            for purpose in ('server', 'client'):
                subprocess.run(
                    ['openssl', 'verify', '-x509_strict', '-CAfile',
                     directory / 'ca-cert.pem', '-purpose',
                     'ssl' + purpose, '-verify_ip', '198.18.0.11',
                     directory / ('%s-cert.pem' % purpose)],
                    check=True, capture_output=True)
                self.assertTrue(
                    (directory / ('%s-key.pem' % purpose)).exists())
        tls.issue_channel(cloud, host)
        channel = top / 'two' / tls.CHANNEL_DIRECTORY.lstrip('/')
        for purpose in ('server', 'client'):
            subprocess.run(
                ['openssl', 'verify', '-x509_strict', '-CAfile',
                 channel / 'ca-cert.pem', '-purpose', 'ssl' + purpose,
                 '-verify_hostname', 'two', channel / 'host-cert.pem'],
                check=True, capture_output=True)
        self.assertTrue((channel / 'host-key.pem').exists())
        # of one authority, and not the same
        self.assertEqual(*[(directory / 'ca-cert.pem').read_text()
                           for directory in directories])
        self.assertNotEqual(*[(directory / 'server-cert.pem').read_text()
                              for directory in directories])
