# SPDX-License-Identifier: Apache-2.0
"""Talks to the guest's program over its serial console, a terminal.

That of the guest in a cloud; channel.py is for a QEMU started directly.
"""

from guests import line
from guests import orders
from guests.messages import LineParser

#: What may be done to the lister in the guest, see src/guest.h.
LISTER_FAULTS = ('hang', 'kill', 'break')
#: Seconds until an order is repeated; on a slow machine one takes its time.
_AGAIN = 20.0


def ask(terminal, command, timeout=120.0):
    """Send the guest a command, return its reply.

    :param terminal: path of the terminal that is the guest's console
    :raises GuestFailed: there is no answer, or the guest refuses
    """
    name = command.split()[0]

    def is_reply(message):
        # and not the answer to the same command sent once more
        return (message['type'] == 'reply'
                and message.get('command') == name
                and message.get('message') != 'busy')

    with line.TerminalLine(terminal) as console:
        return orders.send(console, LineParser(), command, is_reply,
                           timeout, _AGAIN)


def ready(terminal, timeout=180.0):
    """Wait until the guest has filled its memory."""
    ask(terminal, 'ping', timeout)


def lister(terminal, what):
    """Do something to the lister in the guest.

    :param what: of LISTER_FAULTS, or go after hang and kill
    :raises GuestFailed: none runs
    """
    ask(terminal, 'lister ' + what)


def verify(terminal, disks=False):
    """Have the guest verify all its memory that has known content.

    :param disks: whether it then reads all files anew, from the disks
    :returns: (bytes, number of errors, first error)
    """
    reply = ask(terminal, 'verify cache anon' + ' disk' * disks)
    return (sum(int(reply.get(name, 0))
                for name in ('cache', 'anon', 'disk')),
            int(reply.get('errors', 0)), str(reply.get('error', '')))


def write(terminal, rate):
    """Have the guest rewrite its files, at random places.

    :param rate: KB/s, 0: as fast as it can
    """
    ask(terminal, 'start pagecache-writer rate=%d' % rate)


def rest(terminal):
    """Have the guest stop, and write back what it holds."""
    ask(terminal, 'stop')
    ask(terminal, 'drop')
