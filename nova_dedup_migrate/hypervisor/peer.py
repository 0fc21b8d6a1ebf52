# SPDX-License-Identifier: Apache-2.0
"""Asking libvirt of another host, where no agent answers.

nova-compute need not be allowed to: migrations are made by libvirtd, which
may have other keys.  So it is the second choice.
"""

import libvirt
from oslo_log import log as logging

from nova_dedup_migrate import deadline
from nova_dedup_migrate import native
from nova_dedup_migrate.hypervisor import libvirt_monitor

LOG = logging.getLogger(__name__)

_PEERS = deadline.Runner('libvirt of another host', 16)
#: Seconds for it to answer.
TIMEOUT = 10.0


def guest_state(uri, uuid):
    """Return one of rpc.objects.GUEST_STATES, None if it does not say.

    :param uri: of the other host's libvirt
    :param uuid: of the instance
    """
    try:
        return _PEERS.run(TIMEOUT, native.call, _ask, uri, uuid)
    except (libvirt.libvirtError, deadline.Late) as error:
        LOG.debug('%s does not say where %s is: %s', uri, uuid, error)
        return None


def _ask(uri, uuid):
    connection = libvirt.openReadOnly(uri)
    try:
        return libvirt_monitor.guest_state(
            connection.lookupByUUIDString(uuid))
    except libvirt.libvirtError as error:
        if error.get_error_code() == libvirt.VIR_ERR_NO_DOMAIN:
            return 'none'
        raise
    finally:
        connection.close()
