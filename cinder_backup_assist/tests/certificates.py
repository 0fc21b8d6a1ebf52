# SPDX-License-Identifier: Apache-2.0
"""Certificates that are made for a test."""

import datetime
import ipaddress
import pathlib

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import oid


class Authority:
    """Signs certificates for hosts; files are below a directory."""

    def __init__(self, directory):
        self._directory = pathlib.Path(directory)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name('authority of a test')
        self.certificate = self._write('ca.pem', self._sign(
            self._name, self._key.public_key(), [], authority=True))

    def issue(self, name):
        """Return (certificate, key) for a host of that name."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(_name(name), key.public_key(), [
            x509.DNSName(name), x509.DNSName('localhost'),
            x509.IPAddress(ipaddress.ip_address('127.0.0.1'))])
        return (self._write(name + '.pem', certificate),
                self._write(name + '.key', key))

    def _sign(self, subject, key, names, authority=False):
        now = datetime.datetime.now(datetime.timezone.utc)
        builder = x509.CertificateBuilder(
            self._name, subject, key, x509.random_serial_number(),
            now - datetime.timedelta(days=1),
            now + datetime.timedelta(days=1)).add_extension(
                x509.BasicConstraints(ca=authority, path_length=None),
                critical=True)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _write(self, name, thing):
        if isinstance(thing, x509.Certificate):
            data = thing.public_bytes(serialization.Encoding.PEM)
        else:
            data = thing.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption())
        path = self._directory / name
        path.write_bytes(data)
        return str(path)


def _name(text):
    return x509.Name([x509.NameAttribute(oid.NameOID.COMMON_NAME, text)])
