# SPDX-License-Identifier: Apache-2.0
"""A lab: networks and hosts with one name."""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading

from lab.hosts import host
from lab.hosts import network
from lab.hosts import process
from lab.hosts import state

_TOP = pathlib.Path(__file__).parents[2]
_COMMANDS = ('ip', 'mount', 'nsenter', 'unshare')


def missing():
    """Return what this machine lacks for labs, None if nothing."""
    if os.geteuid() != 0:
        return 'labs need root'
    for command in _COMMANDS:
        if shutil.which(command) is None:
            return 'labs need the command ' + command
    try:
        done = subprocess.run(
            ['unshare', '--net', '--mount', '--uts', 'true'],
            capture_output=True, text=True, timeout=30, check=False)
    except subprocess.TimeoutExpired as error:
        return str(error)
    return done.stderr.strip() or None


class Lab:
    """A lab, which create() makes.

    :param name: at most 6 lower-case letters and digits: interfaces are
        named after it
    :param directory: keeps what the hosts have for themselves; it stays
    :param ephemeral: has a temporary directory, and ends with this
        program
    :param networks: names of networks; the first is the default one
    """

    def __init__(self, name, directory=None, ephemeral=False,
                 networks=('lan',)):
        if not re.fullmatch('[a-z0-9]{1,6}', name):
            raise ValueError('lab name %r: expected 1 to 6 lower-case '
                             'letters and digits' % name)
        if (directory is None) != ephemeral:
            raise ValueError('either a directory or ephemeral')
        self.name = name
        self.directory = directory and pathlib.Path(directory).absolute()
        self.ephemeral = ephemeral
        self.networks = dict.fromkeys(networks)
        self.hosts = {}
        self._owner = process.Process.of(os.getpid())
        self._guard = None
        self._lock = threading.RLock()

    @classmethod
    def load(cls, name):
        """Find a lab that exists; None if there is none."""
        record = state.load(name)
        if record is None:
            return None
        lab = cls(name, record['directory'], networks=record['networks'])
        lab.ephemeral = record['ephemeral']
        lab._owner = process.Process(*record['owner'])
        lab.networks = {
            each: network.Network(name, each, number, subnet)
            for number, (each, subnet)
            in enumerate(record['networks'].items())}
        for each, known in record['hosts'].items():
            lab.hosts[each] = host.Host(
                lab, each, known['number'],
                [lab.networks[n] for n in known['networks']],
                known if known['anchor'] else None)
        return lab

    def __enter__(self):
        return self.create()

    def __exit__(self, *exc_info):
        self.destroy()

    def create(self):
        """Make the networks; what is left of an earlier lab goes first."""
        sweep()
        left = Lab.load(self.name)
        if left is not None:
            left.destroy()
        if self.ephemeral:
            self.directory = pathlib.Path(tempfile.mkdtemp(
                prefix='lab-%s-' % self.name, dir='/var/tmp'))
        self.directory.mkdir(parents=True, exist_ok=True)
        names, self.networks = list(self.networks), {}
        for number, each in enumerate(names):
            self.networks[each] = network.Network(
                self.name, each, number, taken=self.networks.values())
        self.save()
        if self.ephemeral:
            self._watch_over()
        self._write_hosts_file()
        try:
            for each in self.networks.values():
                each.create()
        except BaseException:
            self.destroy()
            raise
        return self

    def _watch_over(self):
        """Have another process destroy the lab when this one ends."""
        self._guard = subprocess.Popen(
            [sys.executable, '-m', 'lab.hosts.guard', self.name],
            cwd=_TOP, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
            start_new_session=True)

    def add_host(self, name, networks=None):
        """Make a host.

        :param name: its hostname, lower-case letters and digits
        :param networks: names, default all
        :returns: host.Host
        """
        if not re.fullmatch('[a-z0-9]{1,16}', name):
            raise ValueError('host name %r: expected 1 to 16 lower-case '
                             'letters and digits' % name)
        if name in self.hosts:
            raise ValueError('there is a host %s already' % name)
        with self._lock:
            new = host.Host(self, name, len(self.hosts),
                            [self.networks[n]
                             for n in networks or self.networks])
            self.hosts[name] = new
            # first the record, so that nothing is made that no one knows
            self.save()
            self._write_hosts_file()
        try:
            new.create()
        finally:
            self.save()
        return new

    @property
    def hosts_file(self):
        """Path of what is /etc/hosts in each host."""
        return self.directory / 'hosts'

    def _write_hosts_file(self):
        lines = ['127.0.0.1 localhost']
        lines += ['%s %s' % (each.address, each.name)
                  for each in self.hosts.values()]
        # in place: hosts have this very file mounted
        self.hosts_file.write_text('\n'.join(lines) + '\n')

    def save(self):
        """Write down what exists."""
        with self._lock:
            state.save(self.name, {
                'directory': str(self.directory),
                'ephemeral': self.ephemeral,
                'owner': [self._owner.pid, self._owner.start],
                'networks': {each.name: str(each.subnet)
                             for each in self.networks.values()},
                'hosts': {each.name: each.record()
                          for each in self.hosts.values()}})

    def destroy(self):
        """Remove the lab and end all its processes; idempotent."""
        with state.lock():
            # most of the time goes to processes that take their leave
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                list(pool.map(host.Host.destroy, self.hosts.values()))
            for each in self.networks.values():
                if each is not None:
                    each.destroy()
            if self.ephemeral and self.directory is not None:
                shutil.rmtree(self.directory, ignore_errors=True)
            state.remove(self.name)
            state.release_directories(self.name)
        self.hosts.clear()
        if self._guard is not None:
            self._guard.stdin.close()
            self._guard.wait()
            self._guard = None

    def is_orphan(self):
        """Whether it ought to have ended with its owner."""
        return self.ephemeral and not self._owner.is_alive()


def sweep():
    """Destroy the labs whose owner and guard both were killed."""
    for name in state.labs():
        lab = Lab.load(name)
        if lab is not None and lab.is_orphan():
            lab.destroy()


def unique_name(prefix='t'):
    """Return a name no other living program uses.

    :param prefix: one letter
    """
    number, digits = os.getpid(), ''
    while number:
        number, digit = divmod(number, 36)
        digits = '0123456789abcdefghijklmnopqrstuvwxyz'[digit] + digits
    return prefix + digits
