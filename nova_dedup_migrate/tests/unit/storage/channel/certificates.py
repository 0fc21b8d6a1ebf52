# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests: an authority and hosts."""

import datetime
import functools

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid

from nova_dedup_migrate.storage.channel import tls


class Authority:
    """Issues certificates below a directory."""

    def __init__(self, directory, name='ca'):
        self._directory = directory
        self._name = x509.Name([x509.NameAttribute(
            oid.NameOID.COMMON_NAME, name)])
        self._key, certificate = _keys(), None
        certificate = self._certificate(self._name, self._key, True, ())
        self.path = directory / (name + '.pem')
        self.path.write_bytes(certificate)

    def host(self, name):
        """Return the tls.Certificates of a host."""
        key = _keys(name)
        certificate = self._directory / (name + '-cert.pem')
        certificate.write_bytes(self._certificate(
            x509.Name([]), key, False, [name]))
        private = self._directory / (name + '-key.pem')
        private.write_bytes(key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption()))
        return tls.Certificates(str(self.path), str(certificate),
                                str(private))

    def _certificate(self, subject, key, authority, names):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = (
            x509.CertificateBuilder().subject_name(subject)
            .issuer_name(self._name).public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(authority, None), True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(
                key.public_key()), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(
                    self._key.public_key()), False))
        if authority:
            builder = builder.add_extension(x509.KeyUsage(
                False, False, False, False, False, True, True, False,
                False), True)
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(
                [x509.DNSName(name) for name in names]), False)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(
            serialization.Encoding.PEM)


@functools.cache
def _keys(name=''):
    return ec.generate_private_key(ec.SECP256R1())
