# SPDX-License-Identifier: Apache-2.0
"""The certificates are made with openssl, and read with it."""

import subprocess
import types

from lab.services import tls
from nova_dedup_migrate.tests import base


class TestIssue(base.TestCase):

    def test_a_certificate_is_for_both_ends_and_one_address(self):
        top = self.temporary_dir()
        cloud = types.SimpleNamespace(name='x', folder=top)
        for name in ('one', 'two'):
            host = types.SimpleNamespace(name=name, directory=top / name)
            tls.issue(cloud, host, '198.18.0.11')
        folders = [top / name / tls.FOLDER.lstrip('/')
                   for name in ('one', 'two')]
        for folder in folders:
            for purpose in ('server', 'client'):
                subprocess.run(
                    ['openssl', 'verify', '-x509_strict', '-CAfile',
                     folder / 'ca-cert.pem', '-purpose',
                     'ssl' + purpose, '-verify_ip', '198.18.0.11',
                     folder / ('%s-cert.pem' % purpose)],
                    check=True, capture_output=True)
                self.assertTrue(
                    (folder / ('%s-key.pem' % purpose)).exists())
        # of one authority, and not the same
        self.assertEqual(*[(folder / 'ca-cert.pem').read_text()
                           for folder in folders])
        self.assertNotEqual(*[(folder / 'server-cert.pem').read_text()
                              for folder in folders])
