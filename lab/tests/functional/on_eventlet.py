# SPDX-License-Identifier: Apache-2.0
"""Ask a guest the way nova-compute does on eventlet.

Its QEMU is stopped and continued by a green thread, when that has its
turn.  Prints the guest's state, the last event that was told, and how a survey
went.
"""

import eventlet

eventlet.monkey_patch()

import os  # noqa: E402
import signal  # noqa: E402
import sys  # noqa: E402
import threading  # noqa: E402

from eventlet import patcher  # noqa: E402
from eventlet import tpool  # noqa: E402
import libvirt  # noqa: E402

from nova_dedup_migrate.hypervisor import survey  # noqa: E402
from testkit import libvirt as guests  # noqa: E402


def connect(uri):
    """Return a connection and an event loop such as Nova's."""
    libvirt.virEventRegisterDefaultImpl()

    def run():
        while True:
            libvirt.virEventRunDefaultImpl()

    patcher.original('threading').Thread(target=run, daemon=True).start()
    classes = tuple(value for value in vars(libvirt).values()
                    if isinstance(value, type)
                    and value.__name__.startswith('vir'))
    return tpool.Proxy(tpool.execute(libvirt.open, uri), autowrap=classes)


def main(uri, uuid, pid):
    connection = connect(uri)
    guest = guests.LibvirtGuest.from_domain(
        connection.lookupByUUIDString(uuid))
    log = guest.events
    threading.Timer(0.1, os.kill, (int(pid), signal.SIGCONT)).start()
    state = guest.run_state()
    guest.pause()
    guest.cont()
    while not any(event.name == 'RESUME' for event in log.since()):
        eventlet.sleep(0.05)
    guest.track_dedup(True)
    found = survey.survey(guest, 1)
    guest.track_dedup(False)
    print(state, log.since()[-1].name, found.in_use is not None,
          found.hints is not None, found.warnings)
    guest.close()


if __name__ == '__main__':
    main(*sys.argv[1:])
