# SPDX-License-Identifier: Apache-2.0
"""Waiting for a libvirtd that has ended and is started again.

The first thing that Nova does about a migration on the source is to look
up the guest.  If libvirtd is away then, Nova sets ERROR on an instance
that runs.
"""

from collections.abc import Callable
import time
import typing

import libvirt
from nova import exception
from oslo_log import log as logging

from nova_dedup_migrate.compute import monitored_guest

LOG = logging.getLogger(__name__)

_INTERVAL_S = 1.0


def await_libvirt(open_guest: Callable[[], typing.Any]) -> None:
    """Wait until libvirt answers, but no longer than LIBVIRT_S.

    :param open_guest: callable; raises what Host.get_guest does
    """
    deadline = time.monotonic() + monitored_guest.LIBVIRT_S
    while time.monotonic() < deadline:
        try:
            open_guest()
            return
        except exception.InstanceNotFound:
            return
        except (libvirt.libvirtError, exception.NovaException) as error:
            LOG.warning('A live migration waits for libvirtd on this host: '
                        '%s', error)
        time.sleep(_INTERVAL_S)
