# SPDX-License-Identifier: Apache-2.0
"""The disks of an instance, as its source knows them."""

from __future__ import annotations

import binascii
from collections.abc import Callable
import dataclasses

from nova_dedup_migrate.images import rbd


@dataclasses.dataclass(frozen=True)
class Node:
    """One image of a backing chain.

    :ivar kind: one of rpc.objects.KINDS
    :ivar path: here; 'pool/image' or 'pool/namespace/image' of kind rbd;
        what it is in words of kind other
    :ivar destination: its path there, None if it is the same
    :ivar user: kind rbd, name of the Ceph client without 'client.'
    :ivar secret: kind rbd, UUID of libvirt's secret that holds its key
    """

    kind: str
    path: str
    destination: str | None = None
    user: str | None = None
    secret: str | None = None


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk: target as libvirt's, 'vda', and its chain from the top."""

    target: str
    chain: tuple[Node, ...]


@dataclasses.dataclass(frozen=True)
class Site:
    """How a host gets at its storage.

    :ivar roots: directories images are looked for in; None where the
        paths come from the local libvirt
    :ivar ceph_conf: '' for the usual places
    :ivar ceph_key: function that returns what a libvirt secret holds, as
        bytes
    """

    roots: tuple[str, ...] | None = None
    ceph_conf: str = ''
    ceph_key: Callable[[str], bytes] | None = None

    def key(self, secret: str | None) -> str | None:
        """Return the key of a secret, None for the host's keyring.

        :raises RbdUnavailable: libvirt does not return it
        """
        if secret is None or self.ceph_key is None:
            return None
        try:
            value = self.ceph_key(secret)
        except Exception as error:
            # libvirt's errors; this module does without libvirt
            raise rbd.RbdUnavailable(
                image='with secret %s' % secret,
                reason='libvirt does not return the secret: %s'
                % error) from error
        # libvirt holds the bytes, Ceph wants their text
        return binascii.b2a_base64(value, newline=False).decode()
