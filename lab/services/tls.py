# SPDX-License-Identifier: Apache-2.0
"""Certificates with which the programs of the lab trust each other.

One authority for the lab, and for each compute host a certificate that is
both a server's and a client's: for QEMU in the directory and with the names
that libvirt's migrate_tls_x509_cert_dir wants, for the agent's data channel
as [dedup_migrate] channel_ca_file and its like name them.
"""

import shutil

from guests.errors import run

#: As the compute hosts see it; /etc/libvirt is theirs alone.
DIRECTORY = '/etc/libvirt/migration-tls'
#: /etc/nova likewise.
CHANNEL_DIRECTORY = '/etc/nova/channel-tls'
_KEY = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes')
_DAYS = '30'


def issue(cloud, host, address, directory=DIRECTORY):
    """Give a host its certificate.

    :param address: by which other hosts reach it
    :param directory: as the host sees it; in one that it has alone
    :raises BuildError: openssl is missing or fails
    """
    directory = _certify(cloud, host, directory, 'server',
                         'IP:%s,DNS:%s' % (address, host.name))
    for kind in 'cert', 'key':
        shutil.copy(directory / ('server-%s.pem' % kind),
                    directory / ('client-%s.pem' % kind))


def issue_channel(cloud, host):
    """Give the agent of a host its certificate, of the host's name.

    :raises BuildError: openssl is missing or fails
    """
    _certify(cloud, host, CHANNEL_DIRECTORY, 'host', 'DNS:' + host.name)


def _certify(cloud, host, path, name, subjects):
    """Make ca-cert.pem, NAME-cert.pem and NAME-key.pem; the directory."""
    authority = _authority(cloud)
    directory = host.directory / path.lstrip('/')
    directory.mkdir(parents=True, exist_ok=True)
    _request('/CN=' + host.name, directory / (name + '-cert.pem'),
             directory / (name + '-key.pem'), {
                 'subjectAltName': subjects,
                 'keyUsage': 'critical,digitalSignature',
                 'extendedKeyUsage': 'serverAuth,clientAuth'},
             '-CA', authority / 'cert.pem', '-CAkey', authority / 'key.pem')
    shutil.copy(authority / 'cert.pem', directory / 'ca-cert.pem')
    return directory


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
