# SPDX-License-Identifier: Apache-2.0
"""Certificates with which the QEMUs of the lab trust each other.

One authority for the lab, and for each compute host a certificate that is
both a server's and a client's, in the directory and with the names that
libvirt's migrate_tls_x509_cert_dir wants.
"""

import shutil

from guests.errors import run

#: As the compute hosts see it; /etc/libvirt is theirs alone.
DIRECTORY = '/etc/libvirt/migration-tls'
_KEY = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes')
_DAYS = '30'


def issue(cloud, host, address):
    """Give a host its certificate.

    :param address: by which other hosts migrate to it
    :raises BuildError: openssl is missing or fails
    """
    authority = _authority(cloud)
    directory = host.directory / DIRECTORY.lstrip('/')
    directory.mkdir(parents=True, exist_ok=True)
    certificate = directory / 'server-cert.pem'
    key = directory / 'server-key.pem'
    _request('/CN=' + host.name, certificate, key, {
        'subjectAltName': 'IP:%s,DNS:%s' % (address, host.name),
        'keyUsage': 'critical,digitalSignature',
        'extendedKeyUsage': 'serverAuth,clientAuth'},
        '-CA', authority / 'cert.pem', '-CAkey', authority / 'key.pem')
    shutil.copy(authority / 'cert.pem', directory / 'ca-cert.pem')
    shutil.copy(certificate, directory / 'client-cert.pem')
    shutil.copy(key, directory / 'client-key.pem')


def _authority(cloud):
    directory = cloud.directory / 'authority'
    if not directory.exists():
        directory.mkdir(mode=0o700)
        _request('/CN=lab ' + cloud.name, directory / 'cert.pem',
                 directory / 'key.pem', {
                     'basicConstraints': 'critical,CA:TRUE',
                     'keyUsage': 'critical,keyCertSign'})
    return directory


def _request(subject, certificate, key, extensions, *more):
    # the configuration of the machine would add extensions of its own
    run(['openssl', 'req', '-x509', '-config', '/dev/null', *_KEY,
         '-days', _DAYS, '-subj', subject, '-out', certificate,
         '-keyout', key,
         *(word for item in extensions.items()
           for word in ('-addext', '%s=%s' % item)), *more])
