# SPDX-License-Identifier: Apache-2.0
"""Waiting for a libvirtd that has just ended.

The first thing that Nova does about a migration at the source is to look
for the guest.  Where libvirtd is away then, Nova sets ERROR on an instance
that runs.
"""

import time

import libvirt
from nova import exception
from oslo_log import log as logging

from nova_dedup_migrate.compute import figures

LOG = logging.getLogger(__name__)

_INTERVAL_S = 1.0


def await_libvirt(open_guest):
    """Wait until libvirt answers, but not for ever.

    :param open_guest: callable; raises what Host.get_guest does
    """
    deadline = time.monotonic() + figures.LIBVIRT_S
    while time.monotonic() < deadline:
        try:
            open_guest()
            return
        except exception.InstanceNotFound:
            return
        except (libvirt.libvirtError, exception.NovaException) as error:
            LOG.warning('A migration waits for libvirt: %s', error)
        time.sleep(_INTERVAL_S)
