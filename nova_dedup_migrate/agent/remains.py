# SPDX-License-Identifier: Apache-2.0
"""Undefining what a failed migration has left in libvirt of this host.

Of a QEMU that ends just after it has taken a guest over, libvirt keeps a
domain that is shut off.  To undefine a domain is destructive, and every
program on the message bus can send the request.  So all of these must
hold; otherwise the request is refused with the reason:

* facts() announced exactly this migration of the instance.  If none was
  announced (the agent was started again meanwhile, or the migration was
  an ordinary one), the domain must be one of Nova's and of this instance,
  by the metadata in its XML.
* libvirt has no process for it, and the domain is shut off for a reason
  that a failed migration has: not because the guest shut down here, was
  saved here, or left.
"""

from __future__ import annotations

import logging
from xml.etree import ElementTree

import libvirt

from nova_dedup_migrate.agent import errors
from nova_dedup_migrate.agent import incoming
from nova_dedup_migrate.hypervisor import errors as hypervisor_errors
from nova_dedup_migrate.hypervisor import libvirt_host
from nova_dedup_migrate.hypervisor import libvirt_monitor

LOG = logging.getLogger(__name__)

#: Files that libvirt does not remove with what it knows of a guest.
_KEEP = (libvirt.VIR_DOMAIN_UNDEFINE_KEEP_NVRAM
         | libvirt.VIR_DOMAIN_UNDEFINE_KEEP_TPM)
#: Why a domain may be shut off; unknown is what a libvirtd that was
#: started again says.
_REASONS = (libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN,
            libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED,
            libvirt.VIR_DOMAIN_SHUTOFF_CRASHED,
            libvirt.VIR_DOMAIN_SHUTOFF_FAILED)
#: Of the element that Nova writes into each domain, without its version.
_NOVA = '{http://openstack.org/xmlns/libvirt/nova/'


class Remains:
    """Undefines domains, with care.

    :param host: libvirt_host.LibvirtHost
    :param migrations: incoming.IncomingMigrations
    """

    def __init__(self, host: libvirt_host.LibvirtHost,
                 migrations: incoming.IncomingMigrations) -> None:
        self._host = host
        self._migrations = migrations

    def forget(self, instance_uuid: str, migration_uuid: str) -> bool:
        """Have libvirt forget a guest that does not run here.

        Its firmware's variables, its TPM and a state that it was saved in
        are kept; if there is one of those, libvirt may refuse.

        :param migration_uuid: of the migration that failed
        :returns: whether there was one
        :raises ForgetRefused: one of the conditions does not hold
        :raises HypervisorError: libvirt refuses, or does not answer
        """
        announced = self._migrations.announced(instance_uuid)
        if announced not in (None, migration_uuid):
            raise errors.ForgetRefused(
                instance_uuid=instance_uuid,
                reason='the request is about migration %s, and the last one '
                'that was announced is %s' % (migration_uuid, announced))
        try:
            domain = self._host.domain(instance_uuid, instance_uuid)
        except hypervisor_errors.GuestNotRunning:
            return False
        with libvirt_monitor.converting(instance_uuid, 'undefine'):
            problem = _problem(domain)
            if not problem and announced is None:
                problem = _not_of_nova(domain, instance_uuid)
            if problem:
                raise errors.ForgetRefused(instance_uuid=instance_uuid,
                                           reason=problem)
            domain.undefineFlags(_KEEP)
        self._migrations.end(instance_uuid)
        LOG.info('Undefined the domain of instance %s, whose migration %s '
                 'to this host failed', instance_uuid, migration_uuid)
        return True


def _problem(domain: libvirt.virDomain) -> str:
    """Return why a domain is not one that a failed migration has left."""
    state, reason = domain.state()[:2]
    if (domain.isActive() or state != libvirt.VIR_DOMAIN_SHUTOFF
            or reason not in _REASONS):
        return 'it is %s' % libvirt_monitor.state_in_words(domain)
    return ''


def _not_of_nova(domain: libvirt.virDomain, instance_uuid: str) -> str:
    xml = ElementTree.fromstring(
        domain.XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE))
    described = [element for element in xml.iterfind('metadata/*')
                 if element.tag.startswith(_NOVA)
                 and element.tag.endswith('}instance')]
    # Nova gives a domain the UUID of its instance, in both places.
    uuids = {xml.findtext('uuid'),
             *(entry.text for entry in xml.iterfind(
                 "sysinfo/system/entry[@name='uuid']"))}
    if not described or uuids != {instance_uuid}:
        return ('no migration of it to this host was announced since the '
                'agent was started, and the metadata of the domain does not '
                'name the instance')
    return ''
