# SPDX-License-Identifier: Apache-2.0
"""The disks of an instance, from the XML of its domain.

https://libvirt.org/formatdomain.html#hard-drives-floppy-disks-cdroms

The XML of a domain that runs holds each disk's whole backing chain, with
the formats libvirt told QEMU; no image is opened to find out.
"""

import dataclasses
import os

from lxml import etree

from nova_dedup_migrate.identity import nodes

#: Images of a chain; what is longer makes the disk unusable, not us slow.
MAX_CHAIN = 64


@dataclasses.dataclass(frozen=True)
class DomainDisk:
    """One disk, and what a migration to another host needs to know.

    :ivar target: vda
    :ivar device: id of the device in QEMU
    :ivar serial: of a Cinder volume: its UUID; '' of others
    :ivar chain: tuple of nodes.Node, the top one first
    """

    target: str
    device: str
    serial: str
    chain: tuple

    def at(self, destination):
        """Return nodes.Disk whose top image is elsewhere there.

        :param destination: the path there, None if it is the same
        """
        top = dataclasses.replace(self.chain[0], destination=destination)
        return nodes.Disk(self.target, (top, *self.chain[1:]))

    def allocated(self):
        """Return the bytes of the top image, 0 if that cannot be said."""
        try:
            status = os.stat(self.chain[0].path)
        except (OSError, ValueError):
            return 0
        return status.st_blocks * 512


@dataclasses.dataclass(frozen=True)
class Domain:
    """What we need of a domain's XML.

    :ivar emulator: path of the QEMU binary
    :ivar huge_pages: whether its memory is not in the process's RSS
    :ivar disks: tuple of DomainDisk
    """

    emulator: str | None
    huge_pages: bool
    disks: tuple


def parse(xml):
    """Return Domain.

    :param xml: text of a domain that runs
    """
    root = etree.fromstring(xml)
    return Domain(
        emulator=root.findtext('./devices/emulator'),
        huge_pages=root.find('./memoryBacking/hugepages') is not None,
        disks=tuple(filter(None, map(
            _disk, root.iterfind('./devices/disk')))))


def _disk(element):
    target, alias = element.find('target'), element.find('alias')
    if (element.get('device', 'disk') not in ('disk', 'lun')
            or target is None or alias is None):
        return None
    return DomainDisk(
        target=target.get('dev'), device=alias.get('name'),
        serial=element.findtext('serial') or '', chain=tuple(_chain(element)))


def _chain(disk):
    element, auth = disk, disk.find('auth')
    for _ in range(MAX_CHAIN):
        yield _node(element, auth)
        element = element.find('backingStore')
        # an empty one says that there is nothing below
        if element is None or not element.get('type'):
            return
    yield nodes.Node('other', 'a chain of more than %d images' % MAX_CHAIN)


def _node(element, auth):
    source = element.find('source')
    kind = element.get('type')
    if source is None:
        return nodes.Node('other', 'no source')
    if kind == 'file':
        return nodes.Node('file', source.get('file', ''))
    if kind == 'block':
        return nodes.Node('block', source.get('dev', ''))
    if kind == 'network' and source.get('protocol') == 'rbd':
        auth = source.find('auth') if auth is None else auth
        secret = auth.find('secret') if auth is not None else None
        return nodes.Node(
            'rbd', source.get('name', ''),
            user=auth.get('username') if auth is not None else None,
            secret=secret.get('uuid') if secret is not None else None)
    return nodes.Node('other', '%s %s' % (kind, source.get('protocol', '')))
