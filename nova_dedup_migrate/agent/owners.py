# SPDX-License-Identifier: Apache-2.0
"""Whose content the files of this host are.

Nova names an image in its cache by the SHA-1 of the image's ID, so such a
file belongs to 'image:' and that name.  The disk of an instance belongs to
the project that is in the metadata Nova gave the domain.  What has no known
owner is not indexed.

Which images are public is not in the index: the engine sends the list, and
each look-up uses the list as it is then.  So an image that is withdrawn is
private at once, and so are all of them when the list has become too old.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
import hashlib
import logging
import os
import re
import threading
import time
from xml.etree import ElementTree

import libvirt

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.storage.index import store

LOG = logging.getLogger(__name__)

_NOVA = '{http://openstack.org/xmlns/libvirt/nova/1.1}'
_CACHED = re.compile(r'([0-9a-f]{40})(_[0-9]+)?')
#: Domains of a host, and disks of one.
_MAX_DOMAINS = 4096
_MAX_DISKS = 128


def of_image(image: str) -> str:
    """Return the owner of the content of a cached image."""
    return 'image:' + hashlib.sha1(
        image.encode(), usedforsecurity=False).hexdigest()


def allowed(project: str, images: Collection[str]) -> set[str]:
    """Return the owners whose content a migration may always learn of.

    :param project: ID of the instance's project
    :param images: IDs of the images the instance was made of
    """
    return {store.PUBLIC, project, *map(of_image, images)}


class Owners:
    """The files of this host that have an owner, and who is public.

    :param connection: returns libvirt's connection
    :param cache: Nova's directory of cached images
    :param lifetime: seconds for which a list of public images counts
    """

    def __init__(self, connection: Callable[[], libvirt.virConnect],
                 cache: str, lifetime: float) -> None:
        self._connection = connection
        self._cache = cache
        self._lifetime = lifetime
        self._guard = threading.Lock()
        self._public: frozenset[str] = frozenset()
        self._received = 0.0

    def set_public(self, images: Iterable[str]) -> None:
        """Replace the list of the IDs of all public images."""
        public = frozenset(map(of_image, images))
        with self._guard:
            self._public, self._received = public, time.monotonic()

    def allowed(self, project: str, images: Collection[str]) -> set[str]:
        """Return what allowed() does, and the images that are public now."""
        with self._guard:
            age = time.monotonic() - self._received
            if self._public and age >= self._lifetime:
                LOG.warning('No cached image is public any more: the '
                            'controller sent the last list of public images '
                            '%.0f s ago. Check that an engine runs, and that '
                            'it reaches Glance and this host.', age)
                self._public = frozenset()
            return allowed(project, images) | self._public

    def cached(self, image: str) -> str | None:
        """Return the path of a cached image, None if it is not there."""
        path = os.path.join(self._cache, of_image(image).partition(':')[2])
        return path if os.path.isfile(path) else None

    def files(self) -> dict[str, str]:
        """Return path -> owner."""
        return {**self._cached(), **self._disks()}

    def _cached(self) -> dict[str, str]:
        try:
            names = os.listdir(self._cache)
        except OSError:
            # No image has been cached yet.
            return {}
        found = {}
        for name in names:
            match = _CACHED.fullmatch(name)
            if match:
                found[os.path.join(self._cache, name)] = 'image:' + match[1]
        return found

    def _disks(self) -> dict[str, str]:
        try:
            domains = self._connection().listAllDomains()[:_MAX_DOMAINS]
        except (libvirt.libvirtError, errors.HypervisorError) as error:
            LOG.warning('The disks of instances are not indexed: libvirt '
                        'does not list its domains: %s', error)
            return {}
        found: dict[str, str] = {}
        for domain in domains:
            try:
                found.update(disks(domain.XMLDesc()))
            except libvirt.libvirtError:
                # It has gone meanwhile.
                continue
        return found


def disks(description: str) -> dict[str, str]:
    """Return path -> project of the disks of a domain.

    Disks that other instances may write to, or that are encrypted, are left
    out.

    :param description: XML of the domain
    """
    domain = ElementTree.fromstring(description)
    owner = project(domain)
    if owner is None:
        return {}
    found = {}
    for disk in _private(domain):
        source = disk.find('source')
        path = None if source is None else source.get('file')
        if path:
            found[path] = owner
    return found


def project(domain: ElementTree.Element) -> str | None:
    """Return the ID of the project that Nova's metadata name."""
    found = domain.find('metadata/%sinstance/%sowner/%sproject' % (
        (_NOVA,) * 3))
    owner = None if found is None else found.get('uuid')
    if not owner or owner == store.PUBLIC or owner.startswith('image:'):
        return None
    return owner


def images(domain: ElementTree.Element) -> list[str]:
    """Return the ID of the image an instance was made of, if of one."""
    found = domain.find('metadata/%sinstance/%sroot' % ((_NOVA,) * 2))
    image = None if found is None or found.get('type') != 'image' else (
        found.get('uuid'))
    return [image] if image else []


def private_targets(description: str) -> set[str]:
    """Return the targets of disks that no other instance may write to.

    Encrypted disks are left out, too.
    """
    return {target.get('dev', '')
            for disk in _private(ElementTree.fromstring(description))
            if (target := disk.find('target')) is not None}


def _private(domain: ElementTree.Element) -> list[ElementTree.Element]:
    return [disk for disk in domain.findall('devices/disk')[:_MAX_DISKS]
            if disk.find('shareable') is None
            and disk.find('.//encryption') is None
            and disk.get('device', 'disk') == 'disk']
