# SPDX-License-Identifier: Apache-2.0
"""The guest of an instance, as our hypervisor layer sees it."""

from nova import exception

from nova_dedup_migrate.hypervisor import errors
from nova_dedup_migrate.hypervisor import libvirt


class InstanceGuest(libvirt.LibvirtGuest):
    """On Nova's own connection, which Nova makes anew where it is lost.

    :ivar look_up: callable that returns the libvirt.virDomain once more;
        raises what nova.virt.libvirt.host.Host.get_guest does
    """

    look_up = None

    def domain(self):
        if not self._given.connect().isAlive():
            try:
                self._given = self.look_up()
            except exception.InstanceNotFound as error:
                raise errors.GuestNotRunning(name=self.name) from error
            except exception.NovaException as error:
                raise errors.HypervisorUnavailable(
                    uri='libvirt', reason=str(error)) from error
        return self._given


def open_guest(host, instance):
    """Return InstanceGuest.

    :param host: nova.virt.libvirt.host.Host
    :param instance: nova.objects.Instance
    :raises LookupError: libvirt has no such domain
    """
    def look_up():
        return host.get_guest(instance)._domain

    try:
        domain = look_up()
    except exception.InstanceNotFound as error:
        raise LookupError(instance.uuid) from error
    guest = InstanceGuest.from_domain(domain)
    guest.look_up = look_up
    return guest
