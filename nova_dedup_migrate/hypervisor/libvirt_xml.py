# SPDX-License-Identifier: Apache-2.0
"""libvirt's domain XML (https://libvirt.org/formatdomain.html), read."""

from xml.etree import ElementTree


def disks(xml: str) -> dict[str, str]:
    """Map targets (vda) to the ids of the devices in QEMU.

    :param xml: of a domain that runs
    """
    found: dict[str, str] = {}
    for disk in ElementTree.fromstring(xml).iterfind('./devices/disk'):
        target, alias = disk.find('target'), disk.find('alias')
        if (disk.get('device', 'disk') in ('disk', 'lun')
                and target is not None and alias is not None):
            found[target.get('dev', '')] = alias.get('name', '')
    return found
