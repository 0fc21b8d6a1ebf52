# SPDX-License-Identifier: Apache-2.0
"""One host: a network, mount and UTS namespace.

The network namespace has a name (ip netns); a sleeping process, the
anchor, keeps the other two.
"""

import os
import pathlib
import subprocess
import time

from pyroute2 import netns

from lab.hosts import network
from lab.hosts import process
from lab.hosts import state


class Host:
    """See Lab.add_host.

    :ivar directory: Path, keeps what the host has for itself: the file
        or directory /a/b of the host is a/b in here
    :ivar root: Path of the host's root as the machine sees it
    """

    def __init__(self, lab, name, number, networks, record=None):
        self.lab = lab
        self.name = name
        self.number = number
        self.netns = 'lab-%s-%s' % (lab.name, name)
        self.directory = lab.directory / name
        self._links = {
            each.name: network.Link(self.netns, number, each, position)
            for position, each in enumerate(networks)}
        self._anchor = None
        if record is not None:
            self._anchor = process.Process(*record['anchor'])

    def record(self):
        """What state keeps of it."""
        return {'number': self.number, 'networks': list(self._links),
                'anchor': ([self._anchor.pid, self._anchor.start]
                           if self._anchor else None)}

    # Life

    def create(self):
        netns.create(self.netns)
        for link in self._links.values():
            link.create()
        self._anchor = process.spawn(
            ['nsenter', '--net=' + self._netns_file, 'unshare', '--mount',
             '--uts', '--propagation', 'private', 'sleep', 'infinity'],
            self.directory / 'anchor.log')
        self._wait_for_anchor()
        self.run(['hostname', self.name])
        # what it shows is that of the network namespace
        self.run(['mount', '-t', 'sysfs', 'sysfs', '/sys'])
        self.run(['mount', '-t', 'tmpfs', 'tmpfs', '/sys/fs/cgroup'])
        self.bind(self.lab.hosts_file, '/etc/hosts')

    def _wait_for_anchor(self):
        deadline = time.monotonic() + 10
        comm = pathlib.Path('/proc/%d/comm' % self._anchor.pid)
        while comm.read_text() != 'sleep\n':
            if not self._anchor.is_alive() or time.monotonic() > deadline:
                raise RuntimeError(
                    'cannot make namespaces: '
                    + (self.directory / 'anchor.log').read_text())
            time.sleep(0.005)

    def is_alive(self):
        """Whether what keeps its namespaces runs."""
        return self._anchor is not None and self._anchor.is_alive()

    def destroy(self):
        """End all its processes and remove it; idempotent."""
        # nothing of an ephemeral lab is worth a slow good-bye
        process.end_all(self._netns_file,
                        1.0 if self.lab.ephemeral else 10.0)
        for link in self._links.values():
            link.destroy()
        if os.path.exists(self._netns_file):
            netns.remove(self.netns)

    # Network

    @property
    def _netns_file(self):
        return '/run/netns/' + self.netns

    def link(self, network=None):
        """Return the network.Link to a network, by default the first."""
        if network is None:
            return next(iter(self._links.values()))
        return self._links[network]

    def has_link(self, network):
        """Whether it is in a network."""
        return network in self._links

    @property
    def address(self):
        """Its address in the first network."""
        return self.link().address

    # Files

    @property
    def root(self):
        return pathlib.Path('/proc/%d/root' % self._anchor.pid)

    def private(self, path):
        """Give the host a directory of its own at path, return where it is.

        It is a directory under directory, empty at first and mounted over
        the machine's.
        """
        ours = self.directory / str(path).lstrip('/')
        ours.mkdir(parents=True, exist_ok=True)
        self.bind(ours, path)
        return ours

    def bind(self, source, target):
        """Mount source, a file or directory of the machine, over target.

        A target that does not exist is made as a directory of the machine,
        for as long as the lab exists.
        """
        state.claim_directory(self.lab.name, pathlib.Path(target))
        self.run(['mount', '--bind', source, target])

    # Programs

    def command(self, argv, cwd='/'):
        """Return argv preceded by what makes it run in this host."""
        here = '/proc/%d/ns/' % self._anchor.pid
        # -W: the directory as the host sees it
        return ['nsenter', '--net=' + self._netns_file,
                '--mount=' + here + 'mnt', '--uts=' + here + 'uts',
                '--wdns=%s' % cwd, '--', *map(str, argv)]

    def run(self, argv, cwd='/', env=None, timeout=60.0, check=True):
        """Run a program to its end.

        :param env: added to ours
        :param timeout: seconds
        :returns: subprocess.CompletedProcess with its output as text
        :raises RuntimeError: check is set and it failed
        """
        done = subprocess.run(
            self.command(argv, cwd), env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=timeout, check=False)
        if check and done.returncode:
            raise RuntimeError('%s: %s failed: %s' % (
                self.name, ' '.join(map(str, argv)),
                (done.stderr or done.stdout).strip()))
        return done

    def start(self, name, argv, cwd='/', env=None, log=None):
        """Start a program that goes on in the background.

        :param name: to find it again with process(name)
        :param log: file for its output, default directory/NAME.log
        :returns: process.Process
        """
        one = process.spawn(self.command(argv, cwd),
                            log or self.directory / (name + '.log'),
                            {**os.environ, **(env or {})})
        state.save_process(self.lab.name, self.name, name, one)
        return one

    def process(self, name):
        """The process last started under that name, or None."""
        return state.load_process(self.lab.name, self.name, name)

    def started(self):
        """Names under which something was started."""
        return state.process_names(self.lab.name, self.name)

    def processes(self):
        """All processes that run in it, the anchor apart."""
        return [one for one in process.in_network(self._netns_file)
                if one != self._anchor]
