# SPDX-License-Identifier: Apache-2.0
"""The guest of an instance, as our hypervisor layer sees it."""

from nova import exception

from nova_dedup_migrate.hypervisor import libvirt


def open_guest(host, instance):
    """Return hypervisor.libvirt.LibvirtGuest on Nova's own connection.

    :param host: nova.virt.libvirt.host.Host
    :param instance: nova.objects.Instance
    :raises LookupError: libvirt has no such domain
    """
    try:
        domain = host.get_guest(instance)._domain
    except exception.InstanceNotFound as error:
        raise LookupError(instance.uuid) from error
    return libvirt.LibvirtGuest.from_domain(domain)
