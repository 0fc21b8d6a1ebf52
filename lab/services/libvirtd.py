# SPDX-License-Identifier: Apache-2.0
"""libvirtd in a lab host, with a QEMU of our choice.

    daemon = libvirtd.Libvirtd(host, '/opt/qemu/bin')
    daemon.prepare()
    daemon.start()
    libvirt.open(daemon.uri)

Domains that name no emulator get the one of that directory, because a link
to it comes first in libvirtd's PATH; qemu-img is taken from there as well.
The link has the same path on every host, as an installed QEMU has: domains
name it, and take that name along.  The firmware is looked for in
../share/qemu.  The guests outlive stop(), and may go on under another
libvirtd, which has another QEMU.

If DEDUP_LIBVIRT_ROOT names the root of another system, libvirtd is that of
the system, with its libraries and drivers.
"""

import grp
import os
import pathlib
import pwd
import socket
import time
import uuid

#: What a host has for itself, all it knows about domains included.
PRIVATE = ('/run/libvirt', '/var/lib/libvirt', '/etc/libvirt',
           '/var/log/libvirt', '/var/cache/libvirt')

#: Where libvirtd finds QEMU: a link.
EMULATORS = '/var/lib/libvirt/emulators'

#: Of another system, what a libvirtd takes from environment variables.
_DRIVERS = {'LIBVIRT_DRIVER_DIR': 'connection-driver',
            'LIBVIRT_STORAGE_BACKEND_DIR': 'storage-backend',
            'LIBVIRT_STORAGE_FILE_DIR': 'storage-file'}
_LIBRARIES = 'usr/lib/x86_64-linux-gnu'
#: Models of processors, and more that belongs to a version of libvirt.
_DATA = 'usr/share/libvirt'

_LIBVIRTD_CONF = '''\
listen_tls = 0
listen_tcp = 1
listen_addr = "%(address)s"
auth_tcp = "none"
auth_unix_ro = "none"
auth_unix_rw = "none"
host_uuid = "%(uuid)s"
log_outputs = "2:stderr"
'''

# Namespaces and control groups do not work within those of a lab host,
# and without stdio_handler a virtlogd is needed.
_QEMU_CONF = '''\
migration_address = "%(address)s"
migration_host = "%(address)s"
security_driver = "none"
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
clear_emulator_capabilities = 0
seccomp_sandbox = 0
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
'''

_TLS_CONF = '''\
migrate_tls_x509_cert_dir = "%(directory)s"
migrate_tls_x509_verify = 1
'''

# libvirtd insists on the existence of the accounts that it would use if
# qemu.conf did not name others; a package we do not need makes them.
_USER = 'libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin\n'
_GROUPS = {'libvirt-qemu': 'libvirt-qemu:x:64055:\n',
           'kvm': 'kvm:x:64056:\n'}


class Libvirtd:
    """A libvirtd.

    :param host: lab.hosts.host.Host
    :param qemu: directory of qemu-system-x86_64 and qemu-img
    :param network: name of the host's network that it listens on and
        that migrations take, default the first
    :param certificates: directory, as the host sees it, of the certificates
        for migrations with VIR_MIGRATE_TLS, default none
    :ivar programs: Path of the directory of QEMU
    """

    def __init__(self, host, qemu, network=None, certificates=None):
        self.host = host
        self.programs = pathlib.Path(qemu)
        self._address = host.link(network).address
        self._certificates = certificates

    @property
    def uri(self):
        """For programs on this machine, in whatever host."""
        return 'qemu:///system?socket=%s' % self._socket

    @property
    def tcp_uri(self):
        """For programs of any host of the lab."""
        return 'qemu+tcp://%s/system' % self._address

    @property
    def log(self):
        """Path of its messages."""
        return self.host.directory / 'libvirtd.log'

    @property
    def _socket(self):
        # A unix socket's path has at most 107 bytes; directory may be
        # longer.
        return self.host.root / 'run/libvirt/libvirt-sock'

    def prepare(self):
        """Give the host its directories and configuration; once a host."""
        for path in PRIVATE:
            self.host.private(path)
        if root := _other_root():
            self.host.bind(root / _DATA, '/' + _DATA)
        self._add_accounts()
        values = {'address': self._address, 'uuid': uuid.uuid5(
            uuid.NAMESPACE_OID, self.host.netns)}
        directory = self.host.directory / 'etc/libvirt'
        (directory / 'libvirtd.conf').write_text(_LIBVIRTD_CONF % values)
        text = _QEMU_CONF % values
        if self._certificates is not None:
            text += _TLS_CONF % {'directory': self._certificates}
        (directory / 'qemu.conf').write_text(text)

    def _add_accounts(self):
        groups = {each.gr_name for each in grp.getgrall()}
        self._extend('/etc/group', [line for name, line in _GROUPS.items()
                                    if name not in groups])
        users = {each.pw_name for each in pwd.getpwall()}
        self._extend('/etc/passwd',
                     [] if 'libvirt-qemu' in users else [_USER])

    def _extend(self, path, lines):
        """Give the host its own copy of a file with lines added."""
        if not lines:
            return
        ours = self.host.directory / path.lstrip('/')
        ours.write_text(pathlib.Path(path).read_text() + ''.join(lines))
        self.host.bind(ours, path)

    def start(self, timeout=60.0):
        """Start it and return when it answers; the Process.

        :param timeout: seconds
        :raises RuntimeError: it does not, with the end of its log
        """
        # left by one that was killed, it would be taken for an answer
        self._socket.unlink(missing_ok=True)
        link = self.host.directory / EMULATORS.lstrip('/')
        link.unlink(missing_ok=True)
        link.symlink_to(self.programs)
        program, env = _program()
        env['PATH'] = EMULATORS + ':/usr/sbin:/usr/bin:/sbin:/bin'
        process = self.host.start(
            'libvirtd', [*program, '--listen', '--pid-file',
                         '/run/libvirt/libvirtd.pid'], env=env, log=self.log)
        deadline = time.monotonic() + timeout
        while not self._answers():
            if not process.is_alive() or time.monotonic() > deadline:
                lines = self.log.read_text(errors='replace').splitlines()
                raise RuntimeError('libvirtd of %s does not start: %s' % (
                    self.host.name, '; '.join(lines[-5:])))
            time.sleep(0.02)
        return process

    def _answers(self):
        try:
            with socket.socket(socket.AF_UNIX) as one:
                one.connect(str(self._socket))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        return True

    @property
    def process(self):
        """The process last started, None if there was none."""
        return self.host.process('libvirtd')

    def stop(self, timeout=20.0):
        """End it; guests go on; idempotent."""
        if self.process is not None:
            self.process.end(timeout)


def _other_root():
    """Return the Path of another system's root, None if there is none."""
    root = os.environ.get('DEDUP_LIBVIRT_ROOT')
    return pathlib.Path(root) if root else None


def _program():
    """Return (argv, environment) that start libvirtd.

    Programs that it starts, QEMU above all, keep the libraries of this
    system: the path of the others is an argument, not in the environment.
    """
    root = _other_root()
    if root is None:
        return ['libvirtd'], {}
    libraries = root / _LIBRARIES
    return ([libraries / 'ld-linux-x86-64.so.2', '--library-path', libraries,
             root / 'usr/sbin/libvirtd'],
            {name: str(libraries / 'libvirt' / directory)
             for name, directory in _DRIVERS.items()})
