# SPDX-License-Identifier: Apache-2.0
"""Small guests of a lab that write to memory, each at a rate of its own."""

from guests.synthetic import console
from lab import client
from lab import guest
from lab import instances

_BOOT_S = 900.0
#: KB/s at which they verify what they have written meanwhile.
_READ_RATE = 100


class WriterGuests:
    """:param cloud: lab.cloud.Cloud
    :param name: of the instances, with %d
    :param rates: KB/s that each writes
    :ivar servers: of openstacksdk
    """

    def __init__(self, cloud, name, rates):
        self._cloud = cloud
        self._compute = client.connect(cloud).compute
        self._name = name
        self._rates = rates
        self.servers = []

    def boot(self):
        """Have them run, all of them on the first host; its name."""
        guest.upload_writer(self._cloud)
        first = self._cloud.computes[0].name
        for number in range(len(self._rates)):
            self.servers.append(instances.boot_image(
                self._cloud, self._name % (number + 1), 'dedup',
                guest.WRITER_IMAGE, guest.WRITER_MEMORY, 1, host=first))
        self.servers = [instances.wait_active(self._compute, one, _BOOT_S)
                        for one in self.servers]
        for server in self.servers:
            console.ready(self._console(server), _BOOT_S)
        return first

    def close(self):
        instances.delete(self._compute, *self.servers)

    def refresh(self):
        """Read the servers from Nova again."""
        self.servers = [self._compute.get_server(one.id)
                        for one in self.servers]

    def write(self):
        """Have them write."""
        for server, rate in zip(self.servers, self._rates, strict=True):
            if rate:
                console.ask(self._console(server),
                            f'start anon-writer rate={rate} '
                            f'readrate={_READ_RATE}')

    def verify(self):
        """Have them stop writing and verify their memory.

        :returns: a line for each whose memory is not as it was
        """
        wrong = []
        for server, rate in zip(self.servers, self._rates, strict=True):
            terminal = self._console(server)
            if rate:
                console.ask(terminal, 'stop')
            verified, pages, first = console.verify(terminal)
            if pages or not verified:
                wrong.append(f'{server.name}: {pages} wrong pages, {first}')
        return wrong

    def _console(self, server):
        server = self._compute.get_server(server.id)
        return guest.console(instances.host_of(self._cloud, server),
                             server.id)
