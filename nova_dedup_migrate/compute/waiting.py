# SPDX-License-Identifier: Apache-2.0
"""Waiting for what is away and will come back.

The first thing that Nova does about a migration at the source is to look
for the guest.  Where libvirtd is away then, Nova sets ERROR on an instance
that runs.

Whatever Nova does last goes through the message bus, the database included,
and asks libvirt of both hosts.
"""

import time

import libvirt
from nova import exception
from oslo_log import log as logging
import oslo_messaging

from nova_dedup_migrate.compute import figures

LOG = logging.getLogger(__name__)

_INTERVAL_S = 1.0
#: Seconds until what did not answer is asked again.
RETRY_S = 10.0
#: Errors that say that the message bus, or a libvirtd, did not answer.
AWAY = (oslo_messaging.MessagingException, exception.HypervisorUnavailable)


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


def until_answered(act, stopping, what):
    """Return what act() does, done again where it raised one of AWAY.

    :param act: callable that can be called again after it failed anywhere
    :param stopping: threading.Event that ends the waiting
    :param what: is being done, for the log
    :returns: None where we are stopped
    """
    said = None
    while True:
        try:
            return act()
        except AWAY as error:
            if said != str(error):
                said = str(error)
                LOG.warning('%s is tried until there is an answer: %s',
                            what, error)
        if stopping.wait(RETRY_S):
            return None
