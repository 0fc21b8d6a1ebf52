# SPDX-License-Identifier: Apache-2.0
"""One lab: its directory, settings, hosts and configuration files.

The directory (build/lab by default) holds::

    settings.json           what was asked for
    done/NAME               initialisations that need not be repeated
    HOST/NAME.log           output of the programs of a host
    HOST/etc, HOST/var      what the host has at /etc/nova, /var/lib/nova …
    openrc, clouds.yaml     for users of the cloud
    data.raw                what ephemeral disks of the lab's guest hold
    python/                 environment in which our package is installed
    releases/NAME/tree      link to another release of this project, and
    releases/NAME/python/   its environment
    HOST/release            name of the one that the host runs
    HOST/release.PROGRAM    the same of one program; empty: the lab's own
    environment             path of the one that OpenStack is installed in
"""

import dataclasses
import importlib.util
import os
import pathlib
import shutil
import subprocess
import time

import jinja2

from lab import errors
from lab.hosts import lab as labs
from lab.settings import Settings
from lab.settings import TOP

TEMPLATES = pathlib.Path(__file__).parent / 'templates'
#: The last one is what instances are given to reach each other and us.
INSTANCES = 'instances'
NETWORKS = ('management', 'migration', 'storage', INSTANCES)
REGION = 'RegionOne'
PORTS = {'identity': 5000, 'placement': 8778, 'image': 9292,
         'compute': 8774, 'network': 9696, 'volume': 8776,
         'dedup-migrate': 8785}
PATHS = {'identity': '/v3', 'compute': '/v2.1', 'volume': '/v3'}
_PROXIES = ('http_proxy', 'https_proxy', 'all_proxy')


def forget_proxies():
    """The lab's addresses are this machine's own."""
    for name in _PROXIES:
        os.environ.pop(name, None)
        os.environ.pop(name.upper(), None)


def _log(host, name):
    return host.directory / (name + '.log')


@dataclasses.dataclass(frozen=True)
class Release:
    """A release of this project.

    :ivar tree: Path of its files
    :ivar python: Path of an interpreter that sees OpenStack and them
    """

    tree: pathlib.Path
    python: pathlib.Path


class Cloud:
    """:ivar name: of the lab, as lab.hosts.lab.Lab has it
    :ivar directory: Path
    :ivar settings: Settings
    :ivar lab: lab.hosts.lab.Lab
    """

    region = REGION

    def __init__(self, name, directory, settings):
        self.name = name
        self.directory = pathlib.Path(directory).absolute()
        self.settings = settings
        self.lab = labs.Lab.load(name)
        self._templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(TEMPLATES), trim_blocks=True,
            lstrip_blocks=True, undefined=jinja2.StrictUndefined,
            keep_trailing_newline=True)

    @classmethod
    def load(cls, name, directory):
        """Find a lab that exists.

        :raises LabError: there is none
        """
        directory = pathlib.Path(directory)
        settings = Settings.load(directory)
        if settings is None or labs.Lab.load(name) is None:
            raise errors.LabError('there is no lab: run make lab')
        return cls(name, directory, settings)

    # Hosts

    @property
    def control(self):
        return self.host('control')

    @property
    def computes(self):
        return [self.host(name) for name in self.settings.hosts]

    def host(self, name):
        return self.lab.hosts[name]

    @property
    def host_names(self):
        names = ['control', *self.settings.hosts]
        names[1:1] = [*self.settings.nases, *self.settings.backup_nases,
                      *self.settings.backup_hosts]
        if self.settings.has_ceph:
            names.insert(1, 'ceph')
        return names

    def is_whole(self):
        """Whether all networks and hosts are there, each with an anchor
        that lives."""
        return (self.lab is not None
                and list(self.lab.networks) == list(NETWORKS)
                and set(self.host_names) <= set(self.lab.hosts)
                and all(host.is_alive() for host in self.lab.hosts.values()))

    # Initialisations

    def once(self, name, action):
        """Do it, unless it was done in this directory before."""
        if self.was_done(name):
            return False
        action()
        mark = self.directory / 'done' / name
        mark.parent.mkdir(exist_ok=True)
        mark.touch()
        return True

    def was_done(self, name):
        return (self.directory / 'done' / name).exists()

    # Configuration

    @property
    def data_disk(self):
        """Path of what is put on ephemeral disks of the lab's guest."""
        return self.directory / 'data.raw'

    def render(self, template, **values):
        return self._templates.get_template(template).render(
            cloud=self, settings=self.settings, **values)

    def configure(self, host, path, template, **values):
        """Write a host's file; its directory is the host's own already."""
        file = host.directory / str(path).lstrip('/')
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.render(template, host=host, **values))
        file.chmod(0o600)

    @property
    def transport_url(self):
        return 'rabbit://openstack:%s@%s:5672/' % (
            self.settings.password, self.control.address)

    @property
    def memcached(self):
        return self.control.address + ':11211'

    def database(self, name):
        return 'mysql+pymysql://openstack:%s@%s/%s?charset=utf8' % (
            self.settings.password, self.control.address, name)

    def url(self, service):
        """Endpoint of a service of PORTS."""
        return 'http://%s:%d%s' % (self.control.address, PORTS[service],
                                   PATHS.get(service, ''))

    @property
    def identity(self):
        """URL of Keystone without a version."""
        return 'http://%s:%d' % (self.control.address, PORTS['identity'])

    # Python

    @property
    def environment(self):
        """Path of the environment that OpenStack is installed in.

        It is that of the program that made the lab.
        """
        try:
            return pathlib.Path(
                (self.directory / 'environment').read_text().strip())
        except FileNotFoundError:
            # not sys.prefix, which may be the one of another lab
            nova = importlib.util.find_spec('nova').origin
            return pathlib.Path(nova).parents[4]

    @property
    def python(self):
        """Path of an interpreter that sees OpenStack and our package."""
        return self.directory / 'python' / 'bin' / 'python'

    def known_release(self, name):
        """Return a Release by its name."""
        place = self.directory / 'releases' / name
        return Release(place / 'tree', place / 'python' / 'bin' / 'python')

    def release(self, host, program=None):
        """Return the Release that a host runs, most often this one.

        :param program: one that may be of another release than the rest
        """
        for mark in ('release.%s' % program, 'release'):
            try:
                name = (self.directory / host.name / mark).read_text()
            except FileNotFoundError:
                continue
            return self.known_release(name) if name else self._own
        return self._own

    @property
    def _own(self):
        return Release(TOP, self.python)

    def script(self, name, host=None):
        """Return the command that runs a console script.

        :param host: whose release it is of, default the lab's own
        """
        python = self.python if host is None else self.release(host).python
        ours = python.parent / name
        if ours.exists():
            return [python, ours]
        return [python, self.environment / 'bin' / name]

    def data(self, name):
        """Path of a file that OpenStack's packages install in etc."""
        return self.environment / 'etc' / name

    def qemu(self, kind, host=None):
        """Path of the directory of a QEMU's programs.

        :param host: whose release it is of, default the lab's own
        :raises LabError: it is not built
        """
        tree = TOP if host is None else self.release(host).tree
        done = subprocess.run(
            [tree / 'qemu' / 'build', '--print-prefix', kind], timeout=60,
            capture_output=True, text=True, check=False)
        if done.returncode:
            raise errors.LabError(done.stderr.strip())
        return pathlib.Path(done.stdout.strip()) / 'bin'

    # Programs

    def execute(self, host, name, argv, timeout=300.0, env=None):
        """Run a program of a host to its end; its output goes to a log.

        :raises LabError: it fails
        """
        log = _log(host, name)
        with log.open('ab') as out:
            try:
                status = subprocess.run(
                    host.command(argv), stdin=subprocess.DEVNULL,
                    stdout=out, stderr=out, timeout=timeout, check=False,
                    env={**os.environ, **(env or {})}).returncode
            except subprocess.TimeoutExpired as error:
                raise errors.LabError('%s did not end within %.0f s' % (
                    name, timeout), log) from error
        if status:
            raise errors.LabError('%s ended with status %d' % (
                name, status), log)

    def start(self, host, name, argv, env=None):
        """Start a daemon unless it runs already; its Process."""
        process = host.process(name)
        if process is None or not process.is_alive():
            process = host.start(name, argv, env=env)
        return process

    def wait(self, host, name, ready, timeout=60.0):
        """Wait until a daemon does what it is for.

        :param ready: function that returns something true then
        :raises LabError: it ended, or the time is over
        """
        deadline = time.monotonic() + timeout
        while not (result := ready()):
            self.check(host, name)
            if time.monotonic() > deadline:
                raise errors.LabError(
                    '%s of %s is not ready after %.0f s' % (
                        name, host.name, timeout), _log(host, name))
            time.sleep(0.1)
        return result

    def check(self, host, name):
        """Raise LabError if a daemon was started there and has ended."""
        process = host.process(name)
        if process is not None and not process.is_alive():
            raise errors.LabError('%s of %s has ended' % (name, host.name),
                                  _log(host, name))

    def empty(self):
        """Remove what an earlier lab left in the directory."""
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True, exist_ok=True)
